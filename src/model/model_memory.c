/* Reads memory.checkpoint: what of which blocks is computed again in backward.
 * How many bytes that takes follows in model_layout.c.
 *
 *     text    = part { ";" part }          part = target [ ":" range { "," range } ]
 *     range   = all | none | N | first-N | middle-N | last-N | range-I-J
 *
 * as in LLM Foundry's activation_checkpointing_target. A block may be named by
 * two targets, but not twice by one, nor beside "block". */
#include "src/model/model_memory.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"

#define BLANKS " \t\n\v\f\r"

static const struct {
    const char *name;
    unsigned char recompute; /* 0: nothing to gain */
} targets[] = {
    { "block", RECOMPUTE_BLOCK },
    { "attention", RECOMPUTE_ATTENTION },
    { "norm_attn_norm", RECOMPUTE_ATTENTION },
    { "ffn", RECOMPUTE_FFN },
    { "activation", RECOMPUTE_ACTIVATION },
    { "norm", 0 },
};

/* Without the blanks at both ends. */
static char *trim(char *text)
{
    text += strspn(text, BLANKS);
    size_t length = strlen(text);
    while (length > 0 && strchr(BLANKS, text[length - 1]) != NULL)
        text[--length] = '\0';
    return text;
}

/* A number after `prefix`, behind which *text is then; false: it is something
 * else. */
static bool take_number(const char **text, const char *prefix, int64_t *value)
{
    size_t skip = strlen(prefix);
    const char *digits = *text + skip;
    if (strncmp(*text, prefix, skip) != 0)
        return false;
    size_t count = strspn(digits, "0123456789");
    if (count == 0 || count > 9)
        return false;
    *value = strtoll(digits, NULL, 10);
    *text = digits + count;
    return true;
}

static enum err bad_range(const char *range)
{
    return err_set(ERR_USAGE,
                   "memory.checkpoint: blocks \"%s\": use all, none, a "
                   "number, first-N, middle-N, last-N, range-I-J, or a list "
                   "of them with commas",
                   range);
}

/* [first, end) of one term. */
static enum err parse_range(const char *range, int64_t layers, int64_t *first,
                            int64_t *end)
{
    const char *rest = range;
    int64_t count;
    *first = *end = 0;
    if (strcmp(range, "none") == 0)
        return ERR_OK;
    if (strcmp(range, "all") == 0 || strcmp(range, "-1") == 0) {
        *end = layers;
        return ERR_OK;
    }
    if (take_number(&rest, "range-", first)) {
        if (!take_number(&rest, "-", end) || *first > *end)
            return bad_range(range);
    } else if (take_number(&rest, "first-", &count) ||
               take_number(&rest, "", &count)) {
        *end = count;
    } else if (take_number(&rest, "middle-", &count)) {
        *first = layers / 2 - count / 2;
        *end = *first + count;
    } else if (take_number(&rest, "last-", &count)) {
        *first = layers - count;
        *end = layers;
    } else {
        return bad_range(range);
    }
    if (*rest != '\0')
        return bad_range(range);
    if (*first < 0 || *end > layers)
        return err_set(ERR_USAGE,
                       "memory.checkpoint: blocks \"%s\": the model has only "
                       "%lld blocks",
                       range, (long long)layers);
    return ERR_OK;
}

/* Two targets may share a block when together they are not the whole and not
 * the same. */
static bool overlaps(unsigned char has, unsigned char adds)
{
    return adds != 0 && has != 0 &&
           (has == adds || (has | adds) & RECOMPUTE_BLOCK);
}

/* A target that asks for some of `recompute`. */
static const char *target_of(unsigned char recompute)
{
    size_t i = 0;
    while ((targets[i].recompute & recompute) == 0)
        i++;
    return targets[i].name;
}

static enum err add_blocks(const char *target, unsigned char recompute,
                           char *blocks, int64_t layers,
                           const struct model_memory *before,
                           struct model_memory *out)
{
    while (blocks != NULL && *blocks != '\0') {
        int64_t first, end;
        TRY(parse_range(trim(strsep(&blocks, ",")), layers, &first, &end));
        for (int64_t i = first; i < end; i++) {
            if (overlaps(before->recompute[i], recompute))
                return err_set(ERR_USAGE,
                               "memory.checkpoint: block %lld is named by "
                               "\"%s\" and by \"%s\": leave it to one of them",
                               (long long)i, target_of(before->recompute[i]),
                               target);
            out->recompute[i] |= recompute;
        }
    }
    return ERR_OK;
}

static enum err add_target(char *part, int64_t layers, struct model_memory *out)
{
    struct model_memory before = *out;
    char all[] = "all";
    char *target = trim(strsep(&part, ":"));
    char *blocks = part == NULL ? all : trim(part);
    if (*blocks == '\0')
        return bad_range(blocks);
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++)
        if (strcmp(target, targets[i].name) == 0)
            return add_blocks(target, targets[i].recompute, blocks, layers,
                              &before, out);
    return err_set(ERR_USAGE,
                   "memory.checkpoint: no target \"%s\"; there are block, "
                   "attention, norm_attn_norm, ffn, activation and norm",
                   target);
}

enum err model_memory_parse(const char *text, int64_t n_layers,
                            struct model_memory *out)
{
    enum err rc = ERR_OK;
    char *copy = NULL;
    memset(out->recompute, 0, sizeof out->recompute);
    if (n_layers > MODEL_LAYERS_MAX)
        return err_set(ERR_USAGE, "model.n_layers (%lld): at most %d",
                       (long long)n_layers, MODEL_LAYERS_MAX);
    TRY(new_text(&copy, text));
    char *rest = trim(copy);
    if (strcmp(rest, "none") == 0)
        goto out;
    while (rest != NULL && *rest != '\0') {
        char *part = trim(strsep(&rest, ";"));
        if (*part != '\0')
            TRY_OUT(add_target(part, n_layers, out));
    }
out:
    free(copy);
    return rc;
}
