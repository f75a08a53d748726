/* The files beside a model's weights: read, and asked for the tokens that have
 * a part to play. Whether the tokenizer can be used is src/text's matter.
 *
 * Four files may say which tokens begin and end texts, and in published models
 * they disagree. Numbers count before names, as transformers itself generates
 * by them and has written wrong names when it converted GGUF files: first those
 * of generation_config.json, then those of config.json, then the names of
 * tokenizer_config.json. Where a name and a number differ both are handed on,
 * so that who makes something lasting of it can warn. */
#include "src/formats/hf/hf_files.h"

#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/jsontext.h"
#include "src/base/new.h"

#define MIB ((size_t)1 << 20)

static const struct {
    const char *name;
    size_t bytes_max;
} hf_files[HF_FILES] = {
    [HF_FILE_TOKENIZER] = { "tokenizer.json", 256 * MIB },
    [HF_FILE_TOKENIZER_CONFIG] = { "tokenizer_config.json", 64 * MIB },
    [HF_FILE_CHAT_TEMPLATE] = { "chat_template.jinja", MIB },
    [HF_FILE_GENERATION_CONFIG] = { "generation_config.json", MIB },
};

const char *hf_files_name(enum hf_file file)
{
    return hf_files[file].name;
}

static enum err load(const char *text, size_t bytes, const char *where,
                     const char *name, size_t flags, json_t **out)
{
    enum err rc =
        jsontext_object(text, bytes, JSON_REJECT_DUPLICATES | flags, out);
    return rc == ERR_OK ? rc : err_prefix(rc, "%s: %s", where, name);
}

/* One of the texts; *out stays NULL where there is none. */
static enum err load_file(const struct hf_files *files, enum hf_file file,
                          const char *where, json_t **out)
{
    if (files->text[file] == NULL)
        return ERR_OK;
    /* no number of this one is looked at, and its model_max_length may be 1e30
     * as a whole number */
    return load(
        files->text[file], files->bytes[file], where, hf_files_name(file),
        file == HF_FILE_TOKENIZER_CONFIG ? JSON_DECODE_INT_AS_REAL : 0, out);
}

/* --- reading --- */

/* Several templates have names; the one to talk with is "default". */
static const json_t *default_template(const json_t *value)
{
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name != NULL && strcmp(name, "default") == 0)
            return json_object_get(item, "template");
    }
    return value;
}

static enum err template_within(const char *folder, struct hf_files *files)
{
    json_t *config = NULL;
    enum err rc = load_file(files, HF_FILE_TOKENIZER_CONFIG, folder, &config);
    const json_t *value =
        default_template(json_object_get(config, "chat_template"));
    if (rc == ERR_OK && json_is_string(value)) {
        files->bytes[HF_FILE_CHAT_TEMPLATE] = json_string_length(value);
        rc = new_text(&files->text[HF_FILE_CHAT_TEMPLATE],
                      json_string_value(value));
    } else if (rc == ERR_OK && value != NULL && !json_is_null(value)) {
        rc = err_set(ERR_DATA,
                     "%s/%s: chat_template is neither a text nor a list with "
                     "one named \"default\"",
                     folder, hf_files_name(HF_FILE_TOKENIZER_CONFIG));
    }
    json_decref(config);
    return rc;
}

enum err hf_files_read(const char *folder, struct hf_files *files)
{
    assert(folder != NULL && files != NULL);
    char path[FSIO_PATH_MAX];
    for (int i = 0; i < HF_FILES; i++) {
        TRY(fsio_path(path, "%s/%s", folder, hf_files[i].name));
        if (fsio_exists(path))
            TRY(fsio_read_file(path, hf_files[i].bytes_max, &files->text[i],
                               &files->bytes[i]));
    }
    /* a file of its own counts before a member of another */
    if (files->text[HF_FILE_CHAT_TEMPLATE] == NULL)
        TRY(template_within(folder, files));
    return ERR_OK;
}

void hf_files_free(struct hf_files *files)
{
    for (int i = 0; i < HF_FILES; i++)
        free(files->text[i]);
    *files = (struct hf_files){ .text = { NULL } };
}

/* --- tokens --- */

/* The vocabulary of a tokenizer.json: an object of numbers by text, or a list
 * of [text, score]. */
struct vocabulary {
    const char *where;
    json_t *root;
    const json_t *vocab, *added;
};

static enum err open_vocabulary(const struct hf_files *files, const char *where,
                                struct vocabulary *out)
{
    *out = (struct vocabulary){ .where = where };
    TRY(load_file(files, HF_FILE_TOKENIZER, where, &out->root));
    out->vocab = json_object_get(json_object_get(out->root, "model"), "vocab");
    out->added = json_object_get(out->root, "added_tokens");
    /* BPE has an object there, Unigram a list */
    if (out->root != NULL && !json_is_object(out->vocab) &&
        !json_is_array(out->vocab))
        return err_set(ERR_DATA, "%s: %s: no model.vocab", where,
                       hf_files_name(HF_FILE_TOKENIZER));
    return ERR_OK;
}

