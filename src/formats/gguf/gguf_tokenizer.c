/* A tokenizer.json, tokenizer_config.json and chat template of a GGUF file.
 *
 * The file has three arrays: tokens by number, a type for each, and merges as
 * "LEFT RIGHT". Of these the vocabulary and the merges of a byte-level BPE are
 * made as they are, tokens of the types control and unknown become special
 * ones. Which words a text is divided into is not in the file, just a name for
 * it (gguf_tokenizer_pre.c). From there on it is a tokenizer like any: what is
 * made here is text, and is loaded as a folder's file is, so there is one
 * loader, and an imported model carries a file that other programs can read. */
#include "src/formats/gguf/gguf_tokenizer.h"

#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/base/jsontext.h"
#include "src/formats/gguf/gguf_tokenizer_pre.h"
#include "src/text/tokenizer/bpe_train.h"
#include "src/text/unicode.h"

#define KEY(name) "tokenizer.ggml." name
#define TOKENS_MAX (1 << 22) /* and merges */

enum token_type { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

/* A token with a part to play; number -1: there is none. */
struct token_role {
    int64_t number;
    struct gguf_value text;
};

struct maker {
    const struct gguf *gguf;
    const struct gguf_tokenizer_pre *pre;
    struct token_role bos, eos, pad;
    bool add_bos, add_eos;
    uint64_t count; /* of tokens, with holes */
    json_t *vocab, *merges, *added;
};

/* A piece of text that JSON can have. */
static enum err maker_text(const struct maker *maker, const char *what,
                           uint64_t number, const struct gguf_value *text)
{
    size_t bytes = (size_t)text->count;
    if (unicode_valid(text->data, bytes) == bytes &&
        (bytes == 0 || memchr(text->data, '\0', bytes) == NULL))
        return ERR_OK;
    return err_set(ERR_DATA,
                   "%s: %s %" PRIu64 " is no text: not UTF-8, or a "
                   "NUL in it",
                   maker->gguf->path, what, number);
}

static enum err maker_memory(const struct maker *maker)
{
    return err_set(ERR_MEMORY, "%s: no memory for its tokenizer",
                   maker->gguf->path);
}

static enum err maker_kind(struct maker *maker)
{
    const char *name = NULL;
    char names[256];
    size_t bytes = 0;
    const char *path = maker->gguf->path;
    TRY(gguf_get_string(maker->gguf, KEY("model"), &name, &bytes));
    if (bytes != 4 || memcmp(name, "gpt2", 4) != 0)
        return err_set(ERR_UNSUPPORTED,
                       "%s: a tokenizer of the kind '%.*s' can't be read; "
                       "there is: gpt2",
                       path, (int)(bytes < 64 ? bytes : 64), name);
    gguf_tokenizer_pre_names(names, sizeof names);
    if (gguf_find(maker->gguf, KEY("pre")) == NULL)
        return err_set(ERR_UNSUPPORTED,
                       "%s: it does not say how texts are divided: convert it "
                       "again, so that it has " KEY("pre") ", one of: %s",
                       path, names);
    TRY(gguf_get_string(maker->gguf, KEY("pre"), &name, &bytes));
    maker->pre = gguf_tokenizer_pre_find(name, bytes);
    if (maker->pre == NULL)
        return err_set(ERR_UNSUPPORTED,
                       "%s: the pre-tokenizer '%.*s' is not known; there is: "
                       "%s",
                       path, (int)(bytes < 64 ? bytes : 64), name, names);
    return ERR_OK;
}

static enum err maker_role(const struct maker *maker, const char *key,
                           uint64_t tokens, struct token_role *role)
{
    uint64_t number = 0;
    role->number = -1;
    if (gguf_find(maker->gguf, key) == NULL)
        return ERR_OK;
    TRY(gguf_get_count(maker->gguf, key, &number));
    if (number >= tokens)
        return err_set(
            ERR_DATA, "%s: %s is %" PRIu64 ", but there are %" PRIu64 " tokens",
            maker->gguf->path, key, number, tokens);
    role->number = (int64_t)number;
    return ERR_OK;
}

static enum err maker_flag(const struct maker *maker, const char *key,
                           const struct token_role *role, bool standard,
                           bool *out)
{
    bool said = gguf_find(maker->gguf, key) != NULL;
    /* what llama.cpp does for this name where the file does not say */
    *out = standard && role->number >= 0;
    if (said)
        TRY(gguf_get_bool(maker->gguf, key, out));
    return !*out || role->number >= 0
               ? ERR_OK
               : err_set(ERR_DATA, "%s: %s is true, but no such token is named",
                         maker->gguf->path, key);
}

static enum err maker_added(struct maker *maker, uint64_t number,
                            const struct gguf_value *text, int64_t type)
{
    json_t *token = json_pack(
        "{s:I, s:o, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)number,
        "content", json_stringn((const char *)text->data, (size_t)text->count),
        "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special",
        (int)(type != USER_DEFINED));
    return json_array_append_new(maker->added, token) == 0
               ? ERR_OK
               : maker_memory(maker);
}

/* What converters call a row of the embedding that the tokenizer has no token
 * for. */
static bool maker_is_hole(uint64_t number, const struct gguf_value *text)
{
    char name[32];
    int bytes = snprintf(name, sizeof name, "[PAD%" PRIu64 "]", number);
    return text->count == (uint64_t)bytes &&
           memcmp(text->data, name, (size_t)bytes) == 0;
}

static enum err maker_token(struct maker *maker, uint64_t number,
                            const struct gguf_value *text, int64_t type)
{
    const char *at = (const char *)text->data;
    size_t bytes = (size_t)text->count;
    TRY(maker_text(maker, "token", number, text));
    if (type < NORMAL || type > BYTE)
        return err_set(ERR_DATA,
                       "%s: token %" PRIu64 " has the type %" PRId64
                       ", which is not known",
                       maker->gguf->path, number, type);
    if (type == UNUSED && maker_is_hole(number, text))
        return ERR_OK;
    const json_t *other = json_object_getn(maker->vocab, at, bytes);
    if (other != NULL)
        return err_set(ERR_DATA,
                       "%s: tokens %" JSON_INTEGER_FORMAT " and %" PRIu64
                       " have the same text '%.*s'",
                       maker->gguf->path, json_integer_value(other), number,
                       (int)(bytes < 64 ? bytes : 64), at);
    if (json_object_setn_new(maker->vocab, at, bytes,
                             json_integer((json_int_t)number)) != 0)
        return maker_memory(maker);
    if (type == UNKNOWN || type == CONTROL || type == USER_DEFINED)
        TRY(maker_added(maker, number, text, type));
    if (maker->bos.number == (int64_t)number)
        maker->bos.text = *text;
    if (maker->eos.number == (int64_t)number)
        maker->eos.text = *text;
    if (maker->pad.number == (int64_t)number)
        maker->pad.text = *text;
    return ERR_OK;
}

static enum err maker_tokens(struct maker *maker)
{
    struct gguf_value tokens, types = { .kind = GGUF_ARRAY }, text, type;
    const struct gguf *gguf = maker->gguf;
    TRY(gguf_get_array(gguf, KEY("tokens"), GGUF_STRING, &tokens));
    bool typed = gguf_find(gguf, KEY("token_type")) != NULL;
    if (typed)
        TRY(gguf_get_array(gguf, KEY("token_type"), GGUF_I32, &types));
    if (tokens.count == 0 || tokens.count > TOKENS_MAX ||
        (typed && types.count != tokens.count))
        return err_set(ERR_DATA,
                       "%s: %" PRIu64 " tokens and %" PRIu64
                       " types of tokens: as many are expected, at most %d",
                       gguf->path, tokens.count, types.count, TOKENS_MAX);
    maker->count = tokens.count;
    TRY(maker_role(maker, KEY("bos_token_id"), tokens.count, &maker->bos));
    TRY(maker_role(maker, KEY("eos_token_id"), tokens.count, &maker->eos));
    if (maker_role(maker, KEY("padding_token_id"), tokens.count, &maker->pad) !=
        ERR_OK)
        maker->pad.number = -1; /* as some converters have written it */
    TRY(maker_flag(maker, KEY("add_bos_token"), &maker->bos, maker->pre->bos,
                   &maker->add_bos));
    TRY(maker_flag(maker, KEY("add_eos_token"), &maker->eos, false,
                   &maker->add_eos));
    /* types may be missing: then all tokens are found by merges */
    for (uint64_t i = 0; gguf_value_next(&tokens, &text); i++) {
        int64_t number = NORMAL;
        if (typed && gguf_value_next(&types, &type))
            gguf_value_whole(&type, &number);
        TRY(maker_token(maker, i, &text, number));
    }
    return ERR_OK;
}

/* "LEFT RIGHT", none of them empty. */
static enum err maker_pair(const struct maker *maker, uint64_t number,
                           const struct gguf_value *text)
{
    const char *from = (const char *)text->data;
    TRY(maker_text(maker, "merge", number, text));
    return text->count > 2 &&
                   memchr(from + 1, ' ', (size_t)text->count - 2) != NULL
               ? ERR_OK
               : err_set(ERR_DATA,
                         "%s: merge %" PRIu64 " is not \"LEFT RIGHT\", with a "
                         "blank between them",
                         maker->gguf->path, number);
}

static enum err maker_merges(struct maker *maker)
{
    struct gguf_value merges, text;
    TRY(gguf_get_array(maker->gguf, KEY("merges"), GGUF_STRING, &merges));
    if (merges.count > TOKENS_MAX)
        return err_set(ERR_DATA, "%s: %" PRIu64 " merges, at most %d are read",
                       maker->gguf->path, merges.count, TOKENS_MAX);
    for (uint64_t i = 0; gguf_value_next(&merges, &text); i++) {
        TRY(maker_pair(maker, i, &text));
        if (json_array_append_new(
                maker->merges,
                json_stringn((const char *)text.data, (size_t)text.count)) != 0)
            return maker_memory(maker);
    }
    return ERR_OK;
}

/* NULL: there is no such token. */
static json_t *maker_string(const struct token_role *role)
{
    return role->number < 0 ? NULL
                            : json_stringn((const char *)role->text.data,
                                           (size_t)role->text.count);
}

/* {"SpecialToken": ..} of a template, and what it stands for. */
static void maker_special(const struct token_role *role, json_t **pieces,
                          json_t **specials)
{
    json_t *name = maker_string(role);
    jsontext_append(pieces, json_pack("{s:{s:O, s:i}}", "SpecialToken", "id",
                                      name, "type_id", 0));
    jsontext_set_part(specials, (const char *)role->text.data,
                      (size_t)role->text.count,
                      json_pack("{s:O, s:[I], s:[O]}", "id", name, "ids",
                                (json_int_t)role->number, "tokens", name));
    json_decref(name);
}

static json_t *maker_post(const struct maker *maker)
{
    if (!maker->add_bos && !maker->add_eos)
        return bpe_train_byte_level(false, true);
    json_t *single = json_array(), *specials = json_object();
    if (maker->add_bos)
        maker_special(&maker->bos, &single, &specials);
    jsontext_append(&single, json_pack("{s:{s:s, s:i}}", "Sequence", "id", "A",
                                       "type_id", 0));
    if (maker->add_eos)
        maker_special(&maker->eos, &single, &specials);
    /* of two texts: nothing here encodes pairs, but the format wants one */
    json_t *pair = json_deep_copy(single);
    jsontext_append(&pair, json_pack("{s:{s:s, s:i}}", "Sequence", "id", "B",
                                     "type_id", 1));
    return json_pack("{s:s, s:[o, {s:s, s:o, s:o, s:o}]}", "type", "Sequence",
                     "processors", bpe_train_byte_level(false, true), "type",
                     "TemplateProcessing", "single", single, "pair", pair,
                     "special_tokens", specials);
}

static enum err maker_json(const struct maker *maker, char **text)
{
    json_t *root = json_pack(
        "{s:s, s:n, s:n, s:O, s:o, s:o, s:o, s:o, s:{s:s, s:n, s:n, s:n, s:n, "
        "s:b, s:b, s:b, s:O, s:O}}",
        "version", "1.0", "truncation", "padding", "added_tokens", maker->added,
        "normalizer", gguf_tokenizer_pre_normalizer(maker->pre),
        "pre_tokenizer", gguf_tokenizer_pre_tokenizer(maker->pre),
        "post_processor", maker_post(maker), "decoder",
        bpe_train_byte_level(false, true), "model", "type", "BPE", "dropout",
        "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
        "fuse_unk", 0, "byte_fallback", 0, "ignore_merges",
        (int)maker->pre->whole, "vocab", maker->vocab, "merges", maker->merges);
    *text = root == NULL ? NULL : json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    return *text != NULL ? ERR_OK : maker_memory(maker);
}

static enum err maker_config(const struct maker *maker, char **text)
{
    json_t *root =
        bpe_train_config(maker_string(&maker->bos), maker_string(&maker->eos),
                         maker_string(&maker->pad));
    *text = root == NULL ? NULL : json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    return *text != NULL ? ERR_OK : maker_memory(maker);
}

static enum err maker_chat(const struct maker *maker, char **text)
{
    static const char key[] = "tokenizer.chat_template";
    const struct gguf_value *value = gguf_find(maker->gguf, key);
    const char *from = NULL;
    size_t bytes = 0;
    if (value == NULL)
        return ERR_OK;
    TRY(gguf_get_string(maker->gguf, key, &from, &bytes));
    TRY(maker_text(maker, "key tokenizer.chat_template", 0, value));
    return new_text_part(text, from, bytes);
}

enum err gguf_tokenizer_make(const struct gguf *gguf,
                             struct gguf_tokenizer *out)
{
    assert(gguf != NULL && out != NULL);
    enum err rc = ERR_OK;
    struct gguf_tokenizer made = { NULL };
    struct maker maker = { .gguf = gguf,
                           .vocab = json_object(),
                           .merges = json_array(),
                           .added = json_array() };
    TRY_OUT(maker_kind(&maker));
    TRY_OUT(maker_tokens(&maker));
    TRY_OUT(maker_merges(&maker));
    TRY_OUT(maker_json(&maker, &made.tokenizer));
    TRY_OUT(maker_config(&maker, &made.config));
    TRY_OUT(gguf_generation_make(gguf, maker.count, &made.generation));
    TRY_OUT(maker_chat(&maker, &made.chat));
    *out = made;
    made = (struct gguf_tokenizer){ NULL };
out:
    gguf_tokenizer_free(&made);
    json_decref(maker.vocab);
    json_decref(maker.merges);
    json_decref(maker.added);
    return rc;
}

void gguf_tokenizer_free(struct gguf_tokenizer *tokenizer)
{
    free(tokenizer->tokenizer);
    free(tokenizer->config);
    free(tokenizer->generation);
    free(tokenizer->chat);
    *tokenizer = (struct gguf_tokenizer){ NULL };
}
