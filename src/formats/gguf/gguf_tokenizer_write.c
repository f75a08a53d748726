/* Writes a tokenizer's tokens, types and merges, and by which name other
 * programs divide texts as it does.
 *
 * Tokens are by number and without holes there, and as many as the embedding
 * has rows, so numbers that the tokenizer lacks get a text that no other has
 * ("[PAD7]") and the type of tokens that are not used: converters of others do
 * so, and gguf_tokenizer.c knows them again. */

#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/jsontext.h"
#include "src/base/new.h"

#include "src/formats/gguf/gguf_tokenizer.h"
#include "src/formats/gguf/gguf_tokenizer_pre.h"

#define KEY(name) "tokenizer.ggml." name

enum token_type { NORMAL = 1, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5 };

struct texts {
    const char **text; /* by number; NULL: none */
    int32_t *type;
    int64_t rows;
};

static enum err malformed(const char *what)
{
    return err_set(ERR_DATA, "tokenizer.json: %s", what);
}

static enum err put_token(struct texts *texts, const char *text,
                          const json_t *id, enum token_type type)
{
    int64_t number = json_is_integer(id) ? json_integer_value(id) : -1;
    if (text == NULL || number < 0)
        return malformed("a token has no text or no number");
    if (number >= texts->rows)
        return err_set(ERR_DATA,
                       "tokenizer.json: token %" PRId64 " '%.60s', but the "
                       "model has %" PRId64 " rows",
                       number, text, texts->rows);
    texts->text[number] = text;
    texts->type[number] = (int32_t)type;
    return ERR_OK;
}

static enum err collect(const json_t *root, struct texts *texts)
{
    const char *text;
    json_t *id;
    const json_t *model = json_object_get(root, "model");
    const json_t *added = json_object_get(root, "added_tokens");
    json_object_foreach(json_object_get(model, "vocab"), text, id)
    {
        TRY(put_token(texts, text, id, NORMAL));
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i);
        bool special = json_is_true(json_object_get(token, "special"));
        /* also in the vocabulary, mostly: the type of an added one counts */
        TRY(put_token(
            texts, json_string_value(json_object_get(token, "content")),
            json_object_get(token, "id"), special ? CONTROL : USER_DEFINED));
    }
    return ERR_OK;
}

static enum err write_tokens(struct gguf_writer *writer, struct texts *texts)
{
    char pad[32];
    TRY(gguf_writer_strings(writer, KEY("tokens"), (uint64_t)texts->rows));
    for (int64_t i = 0; i < texts->rows; i++) {
        const char *text = texts->text[i];
        if (text == NULL) {
            snprintf(pad, sizeof pad, "[PAD%" PRId64 "]", i);
            texts->type[i] = UNUSED;
            text = pad;
        }
        TRY(gguf_writer_item(writer, text, strlen(text)));
    }
    return gguf_writer_numbers(writer, KEY("token_type"), GGUF_I32, texts->type,
                               (uint64_t)texts->rows);
}

/* "a b", or ["a", "b"]. */
static enum err write_merges(struct gguf_writer *writer, const json_t *merges)
{
    enum err rc = ERR_OK;
    TRY(gguf_writer_strings(writer, KEY("merges"), json_array_size(merges)));
    for (size_t i = 0; i < json_array_size(merges) && rc == ERR_OK; i++) {
        const json_t *merge = json_array_get(merges, i);
        /* files of newer tokenizers have pairs, since a token may have a blank
         */
        const char *a = json_string_value(json_array_get(merge, 0));
        const char *b = json_string_value(json_array_get(merge, 1));
        const char *both = json_string_value(merge);
        char *joined = NULL;
        if (both == NULL && (a == NULL || b == NULL))
            return malformed("a merge is no pair of texts");
        if (both == NULL && asprintf(&joined, "%s %s", a, b) < 0)
            return err_set(ERR_MEMORY, "out of memory");
        both = both != NULL ? both : joined;
        rc = gguf_writer_item(writer, both, strlen(both));
        free(joined);
    }
    return rc;
}

/* Whether the post-processor, or one of several, begins or ends a text with a
 * special token. */
static bool adds(const json_t *post, bool begin)
{
    const json_t *list = json_object_get(post, "processors");
    const json_t *single = json_object_get(post, "single");
    size_t last = json_array_size(single);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (adds(json_array_get(list, i), begin))
            return true;
    return last > 0 &&
           json_object_get(json_array_get(single, begin ? 0 : last - 1),
                           "SpecialToken") != NULL;
}

static enum err write_all(struct gguf_writer *writer, const json_t *root,
                          const struct gguf_tokenizer_texts *from,
                          struct texts *texts)
{
    const json_t *post = json_object_get(root, "post_processor");
    const char *pre = NULL;
    TRY(gguf_tokenizer_pre_of(root, &pre));
    uint8_t bos = adds(post, true) && from->bos >= 0, no = 0;
    uint8_t eos = adds(post, false) && from->eos >= 0;
    if (pre == NULL)
        return err_set(ERR_UNSUPPORTED,
                       "tokenizer.json: GGUF has no name for this tokenizer: "
                       "it is no byte-level BPE, or divides texts into words "
                       "in another way than those that are known; export "
                       "--format hf");
    TRY(collect(root, texts));
    TRY(gguf_writer_text(writer, KEY("model"), "gpt2"));
    TRY(gguf_writer_text(writer, KEY("pre"), pre));
    TRY(write_tokens(writer, texts));
    TRY(write_merges(
        writer, json_object_get(json_object_get(root, "model"), "merges")));
    uint32_t first = (uint32_t)from->bos;
    if (from->bos >= 0)
        TRY(gguf_writer_number(writer, KEY("bos_token_id"), GGUF_U32, &first));
    TRY(gguf_generation_write(writer, from->generation, from->eos, from->pad));
    TRY(gguf_writer_number(writer, KEY("add_bos_token"), GGUF_BOOL, &bos));
    TRY(gguf_writer_number(writer, KEY("add_eos_token"), GGUF_BOOL, &eos));
    TRY(gguf_writer_number(writer, KEY("add_space_prefix"), GGUF_BOOL, &no));
    return from->chat == NULL
               ? ERR_OK
               : gguf_writer_text(writer, "tokenizer.chat_template",
                                  from->chat);
}

enum err gguf_tokenizer_write(struct gguf_writer *writer,
                              const struct gguf_tokenizer_texts *from)
{
    assert(writer != NULL && from->tokenizer != NULL);
    enum err rc = ERR_OK;
    struct texts texts = { .rows = from->rows };
    json_t *root = NULL;
    TRY_OUT(new_zeroed(&texts.text, (size_t)from->rows));
    TRY_OUT(new_zeroed(&texts.type, (size_t)from->rows));
    rc = jsontext_object(from->tokenizer, from->bytes, JSON_REJECT_DUPLICATES,
                         &root);
    TRY_OUT(err_prefix(rc, "tokenizer.json"));
    TRY_OUT(write_all(writer, root, from, &texts));
out:
    json_decref(root);
    free(texts.text);
    free(texts.type);
    return rc;
}