static enum err token_number(const struct vocabulary *v, const json_t *value,
                             int64_t *out)
{
    *out = json_integer_value(value);
    if (json_is_integer(value) && *out >= 0 && *out < INT32_MAX)
        return ERR_OK;
    return err_set(ERR_DATA,
                   "%s: %s: a token's number is no whole number from "
                   "0 to %d",
                   v->where, hf_files_name(HF_FILE_TOKENIZER), INT32_MAX - 1);
}

static enum err count_tokens(const struct vocabulary *v, int64_t *count)
{
    const char *key;
    const json_t *value;
    int64_t number;
    /* a list has numbers by place; an object may have holes, and added tokens
     * lie behind or within: one more than the highest counts */
    *count = (int64_t)json_array_size(v->vocab);
    json_object_foreach((json_t *)v->vocab, key, value)
    {
        TRY(token_number(v, value, &number));
        *count = number >= *count ? number + 1 : *count;
    }
    for (size_t i = 0; i < json_array_size(v->added); i++) {
        TRY(token_number(v, json_object_get(json_array_get(v->added, i), "id"),
                         &number));
        *count = number >= *count ? number + 1 : *count;
    }
    return ERR_OK;
}

static const char *list_text(const json_t *list, size_t i)
{
    const json_t *item = json_array_get(list, i);
    const char *content = json_string_value(json_object_get(item, "content"));
    return content != NULL ? content
                           : json_string_value(json_array_get(item, 0));
}

/* -1: there is none. */
static int64_t find_token(const struct vocabulary *v, const char *text)
{
    for (size_t i = 0; i < json_array_size(v->added); i++) {
        const char *content = list_text(v->added, i);
        if (content != NULL && strcmp(content, text) == 0)
            return json_integer_value(
                json_object_get(json_array_get(v->added, i), "id"));
    }
    for (size_t i = 0; i < json_array_size(v->vocab); i++) {
        const char *content = list_text(v->vocab, i);
        if (content != NULL && strcmp(content, text) == 0)
            return (int64_t)i;
    }
    const json_t *number = json_object_get(v->vocab, text);
    return number == NULL ? -1 : json_integer_value(number);
}

static const char *find_text(const struct vocabulary *v, int32_t token)
{
    const char *key;
    const json_t *value;
    for (size_t i = 0; i < json_array_size(v->added); i++)
        if (json_integer_value(
                json_object_get(json_array_get(v->added, i), "id")) == token)
            return list_text(v->added, i);
    if (token >= 0 && (size_t)token < json_array_size(v->vocab))
        return list_text(v->vocab, (size_t)token);
    json_object_foreach((json_t *)v->vocab, key, value)
    {
        if (json_integer_value(value) == token)
            return key;
    }
    return NULL;
}

/* The token that tokenizer_config.json names: a text, or an object with a
 * "content"; *out stays where it names none. */
static enum err named_token(const struct vocabulary *v, const json_t *config,
                            const char *key, int32_t *out)
{
    const json_t *value = json_object_get(config, key);
    if (json_is_object(value))
        value = json_object_get(value, "content");
    if (value == NULL || json_is_null(value) || v->root == NULL)
        return ERR_OK;
    int64_t token =
        json_is_string(value) ? find_token(v, json_string_value(value)) : -1;
    if (token < 0)
        return err_set(ERR_UNSUPPORTED,
                       "%s: %s: %s is '%.100s', which is no token of "
                       "%s",
                       v->where, hf_files_name(HF_FILE_TOKENIZER_CONFIG), key,
                       json_is_string(value) ? json_string_value(value) : "?",
                       hf_files_name(HF_FILE_TOKENIZER));
    *out = (int32_t)token;
    return ERR_OK;
}

/* A number, or of a list of them the one that is named, or else the first; -1:
 * there is none. */
static enum err numbered_token(const json_t *root, const char *key,
                               const char *where, int32_t named, int32_t *out)
{
    const json_t *value = json_object_get(root, key);
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    *out = -1;
    for (size_t i = 0; i < count && value != NULL; i++) {
        const json_t *item =
            json_is_array(value) ? json_array_get(value, i) : value;
        int64_t number = json_integer_value(item);
        if (json_is_null(item))
            continue;
        if (!json_is_integer(item) || number < 0 || number >= INT32_MAX)
            return err_set(ERR_DATA, "%s: %s is no number of a token", where,
                           key);
        /* of several ends the one that has the name */
        if (*out < 0 || number == named)
            *out = (int32_t)number;
    }
    return ERR_OK;
}

