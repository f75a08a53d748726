/* Special tokens that tokenizer_config.json names, or special_tokens_map.json where the
 * other one has no "added_tokens_decoder", are added to a tokenizer.json by transformers.
 * One that is in the vocabulary alone keeps its number. Another one would get a number
 * behind all, which no model was trained with, so it is refused. */
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
static enum err add(json_t *said, const json_t *vocab, json_t **known,
                    json_t **added)
{
    const json_t *content = json_object_get(said, "content");
    const char *token = json_string_value(content != NULL ? content : said);
    json_t *number = json_object_get(vocab, token);
    if (token == NULL || json_object_get(*known, token) != NULL)
        return ERR_OK;
    if (number == NULL)
        return err_set(ERR_UNSUPPORTED,
                       "a file beside it adds the token '%.64s', which it "
                       "lacks: " TOKENIZER_BESIDE_REMEDY,
                       token);
    json_t *one = content != NULL ? jsontext_copy(said) : json_object();
    json_object_del(one, "__type");
    if (json_object_get(one, "normalized") == NULL)
        jsontext_set(&one, "normalized", json_false());
    jsontext_set(&one, "content", json_string(token));
    jsontext_set(&one, "special", json_true());
    jsontext_set(&one, "id", json_incref(number));
    jsontext_append(added, one);
    jsontext_set(known, token, json_true());
    return ERR_OK;
}

/* Adds those of the lists to the list of a tokenizer.json. */
static enum err add_lists(json_t *const lists[3], json_t **root)
{
    enum err rc = ERR_OK;
    size_t i;
    json_t *said, *list = json_object_get(*root, "added_tokens");
    json_t *added = json_is_array(list) ? json_incref(list) : json_array();
    json_t *known = json_object();
    const json_t *vocab =
        json_object_get(json_object_get(*root, "model"), "vocab");
    json_array_foreach(list, i, said)
    {
        const json_t *text = json_object_get(said, "content");
        if (json_is_string(text))
            jsontext_set(&known, json_string_value(text), json_true());
    }
    /* of another kind it is a list, and no tokens are made with it */
    for (int l = 0; l < 3 && json_is_object(vocab); l++)
        for (i = 0; i < json_array_size(lists[l]) && rc == ERR_OK; i++)
            rc = add(json_array_get(lists[l], i), vocab, &known, &added);
    jsontext_set(root, "added_tokens", added);
    if (known == NULL) /* out of memory: who looks at the root sees it */
        jsontext_set(root, "added_tokens", NULL);
    json_decref(known);
    return rc;
}

enum err tokenizer_beside_add(const char *path, char **text, size_t *bytes)
{
    static const char key[] = "additional_special_tokens";
    enum err rc = ERR_OK;
    char *made = NULL;
    json_t *config = NULL, *map = NULL, *root = NULL;
    TRY_OUT(tokenizer_beside_read(path, "tokenizer_config.json", &config));
    if (json_object_get(config, "added_tokens_decoder") == NULL)
        TRY_OUT(tokenizer_beside_read(path, "special_tokens_map.json", &map));
    json_t *const lists[3] = {
        json_object_get(map, key), json_object_get(config, key),
        json_object_get(config, "extra_special_tokens")
    };
    size_t named = 0, before;
    for (int l = 0; l < 3; l++)
        named += json_array_size(lists[l]);
    if (named == 0)
        goto out;
    rc = jsontext_object(*text, *bytes, JSON_REJECT_DUPLICATES, &root);
    before = json_array_size(json_object_get(root, "added_tokens"));
    rc = rc == ERR_OK ? add_lists(lists, &root) : rc;
    TRY_OUT(err_prefix(rc, "%s", path));
    if (json_array_size(json_object_get(root, "added_tokens")) == before &&
        root != NULL)
        goto out;
    TRY_OUT(jsontext_make(root, 2, &made));
    free(*text);
    *text = made;
    *bytes = strlen(made);
out:
    json_decref(config);
    json_decref(map);
    json_decref(root);
    return rc;
}
