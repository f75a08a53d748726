/* The two tables: keys of tokens, and of sampling, of which each is read and
 * written.
 *
 * A GGUF file has a key for each of three tokens that end a text (of a text, of
 * a turn, of a message), where generation_config.json has a list. It knows no
 * "do_sample": a temperature of 0 is the choice of the likeliest token. */
#include "src/formats/gguf/gguf_tokenizer.h"

#include <assert.h>
#include <jansson.h>
#include <string.h>

#include "src/base/jsontext.h"
#include "src/base/log.h"
#include "src/formats/gguf/gguf_config.h"

#define KEY(name) "tokenizer.ggml." name
#define ENDS (sizeof ends / sizeof ends[0])
#define DRAWS (sizeof draws / sizeof draws[0])

static const char *const ends[] = { KEY("eos_token_id"), KEY("eot_token_id"),
                                    KEY("eom_token_id") };
static const struct {
    const char *key, *name; /* of the file; of generation_config.json */
    double neutral;         /* where it is not said */
    enum gguf_kind kind;
} draws[] = {
    { "general.sampling.temp", "temperature", 1, GGUF_F32 }, /* 0: greedy */
    { "general.sampling.top_k", "top_k", 0, GGUF_I32 },      /* 0: all tokens */
    { "general.sampling.top_p", "top_p", 1, GGUF_F32 },      /* 1: all tokens */
    { "general.sampling.min_p", "min_p", 0, GGUF_F32 },      /* 0: all tokens */
    { "general.sampling.penalty_repeat", "repetition_penalty", 1, GGUF_F32 },
};

/* --- reading --- */

/* -1: there is none. */
static int64_t generation_token(const struct gguf *gguf, const char *key,
                                uint64_t tokens)
{
    uint64_t number = 0;
    return gguf_find(gguf, key) != NULL &&
                   gguf_get_count(gguf, key, &number) == ERR_OK &&
                   number < tokens
               ? (int64_t)number
               : -1;
}

static bool generation_has(const json_t *list, int64_t token)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_array_get(list, i)) == token)
            return true;
    return false;
}

static enum err generation_draws(const struct gguf *gguf, json_t **root)
{
    double value = 1;
    for (size_t d = 0; d < DRAWS; d++) {
        if (gguf_find(gguf, draws[d].key) == NULL)
            continue;
        TRY(gguf_get_real(gguf, draws[d].key, &value));
        if (d == 0)
            jsontext_set(root, "do_sample", json_boolean(value > 0));
        if (d == 0 && !(value > 0))
            continue;
        jsontext_set(root, draws[d].name,
                     draws[d].kind == GGUF_I32
                         ? json_integer(value < 0 ? 0 : (json_int_t)value)
                         : json_real(gguf_config_shortest(value)));
    }
    return ERR_OK;
}

enum err gguf_generation_make(const struct gguf *gguf, uint64_t tokens,
                              char **text)
{
    assert(gguf != NULL && text != NULL);
    enum err rc = ERR_OK;
    json_t *root = json_object(), *list = json_array();
    int64_t pad = generation_token(gguf, KEY("padding_token_id"), tokens);
    *text = NULL;
    for (size_t e = 0; e < ENDS; e++) {
        int64_t token = generation_token(gguf, ends[e], tokens);
        if (token >= 0 && !generation_has(list, token))
            jsontext_append(&list, json_integer(token));
    }
    if (list == NULL)
        TRY_OUT(err_set(ERR_MEMORY, "out of memory"));
    /* one end is a number, several are a list */
    if (json_array_size(list) > 0)
        jsontext_set(&root, "eos_token_id",
                     json_incref(json_array_size(list) > 1
                                     ? list
                                     : json_array_get(list, 0)));
    if (pad >= 0)
        jsontext_set(&root, "pad_token_id", json_integer(pad));
    TRY_OUT(generation_draws(gguf, &root));
    if (root == NULL || json_object_size(root) > 0)
        rc = jsontext_make(root, 2, text);
out:
    json_decref(list);
    json_decref(root);
    return rc;
}

/* --- writing --- */

static enum err write_token(struct gguf_writer *writer, const char *key,
                            int64_t token)
{
    uint32_t number = (uint32_t)token;
    return gguf_writer_number(writer, key, GGUF_U32, &number);
}

static enum err write_ends(struct gguf_writer *writer, const json_t *root,
                           int32_t eos)
{
    enum err rc = ERR_OK;
    const json_t *said = json_object_get(root, "eos_token_id");
    json_t *list = json_array();
    if (eos >= 0)
        jsontext_append(&list, json_integer(eos));
    for (size_t i = 0; i < json_array_size(said); i++) {
        json_t *token = json_array_get(said, i);
        if (json_is_integer(token) &&
            !generation_has(list, json_integer_value(token)))
            jsontext_append(&list, json_incref(token));
    }
    if (list == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    for (size_t e = 0; e < ENDS && e < json_array_size(list); e++)
        TRY_OUT(write_token(writer, ends[e],
                            json_integer_value(json_array_get(list, e))));
    for (size_t e = ENDS; e < json_array_size(list); e++)
        log_warn("token %lld ends texts, too, but a GGUF file has room for %zu "
                 "of them",
                 (long long)json_integer_value(json_array_get(list, e)), ENDS);
out:
    json_decref(list);
    return rc;
}

/* Where any of it is said, all: programs have defaults of their own. */
static enum err write_draws(struct gguf_writer *writer, const json_t *root)
{
    int32_t all = -1; /* tokens of the text count for the penalty */
    bool greedy = !json_is_true(json_object_get(root, "do_sample"));
    bool any = json_object_get(root, "do_sample") != NULL;
    for (size_t d = 0; d < DRAWS; d++)
        any |= json_is_number(json_object_get(root, draws[d].name));
    for (size_t d = 0; d < DRAWS && any; d++) {
        const json_t *said = json_object_get(root, draws[d].name);
        double value =
            json_is_number(said) ? json_number_value(said) : draws[d].neutral;
        if (d == 0 && greedy)
            value = 0;
        float real = (float)value;
        int32_t whole = (int32_t)value;
        TRY(gguf_writer_number(writer, draws[d].key, draws[d].kind,
                               draws[d].kind == GGUF_I32 ? (void *)&whole
                                                         : (void *)&real));
    }
    return any ? gguf_writer_number(writer, "general.sampling.penalty_last_n",
                                    GGUF_I32, &all)
               : ERR_OK;
}

enum err gguf_generation_write(struct gguf_writer *writer,
                               const char *generation, int32_t eos, int32_t pad)
{
    assert(writer != NULL && eos >= -1 && pad >= -1);
    json_t *root = NULL;
    enum err rc = ERR_OK;
    if (generation != NULL)
        rc = jsontext_object(generation, strlen(generation), 0, &root);
    TRY(err_prefix(rc, "generation_config.json"));
    TRY_OUT(write_ends(writer, root, eos));
    if (pad >= 0 || eos >= 0)
        TRY_OUT(
            write_token(writer, KEY("padding_token_id"), pad >= 0 ? pad : eos));
    TRY_OUT(write_draws(writer, root));
out:
    json_decref(root);
    return rc;
}
