/* Tokens that files beside a tokenizer add, as transformers adds them to a tokenizer.json,
 * or to what a tokenizer.model became.
 *
 * "added_tokens_decoder" of tokenizer_config.json has a number for each. One that is
 * there already, as an added token or in the vocabulary, keeps its number, and what is
 * said of it anew counts; others follow behind all in the order of numbers. There
 * another number is passed over, or is one of two; here it is refused, for a model that
 * was trained with it would be read with another.
 *
 * Special tokens that are named there, or in special_tokens_map.json where there is no
 * such list, have no number. One that is in the vocabulary alone keeps its own. Another
 * one would get one behind all, which no model was trained with: one of a list is
 * refused, and one with a part of its own ("pad_token") is not there. */
#include "src/text/tokenizer/tokenizer_beside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/jsontext.h"

#define FILE_BYTES_MAX (256 << 20)

enum err tokenizer_beside_read(const char *path, const char *name, json_t **out)
{
    char file[FSIO_PATH_MAX];
    const char *slash = strrchr(path, '/');
    char *text = NULL;
    size_t bytes = 0;
    *out = NULL;
    TRY(fsio_path(file, "%.*s%s", slash == NULL ? 0 : (int)(slash + 1 - path),
                  path, name));
    if (!fsio_exists(file))
        return ERR_OK;
    TRY(fsio_read_file(file, FILE_BYTES_MAX, &text, &bytes));
    /* transformers writes a model_max_length of 10^30 */
    enum err rc = jsontext_object(
        text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, out);
    free(text);
    return err_prefix(rc, "%s", file);
}

/* --- tokens --- */

/* A tokenizer.json's tokens, and those that are added to them. */
struct adder {
    const json_t *vocab;
    json_t *list, *known;   /* added_tokens; their places there by texts */
    json_t *parts, *listed; /* named: for a part of their own, and others */
    json_t *special;        /* each named one's text */
    int64_t next;           /* the number behind all */
};

static const char *text_of(const json_t *said)
{
    const json_t *content = json_object_get(said, "content");
    return json_string_value(content != NULL ? content : said);
}

/* NULL: it is none, or has none. */
static json_t *added_of(const struct adder *to, const char *text)
{
    const json_t *at = json_object_get(to->known, text);
    return at == NULL
               ? NULL
               : json_array_get(to->list, (size_t)json_integer_value(at));
}

static const json_t *number_of(const struct adder *to, const char *text)
{
    const json_t *added = added_of(to, text);
    return added != NULL ? json_object_get(added, "id")
                         : json_object_get(to->vocab, text);
}

/* What is said of it, an object or its text alone, with what tokenizers' AddedToken has
 * where nothing is. Of a special one more is never less. */
static enum err put(struct adder *to, const json_t *said, const char *text,
                    int64_t number, bool named)
{
    static const char *const names[] = { "single_word", "lstrip", "rstrip",
                                         "normalized", "special" };
    int flags[5];
    const json_t *was = added_of(to, text);
    for (int i = 0; i < 5; i++) {
        const json_t *is = json_object_get(said, names[i]);
        if (is != NULL && !json_is_null(is) && !json_is_boolean(is))
            return err_set(ERR_DATA, "'%s' is neither true nor false",
                           names[i]);
        flags[i] = json_is_boolean(is) ? json_is_true(is) : -1;
    }
    flags[4] = named || flags[4] == 1;
    flags[3] = flags[3] < 0 ? !flags[4] : flags[3];
    if (json_object_get(to->special, text) != NULL ||
        json_is_true(json_object_get(was, "special")))
        flags[4] = 1;
    json_t *one = json_pack(
        "{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)number,
        "content", text, names[0], flags[0] == 1, names[1], flags[1] == 1,
        names[2], flags[2] == 1, names[3], flags[3], names[4], flags[4]);
    if (was == NULL) {
        jsontext_set(&to->known, text,
                     json_integer((json_int_t)json_array_size(to->list)));
        jsontext_append(&to->list, one);
    } else if (json_array_set_new(
                   to->list,
                   (size_t)json_integer_value(json_object_get(to->known, text)),
                   one) != 0) {
        return err_set(ERR_MEMORY, "out of memory");
    }
    return ERR_OK;
}

/* A special token that is named. */
static enum err add(struct adder *to, const json_t *said, bool listed)
{
    const char *text = text_of(said);
    const json_t *number = json_object_get(to->vocab, text);
    if (text == NULL || text[0] == '\0' || added_of(to, text) != NULL ||
        (number == NULL && !listed))
        return ERR_OK;
    if (number != NULL)
        return put(to, said, text, json_integer_value(number), true);
    return err_set(ERR_UNSUPPORTED,
                   "a file beside it adds the token '%.64s', which it "
                   "lacks: " TOKENIZER_BESIDE_REMEDY,
                   text);
}

/* --- added_tokens_decoder --- */

/* Those that are nowhere come first, as long as each has the next number; what is known
 * then has the number that the file says, or is refused. */
static enum err add_decoder(struct adder *to, json_t *decoder)
{
    char id[24];
    const char *key, *text;
    json_t *value;
    for (;; to->next++) {
        snprintf(id, sizeof id, "%lld", (long long)to->next);
        value = json_object_get(json_object_get(decoder, id), "content");
        text = json_string_value(value);
        if (text == NULL || text[0] == '\0' || number_of(to, text) != NULL)
            break;
        TRY(put(to, NULL, text, to->next, false));
    }
    json_object_foreach(decoder, key, value)
    {
        text = json_string_value(json_object_get(value, "content"));
        if (text == NULL || text[0] == '\0')
            return err_set(ERR_DATA, "%.32s: a text 'content' is expected",
                           key);
        const json_t *number = number_of(to, text);
        int64_t is = number != NULL ? json_integer_value(number) : to->next;
        snprintf(id, sizeof id, "%lld", (long long)is);
        if (number == NULL || strcmp(id, key) != 0)
            return err_set(ERR_UNSUPPORTED, "%.32s: '%.64s' is %s %s", key,
                           text,
                           number != NULL ? "the tokenizer's token"
                                          : "new, and the next number is",
                           id);
        TRY(err_prefix(put(to, value, text, is, false), "%.32s", key));
    }
    return decoder == NULL || json_is_null(decoder) || json_is_object(decoder)
               ? ERR_OK
               : err_set(ERR_DATA, "it is no object");
}