/* What decides about tokens. */
struct sources {
    const char *where;
    struct vocabulary vocabulary;
    json_t *named;      /* tokenizer_config.json */
    json_t *generation; /* generation_config.json */
    json_t *config;     /* config.json; each may be NULL */
};

static enum err choose_token(const struct sources *s, const char *name,
                             const char *number, int32_t *out, int32_t *other)
{
    int32_t named = -1, chosen = -1;
    TRY(named_token(&s->vocabulary, s->named, name, &named));
    TRY(numbered_token(s->generation, number, s->where, named, &chosen));
    if (chosen < 0)
        TRY(numbered_token(s->config, number, s->where, named, &chosen));
    *out = chosen >= 0 ? chosen : named;
    *other = chosen == named ? -1 : chosen >= 0 ? named : -1;
    return ERR_OK;
}

/* Files of other programs have numbers here that mean none. */
static int32_t choose_padding(const struct sources *s, int64_t vocab)
{
    const json_t *roots[] = { s->generation, s->config };
    const json_t *name = json_object_get(s->named, "pad_token");
    if (json_is_object(name))
        name = json_object_get(name, "content");
    int64_t token = json_is_string(name) && s->vocabulary.root != NULL
                        ? find_token(&s->vocabulary, json_string_value(name))
                        : -1;
    for (size_t i = 0; i < 2 && token < 0; i++) {
        const json_t *number = json_object_get(roots[i], "pad_token_id");
        token = json_is_integer(number) ? json_integer_value(number) : -1;
    }
    return token >= 0 && token < vocab ? (int32_t)token : -1;
}

static enum err choose_tokens(const struct sources *s, struct hf_tokens *out)
{
    bool any = s->vocabulary.root != NULL;
    if (any)
        TRY(count_tokens(&s->vocabulary, &out->vocab));
    TRY(choose_token(s, "bos_token", "bos_token_id", &out->bos,
                     &out->named_bos));
    TRY(choose_token(s, "eos_token", "eos_token_id", &out->eos,
                     &out->named_eos));
    out->pad = choose_padding(s, any ? out->vocab : INT32_MAX);
    int32_t highest = out->bos > out->eos ? out->bos : out->eos;
    if (any && highest >= out->vocab)
        return err_set(ERR_DATA,
                       "%s: token %d begins or ends texts, but %s has %lld "
                       "tokens",
                       s->where, highest, hf_files_name(HF_FILE_TOKENIZER),
                       (long long)out->vocab);
    return ERR_OK;
}

/* transformers takes from config.json what the other file does not say. */
static enum err make_generation(const struct sources *s, char **text)
{
    static const char *const keys[] = { "bos_token_id", "eos_token_id",
                                        "pad_token_id" };
    enum err rc = ERR_OK;
    json_t *root =
        s->generation != NULL ? jsontext_copy(s->generation) : json_object();
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const json_t *said = json_object_get(root, keys[k]);
        json_t *value = json_object_get(s->config, keys[k]);
        if ((said == NULL || json_is_null(said)) && value != NULL &&
            !json_is_null(value))
            jsontext_set(&root, keys[k], json_incref(value));
    }
    if (root == NULL || json_object_size(root) > 0)
        rc = jsontext_make(root, 2, text);
    json_decref(root);
    return rc;
}

enum err hf_files_tokens(const struct hf_files *files, const char *where,
                         const char *config, size_t config_bytes,
                         struct hf_tokens *out)
{
    assert(files != NULL && where != NULL && out != NULL);
    enum err rc = ERR_OK;
    struct sources s = { .where = where };
    *out = (struct hf_tokens){ .vocab = 0 };
    TRY_OUT(open_vocabulary(files, where, &s.vocabulary));
    TRY_OUT(load_file(files, HF_FILE_TOKENIZER_CONFIG, where, &s.named));
    TRY_OUT(load_file(files, HF_FILE_GENERATION_CONFIG, where, &s.generation));
    if (config != NULL)
        TRY_OUT(load(config, config_bytes, where, "config.json", 0, &s.config));
    TRY_OUT(choose_tokens(&s, out));
    TRY_OUT(make_generation(&s, &out->generation));
out:
    json_decref(s.config);
    json_decref(s.generation);
    json_decref(s.named);
    json_decref(s.vocabulary.root);
    return rc;
}

enum err hf_files_token_text(const struct hf_files *files, const char *where,
                             int32_t token, bool added_only, char **text)
{
    assert(files != NULL && where != NULL && text != NULL);
    struct vocabulary vocabulary;
    enum err rc = open_vocabulary(files, where, &vocabulary);
    vocabulary.vocab = added_only ? NULL : vocabulary.vocab;
    const char *found = rc == ERR_OK ? find_text(&vocabulary, token) : NULL;
    *text = NULL;
    if (found != NULL)
        rc = new_text(text, found);
    json_decref(vocabulary.root);
    return rc;
}
