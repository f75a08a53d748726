/* What lies beside a tokenizer.model and belongs to it: which tokens texts begin and end
 * with, and added tokens, as tokenizer_config.json names them.
 *
 * "added_tokens_decoder" has a number for each token. As transformers does it is a piece
 * of the model with what is said of it anew, or follows the pieces in the order of
 * numbers. There another number is passed over, or is one of two; here it is refused,
 * for a model that was trained with it would be read with another. */
#include "src/text/tokenizer/sentencepiece_beside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/jsontext.h"
#include "src/base/new.h"
#include "src/text/tokenizer/tokenizer_beside.h"

#define CONFIG_FILE "tokenizer_config.json"
#define SAVE_ONE TOKENIZER_BESIDE_REMEDY
#define DIGITS 9

struct token {
    int32_t id;
    const char *key;
    const json_t *value;
};

static int by_id(const void *a, const void *b)
{
    const struct token *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static enum err number_of(const char *model, const char *key, int32_t *id)
{
    size_t length = strlen(key);
    *id = (int32_t)strtol(key, NULL, 10);
    return length > 0 && length <= DIGITS &&
                   strspn(key, "0123456789") == length &&
                   (key[0] != '0' || length == 1)
               ? ERR_OK
               : err_set(ERR_DATA,
                         "%s: what lies beside it: added_tokens_decoder: "
                         "'%.32s' is no number of a token",
                         model, key);
}

/* Values as tokenizers' AddedToken has them. */
static enum err flags_of(const char *model, const struct token *token,
                         bool flags[5])
{
    static const char *const names[] = { "special", "normalized", "lstrip",
                                         "rstrip", "single_word" };
    for (int i = 0; i < 5; i++) {
        const json_t *is = json_object_get(token->value, names[i]);
        flags[i] = is == NULL ? i == 1 && !flags[0] : json_is_true(is);
        if (is != NULL && !json_is_boolean(is))
            return err_set(ERR_DATA,
                           "%s: what lies beside it: added_tokens_decoder.%s: "
                           "'%s' is neither true nor false",
                           model, token->key, names[i]);
    }
    return ERR_OK;
}

/* *next: the number of the next one that is no piece. */
static enum err take(const char *model, const struct token *token,
                     const json_t *vocab, int32_t *next, json_t **added)
{
    bool flags[5];
    const char *text =
        json_string_value(json_object_get(token->value, "content"));
    if (text == NULL || text[0] == '\0')
        return err_set(ERR_DATA,
                       "%s: what lies beside it: added_tokens_decoder.%s: a "
                       "text 'content' is expected",
                       model, token->key);
    const json_t *piece = json_object_get(vocab, text);
    int32_t number = piece != NULL ? (int32_t)json_integer_value(piece) : *next;
    if (number != token->id)
        return err_set(ERR_DATA,
                       "%s: what lies beside it: added_tokens_decoder.%s: "
                       "'%.64s' %s %d",
                       model, token->key, text,
                       piece != NULL ? "is the model's piece"
                                     : "is no piece, and the next number is",
                       (int)number);
    *next += piece == NULL;
    TRY(flags_of(model, token, flags));
    jsontext_append(added,
                    json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id",
                              (int)token->id, "content", text, "single_word",
                              (int)flags[4], "lstrip", (int)flags[2], "rstrip",
                              (int)flags[3], "normalized", (int)flags[1],
                              "special", (int)flags[0]));
    return ERR_OK;
}

bool sentencepiece_beside_has(const json_t *decoder, int32_t id)
{
    char key[16];
    snprintf(key, sizeof key, "%d", (int)id);
    return json_object_get(decoder, key) != NULL;
}

enum err sentencepiece_beside_add(const char *model, json_t *decoder,
                                  const json_t *vocab, json_t **added)
{
    enum err rc = ERR_OK;
    struct token *list = NULL;
    int32_t next = (int32_t)json_object_size(vocab);
    size_t count = 0;
    const char *key;
    json_t *value;
    TRY(new_room(&list, json_object_size(decoder) + 1));
    json_object_foreach(decoder, key, value)
    {
        list[count] = (struct token){ .key = key, .value = value };
        TRY_OUT(number_of(model, key, &list[count].id));
        count++;
    }
    qsort(list, count, sizeof *list, by_id);
    for (size_t i = 0; i < count; i++)
        TRY_OUT(take(model, &list[i], vocab, &next, added));
out:
    free(list);
    return rc;
}

/* --- the files --- */

static enum err read_config(const char *model, struct sentencepiece_beside *out)
{
    json_t *root = NULL;
    enum err rc = tokenizer_beside_read(model, CONFIG_FILE, &root);
    const json_t *bos = json_object_get(root, "add_bos_token");
    const json_t *eos = json_object_get(root, "add_eos_token");
    json_t *decoder = json_object_get(root, "added_tokens_decoder");
    if (root == NULL)
        return rc;
    out->begins = bos == NULL ? out->begins : json_is_true(bos);
    out->ends = json_is_true(eos);
    if (json_is_false(json_object_get(root, "legacy")) ||
        json_is_false(json_object_get(root, "add_prefix_space")))
        rc = err_set(ERR_UNSUPPORTED,
                     "legacy or add_prefix_space is false, by which texts "
                     "begin otherwise: " SAVE_ONE);
    else if (decoder != NULL && !json_is_object(decoder))
        rc = err_set(ERR_DATA, "added_tokens_decoder is no object");
    out->decoder = json_incref(decoder);
    json_decref(root);
    return err_prefix(rc, "%s: what lies beside it: " CONFIG_FILE, model);
}

/* added_tokens.json is what transformers wrote before, and reads where the other lacks. */
enum err sentencepiece_beside_read(const char *model,
                                   struct sentencepiece_beside *out)
{
    char path[FSIO_PATH_MAX];
    const char *slash = strrchr(model, '/');
    int folder = slash == NULL ? 0 : (int)(slash + 1 - model);
    TRY(read_config(model, out));
    TRY(fsio_path(path, "%.*sadded_tokens.json", folder, model));
    if (out->decoder == NULL && fsio_exists(path))
        return err_set(ERR_UNSUPPORTED,
                       "%s: of tokens beside a SentencePiece model those of "
                       "tokenizer_config.json are read alone: " SAVE_ONE,
                       path);
    return ERR_OK;
}