/* --- named ones --- */

static void name_one(struct adder *to, json_t *said, bool listed)
{
    if (text_of(said) == NULL)
        return;
    jsontext_append(listed ? &to->listed : &to->parts, json_incref(said));
    jsontext_set(&to->special, text_of(said), json_true());
}

static void name(const json_t *file, struct adder *to)
{
    static const char *const parts[] = { "bos_token", "eos_token", "unk_token",
                                         "sep_token", "pad_token", "cls_token",
                                         "mask_token" };
    static const char *const lists[] = { "additional_special_tokens",
                                         "extra_special_tokens" };
    const char *part;
    json_t *said, *of;
    size_t at;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        name_one(to, json_object_get(file, parts[i]), false);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        of = json_object_get(file, lists[i]);
        json_array_foreach(of, at, said) name_one(to, said, true);
        json_object_foreach(of, part, said) name_one(to, said, false);
    }
}

/* The number of a token that ends or begins texts, where a file says which. */
static enum err end_of(const struct adder *to, const json_t *file,
                       const char *key, int32_t *out)
{
    const json_t *said = json_object_get(file, key);
    const char *text = text_of(said);
    const json_t *number = text != NULL ? number_of(to, text) : NULL;
    if (said == NULL || json_is_null(said) || out == NULL)
        return ERR_OK;
    if (number == NULL)
        return err_set(ERR_UNSUPPORTED,
                       "a file beside it has the %s '%.64s', which it "
                       "lacks: " TOKENIZER_BESIDE_REMEDY,
                       key, text != NULL ? text : "?");
    *out = (int32_t)json_integer_value(number);
    return ERR_OK;
}

/* Adds them to the list of a tokenizer.json; *changed: it is another one then. */
static enum err add_all(struct adder *to, json_t *decoder, json_t **root,
                        bool *changed)
{
    size_t i;
    json_t *one, *list = json_object_get(*root, "added_tokens");
    to->vocab = json_object_get(json_object_get(*root, "model"), "vocab");
    if (!json_is_object(to->vocab))
        return ERR_OK; /* of another kind, and no tokens are made with it */
    to->list = json_is_array(list) ? json_copy(list) : json_array();
    to->known = json_object();
    to->next = (int64_t)json_object_size(to->vocab);
    json_array_foreach(to->list, i, one)
    {
        int64_t number = json_integer_value(json_object_get(one, "id"));
        if (json_is_string(json_object_get(one, "content")))
            jsontext_set(&to->known, text_of(one), json_integer((json_int_t)i));
        to->next =
            number >= to->next && number < INT32_MAX ? number + 1 : to->next;
    }
    TRY(err_prefix(add_decoder(to, decoder),
                   "what lies beside it: added_tokens_decoder"));
    json_array_foreach(to->parts, i, one) TRY(add(to, one, false));
    json_array_foreach(to->listed, i, one) TRY(add(to, one, true));
    if (to->list == NULL || to->known == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    *changed = json_array_size(to->list) > 0 && !json_equal(to->list, list);
    jsontext_set(root, "added_tokens", json_incref(to->list));
    return ERR_OK;
}

/* What tokenizer_config.json says of ends counts before the other file. */
enum err tokenizer_beside_add(const char *path, char **text, size_t *bytes,
                              int32_t *bos, int32_t *eos)
{
    enum err rc = ERR_OK;
    bool changed = false;
    char *made = NULL;
    json_t *config = NULL, *map = NULL, *root = NULL;
    struct adder to = { .parts = json_array(),
                        .listed = json_array(),
                        .special = json_object() };
    TRY_OUT(tokenizer_beside_read(path, "tokenizer_config.json", &config));
    json_t *decoder = json_object_get(config, "added_tokens_decoder");
    if (decoder == NULL)
        TRY_OUT(tokenizer_beside_read(path, "special_tokens_map.json", &map));
    name(config, &to);
    name(map, &to);
    if (to.parts == NULL || to.listed == NULL || to.special == NULL)
        TRY_OUT(err_set(ERR_MEMORY, "%s: out of memory", path));
    if (json_object_size(to.special) == 0 && decoder == NULL)
        goto out;
    rc = jsontext_object(*text, *bytes, JSON_REJECT_DUPLICATES, &root);
    rc = rc == ERR_OK ? add_all(&to, decoder, &root, &changed) : rc;
    json_t *const files[] = { map, config };
    for (int f = 0; f < 2 && to.list != NULL; f++) {
        rc = rc == ERR_OK ? end_of(&to, files[f], "bos_token", bos) : rc;
        rc = rc == ERR_OK ? end_of(&to, files[f], "eos_token", eos) : rc;
    }
    TRY_OUT(err_prefix(rc, "%s", path));
    if (!changed)
        goto out;
    TRY_OUT(jsontext_make(root, 2, &made));
    free(*text);
    *text = made;
    *bytes = strlen(made);
out:
    json_decref(to.parts);
    json_decref(to.listed);
    json_decref(to.special);
    json_decref(to.known);
    json_decref(to.list);
    json_decref(config);
    json_decref(map);
    json_decref(root);
    return rc;
}
