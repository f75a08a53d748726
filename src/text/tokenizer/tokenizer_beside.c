/* Special tokens that tokenizer_config.json names, or special_tokens_map.json where the
 * other one has no "added_tokens_decoder", are added to a tokenizer.json by transformers.
 * One that is in the vocabulary alone keeps its number. Another one would get a number
 * behind all, which no model was trained with: one of a list is refused, and one with a
 * part of its own ("pad_token") is not there. */
#include "src/text/tokenizer/tokenizer_beside.h"

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

/* Adds a token that a file names, by its text or with what is said of it. */
static enum err add(json_t *said, bool listed, const json_t *vocab,
                    json_t **known, json_t **added)
{
    const json_t *content = json_object_get(said, "content");
    const char *token = json_string_value(content != NULL ? content : said);
    json_t *number = json_object_get(vocab, token);
    if (token == NULL || token[0] == '\0' ||
        json_object_get(*known, token) != NULL || (number == NULL && !listed))
        return ERR_OK;
    if (number == NULL)
        return err_set(ERR_UNSUPPORTED,
                       "a file beside it adds the token '%.64s', which it "
                       "lacks: " TOKENIZER_BESIDE_REMEDY,
                       token);
    json_t *one = content != NULL ? jsontext_copy(said) : json_object();
    json_object_del(one, "__type");
    if (!json_is_boolean(json_object_get(one, "normalized")))
        jsontext_set(&one, "normalized", json_false());
    jsontext_set(&one, "content", json_string(token));
    jsontext_set(&one, "special", json_true());
    jsontext_set(&one, "id", json_incref(number));
    jsontext_append(added, one);
    jsontext_set(known, token, json_true());
    return ERR_OK;
}

/* Those with a part of their own, and those that are but listed. */
struct named {
    json_t *parts, *listed;
};

static void name(const json_t *file, struct named *out)
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
        if ((said = json_object_get(file, parts[i])) != NULL)
            jsontext_append(&out->parts, json_incref(said));
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        of = json_object_get(file, lists[i]);
        json_array_foreach(of, at, said)
            jsontext_append(&out->listed, json_incref(said));
        json_object_foreach(of, part, said)
            jsontext_append(&out->parts, json_incref(said));
    }
}

/* Adds them to the list of a tokenizer.json. */
static enum err add_named(const struct named *named, json_t **root)
{
    enum err rc = ERR_OK;
    size_t i;
    json_t *said, *list = json_object_get(*root, "added_tokens");
    json_t *added = json_is_array(list) ? json_incref(list) : json_array();
    json_t *known = json_object();
    json_t *const lists[] = { named->parts, named->listed };
    const json_t *vocab =
        json_object_get(json_object_get(*root, "model"), "vocab");
    json_array_foreach(list, i, said)
    {
        const json_t *text = json_object_get(said, "content");
        if (json_is_string(text))
            jsontext_set(&known, json_string_value(text), json_true());
    }
    /* of another kind it is a list, and no tokens are made with it */
    for (int l = 0; l < 2 && json_is_object(vocab); l++)
        for (i = 0; i < json_array_size(lists[l]) && rc == ERR_OK; i++)
            rc =
                add(json_array_get(lists[l], i), l == 1, vocab, &known, &added);
    jsontext_set(root, "added_tokens", added);
    if (known == NULL) /* out of memory: who looks at the root sees it */
        jsontext_set(root, "added_tokens", NULL);
    json_decref(known);
    return rc;
}

enum err tokenizer_beside_add(const char *path, char **text, size_t *bytes)
{
    enum err rc = ERR_OK;
    char *made = NULL;
    json_t *config = NULL, *map = NULL, *root = NULL;
    struct named named = { json_array(), json_array() };
    size_t before;
    TRY_OUT(tokenizer_beside_read(path, "tokenizer_config.json", &config));
    if (json_object_get(config, "added_tokens_decoder") == NULL)
        TRY_OUT(tokenizer_beside_read(path, "special_tokens_map.json", &map));
    name(config, &named);
    name(map, &named);
    if (named.parts == NULL || named.listed == NULL)
        TRY_OUT(err_set(ERR_MEMORY, "%s: out of memory", path));
    if (json_array_size(named.parts) + json_array_size(named.listed) == 0)
        goto out;
    rc = jsontext_object(*text, *bytes, JSON_REJECT_DUPLICATES, &root);
    before = json_array_size(json_object_get(root, "added_tokens"));
    rc = rc == ERR_OK ? add_named(&named, &root) : rc;
    TRY_OUT(err_prefix(rc, "%s", path));
    if (json_array_size(json_object_get(root, "added_tokens")) == before &&
        root != NULL)
        goto out;
    TRY_OUT(jsontext_make(root, 2, &made));
    free(*text);
    *text = made;
    *bytes = strlen(made);
out:
    json_decref(named.parts);
    json_decref(named.listed);
    json_decref(config);
    json_decref(map);
    json_decref(root);
    return rc;
}
