/* Reads memory.checkpoint: what of which blocks is computed again in backward.
 * How many bytes that takes follows in model_layout.c.
 *
 *     text    = part { ";" part }          part = target [ ":" range { "," range } ]
 *     range   = all | none | N | first-N | middle-N | last-N | range-I-J
 *
 * as in LLM Foundry's activation_checkpointing_target. A block may be named by
 * two targets, but not twice by one, nor beside "block". */
#include "src/model/model_memory.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

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

/* A piece of the setting's text. */
struct span {
    const char *at;
    size_t length;
};

static struct span span_trim(struct span span)
{
    while (span.length > 0 && isspace((unsigned char)span.at[0])) {
        span.at++;
        span.length--;
    }
    while (span.length > 0 && isspace((unsigned char)span.at[span.length - 1]))
        span.length--;
    return span;
}

/* The part before the next `mark`, which is taken off *rest. */
static struct span span_next(struct span *rest, char mark)
{
    const char *end = memchr(rest->at, mark, rest->length);
    struct span part = *rest;
    if (end == NULL) {
        *rest = (struct span){ rest->at + rest->length, 0 };
    } else {
        part.length = (size_t)(end - rest->at);
        *rest = (struct span){ end + 1, rest->length - part.length - 1 };
    }
    return span_trim(part);
}

static bool span_is(struct span span, const char *text)
{
    return span.length == strlen(text) &&
           memcmp(span.at, text, span.length) == 0;
}

/* A number after `prefix`, and nothing else; false: it is something else. */
static bool span_number(struct span *span, const char *prefix, int64_t *value)
{
    size_t skip = strlen(prefix);
    char *end;
    if (span->length <= skip || memcmp(span->at, prefix, skip) != 0)
        return false;
    const char *digits = span->at + skip;
    if (!isdigit((unsigned char)digits[0]) || span->length - skip > 9)
        return false;
    *value = strtoll(digits, &end, 10);
    span->length -= (size_t)(end - span->at);
    span->at = end;
    return true;
}

static enum err bad_range(struct span span)
{
    return err_set(ERR_USAGE,
                   "memory.checkpoint: blocks \"%.*s\": use all, none, a "
                   "number, first-N, middle-N, last-N, range-I-J, or a list "
                   "of them with commas",
                   (int)span.length, span.at);
}

/* [first, end) of one term. */
static enum err parse_range(struct span span, int64_t layers, int64_t *first,
                            int64_t *end)
{
    struct span rest = span;
    int64_t count;
    *first = *end = 0;
    if (span_is(span, "all") || span_is(span, "-1")) {
        *end = layers;
        return ERR_OK;
    }
    if (span_is(span, "none"))
        return ERR_OK;
    if (span_number(&rest, "range-", first) && span_number(&rest, "-", end) &&
        rest.length == 0) {
        if (*first > *end)
            return bad_range(span);
    } else if ((rest = span, span_number(&rest, "first-", &count)) ||
               (rest = span, span_number(&rest, "", &count))) {
        *first = 0;
        *end = count;
    } else if ((rest = span, span_number(&rest, "middle-", &count))) {
        *first = layers / 2 - count / 2;
        *end = *first + count;
    } else if ((rest = span, span_number(&rest, "last-", &count))) {
        *first = layers - count;
        *end = layers;
    } else {
        return bad_range(span);
    }
    if (rest.length > 0)
        return bad_range(span);
    if (*first < 0 || *end > layers)
        return err_set(ERR_USAGE,
                       "memory.checkpoint: blocks \"%.*s\": the model has only "
                       "%lld blocks",
                       (int)span.length, span.at, (long long)layers);
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

static enum err add_blocks(struct span target, unsigned char recompute,
                           struct span blocks, int64_t layers,
                           const struct model_memory *before,
                           struct model_memory *out)
{
    while (blocks.length > 0) {
        int64_t first, end;
        struct span term = span_next(&blocks, ',');
        TRY(parse_range(term, layers, &first, &end));
        for (int64_t i = first; i < end; i++) {
            if (overlaps(before->recompute[i], recompute))
                return err_set(ERR_USAGE,
                               "memory.checkpoint: block %lld is named by "
                               "\"%s\" and by \"%.*s\": leave it to one of "
                               "them",
                               (long long)i, target_of(before->recompute[i]),
                               (int)target.length, target.at);
            out->recompute[i] |= recompute;
        }
    }
    return ERR_OK;
}

static enum err add_target(struct span part, int64_t layers,
                           struct model_memory *out)
{
    struct model_memory before = *out;
    struct span blocks = part;
    struct span target = span_next(&blocks, ':');
    bool all = memchr(part.at, ':', part.length) == NULL;
    blocks = span_trim(blocks);
    if (all)
        blocks = (struct span){ "all", 3 };
    else if (blocks.length == 0)
        return bad_range(blocks);
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++)
        if (span_is(target, targets[i].name))
            return add_blocks(target, targets[i].recompute, blocks, layers,
                              &before, out);
    return err_set(ERR_USAGE,
                   "memory.checkpoint: no target \"%.*s\"; there are block, "
                   "attention, norm_attn_norm, ffn, activation and norm",
                   (int)target.length, target.at);
}

enum err model_memory_parse(const char *text, int64_t n_layers,
                            struct model_memory *out)
{
    struct span rest = span_trim((struct span){ text, strlen(text) });
    memset(out->recompute, 0, sizeof out->recompute);
    if (n_layers > MODEL_LAYERS_MAX)
        return err_set(ERR_USAGE, "model.n_layers (%lld): at most %d",
                       (long long)n_layers, MODEL_LAYERS_MAX);
    if (rest.length == 0 || span_is(rest, "none"))
        return ERR_OK;
    while (rest.length > 0) {
        struct span part = span_next(&rest, ';');
        if (part.length > 0)
            TRY(add_target(part, n_layers, out));
    }
    return ERR_OK;
}
