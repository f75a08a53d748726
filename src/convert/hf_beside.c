/* The small files of a Hugging Face folder: config.json, generation_config.json,
 * tokenizer.json, tokenizer_config.json and the chat template.
 *
 * What a model has brought with it goes out as it came in, to the byte where it is
 * a file of its own (tokenizer, template). What it lacks is made: a tokenizer of
 * bytes is written as a BPE without merges, so that any program can read what was
 * trained with it; tokens that begin and end texts are named in each place where
 * some program looks for them. */
#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/jsontext.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/convert/hf_cmd.h"
#include "src/formats/hf/hf_files.h"
#include "src/text/tokenizer/bpe.h"
#include "src/text/tokenizer/tokenizer.h"
#include "src/text/tokenizer/bpe_train.h"
#include "src/text/unicode.h"

#define BYTES 256

/* Writes and releases. */
static enum err write_json(const char *folder, const char *name, json_t *root)
{
    char path[FSIO_PATH_MAX];
    char *text = NULL;
    enum err rc = root == NULL ? err_set(ERR_MEMORY, "out of memory")
                               : jsontext_make(root, 2, &text);
    if (rc == ERR_OK)
        rc = fsio_path(path, "%s/%s", folder, name);
    if (rc == ERR_OK)
        rc = fsio_write_atomic(path, text, strlen(text));
    free(text);
    json_decref(root);
    return rc;
}

static enum err write_text(const char *folder, const char *name,
                           const char *text, size_t bytes)
{
    char path[FSIO_PATH_MAX];
    TRY(fsio_path(path, "%s/%s", folder, name));
    return fsio_write_atomic(path, text, bytes);
}

/* --- the built-in tokenizer --- */

/* Token b is byte b, the next one ends a document. JSON has no bytes, so a byte is
 * written as the letter that GPT-2's byte-level alphabet has for it. */
static enum err bytes_json(const struct tokenizer *tokenizer, char **text)
{
    static const char end[] = "<|endoftext|>";
    struct byte_alphabet alphabet;
    int32_t eos = tokenizer_eos(tokenizer);
    json_t *vocab = json_object();
    byte_alphabet_fill(&alphabet);
    for (int b = 0; b < BYTES; b++) {
        uint8_t name[4];
        uint32_t point = 0;
        while (alphabet.byte[point] != b)
            point++;
        assert(alphabet.byte[point] == b);
        jsontext_set_part(&vocab, (const char *)name, unicode_put(point, name),
                          json_integer(b));
    }
    jsontext_set(&vocab, end, json_integer(eos));
    json_t *root = json_pack(
        "{s:s, s:n, s:n, s:[{s:i, s:s, s:b, s:b, s:b, s:b, s:b}], s:n, s:o, "
        "s:o, s:o, s:{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:[]}}",
        "version", "1.0", "truncation", "padding", "added_tokens", "id",
        (int)eos, "content", end, "single_word", 0, "lstrip", 0, "rstrip", 0,
        "normalized", 0, "special", 1, "normalizer", "pre_tokenizer",
        bpe_train_byte_level(false, true), "post_processor",
        bpe_train_byte_level(false, true), "decoder",
        bpe_train_byte_level(false, true), "model", "type", "BPE", "dropout",
        "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
        "fuse_unk", 0, "byte_fallback", 0, "ignore_merges", 0, "vocab", vocab,
        "merges");
    enum err rc = jsontext_make(root, 1, text);
    json_decref(root);
    return rc;
}

enum err hf_bytes_tokenizer(const struct weights_about *about, char **text,
                            size_t *bytes)
{
    enum err rc = ERR_OK;
    struct tokenizer *tokenizer = NULL;
    *text = NULL;
    *bytes = 0;
    if (about->tokenizer != NULL) {
        TRY(new_room(text, about->tokenizer_bytes + 1));
        memcpy(*text, about->tokenizer, about->tokenizer_bytes);
        (*text)[about->tokenizer_bytes] = '\0';
        *bytes = about->tokenizer_bytes;
    } else if (about->builtin_tokenizer != NULL) {
        TRY_OUT(tokenizer_create(about->builtin_tokenizer, &tokenizer));
        TRY_OUT(bytes_json(tokenizer, text));
        *bytes = strlen(*text);
    }
out:
    tokenizer_destroy(tokenizer);
    return rc;
}

/* --- the files --- */

/* What the model has brought with it, and what it lacks of that. New. */
static enum err make_generation(const struct weights_about *about, json_t **out)
{
    const struct {
        const char *key;
        int32_t token;
    } tokens[] = { { "bos_token_id", about->bos },
                   { "eos_token_id", about->eos },
                   { "pad_token_id",
                     about->pad >= 0 ? about->pad : about->eos } };
    const char *text = about->generation != NULL ? about->generation : "{}";
    json_t *root;
    enum err rc = jsontext_object(text, strlen(text), 0, &root);
    *out = NULL;
    TRY(err_prefix(rc, "%s: generation_config.json", about->path));
    for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++) {
        const json_t *said = json_object_get(root, tokens[t].key);
        if (tokens[t].token >= 0 && (said == NULL || json_is_null(said)))
            jsontext_set(&root, tokens[t].key, json_integer(tokens[t].token));
    }
    *out = root;
    return root != NULL ? ERR_OK : err_set(ERR_MEMORY, "out of memory");
}

/* The ends are all of them. transformers does not train the embedding of this
 * file's padding, so an end that fills up texts, too, is not told here. */
static enum err set_ids(json_t **root, const struct weights_about *about)
{
    json_t *generation = NULL;
    TRY(make_generation(about, &generation));
    json_t *ends = json_object_get(generation, "eos_token_id");
    if (about->bos >= 0)
        jsontext_set(root, "bos_token_id", json_integer(about->bos));
    if (ends != NULL)
        jsontext_set(root, "eos_token_id", json_incref(ends));
    if (about->pad >= 0 && about->pad != about->eos)
        jsontext_set(root, "pad_token_id", json_integer(about->pad));
    json_decref(generation);
    return ERR_OK;
}

static enum err write_config(const struct hf_model *model, enum arch arch,
                             enum hf_cmd_dtype dtype, const char *folder)
{
    char *text = NULL;
    TRY(hf_config_text(arch, &model->about->config, hf_cmd_torch_dtypes[dtype],
                       &text));
    json_t *root = json_loads(text, 0, NULL);
    free(text);
    enum err rc = set_ids(&root, model->about);
    if (rc != ERR_OK) {
        json_decref(root);
        return rc;
    }
    return write_json(folder, "config.json", root);
}

/* Its text; *out is NULL where there is no such token. Padding may be one of
 * another tokenizer's, and is left out then. */
static enum err make_name(const struct hf_files *files, const char *key,
                          int32_t token, json_t **out)
{
    static const char where[] = "the model's tokenizer";
    char *text = NULL;
    *out = NULL;
    if (token < 0)
        return ERR_OK;
    TRY(hf_files_token_text(files, where, token, true, &text));
    bool added = text != NULL;
    if (!added)
        TRY(hf_files_token_text(files, where, token, false, &text));
    if (!added && text != NULL)
        log_warn("the %s, token %d, is a piece of texts for the tokenizer: who "
                 "reads the folder takes it as special, and texts with \"%s\" "
                 "get other tokens",
                 key, token, text);
    if (text == NULL && strcmp(key, "pad_token") != 0)
        return err_set(ERR_DATA, "%s has no token %d, its %s", where, token,
                       key);
    *out = text == NULL ? NULL : json_string(text);
    bool lost = text != NULL && *out == NULL;
    free(text);
    return lost ? err_set(ERR_MEMORY, "no memory for %s", key) : ERR_OK;
}

static enum err write_tokenizer(const struct hf_model *model,
                                const char *folder)
{
    enum err rc = ERR_OK;
    const struct weights_about *about = model->about;
    struct hf_files files = { .text = { NULL } };
    json_t *root = NULL, *bos = NULL, *eos = NULL, *pad = NULL;
    TRY_OUT(hf_bytes_tokenizer(about, &files.text[HF_FILE_TOKENIZER],
                               &files.bytes[HF_FILE_TOKENIZER]));
    if (files.text[HF_FILE_TOKENIZER] == NULL) {
        log_warn("%s has no tokenizer: the folder will have none either",
                 about->path);
        goto out;
    }
    TRY_OUT(write_text(folder, hf_files_name(HF_FILE_TOKENIZER),
                       files.text[HF_FILE_TOKENIZER],
                       files.bytes[HF_FILE_TOKENIZER]));
    TRY_OUT(make_name(&files, "bos_token", about->bos, &bos));
    TRY_OUT(make_name(&files, "eos_token", about->eos, &eos));
    TRY_OUT(make_name(&files, "pad_token", about->pad, &pad));
    root = bpe_train_config(bos, eos, pad);
    bos = eos = pad = NULL;
    jsontext_set(&root, "model_max_length",
                 json_integer(about->config.max_seq_len));
    if (about->chat_template != NULL)
        jsontext_set(&root, "chat_template", json_string(about->chat_template));
    rc = write_json(folder, hf_files_name(HF_FILE_TOKENIZER_CONFIG), root);
    root = NULL;
    if (rc == ERR_OK && about->chat_template != NULL)
        rc = write_text(folder, hf_files_name(HF_FILE_CHAT_TEMPLATE),
                        about->chat_template, strlen(about->chat_template));
out:
    json_decref(root);
    json_decref(bos);
    json_decref(eos);
    json_decref(pad);
    hf_files_free(&files);
    return rc;
}

enum err hf_beside_write(const struct hf_model *model, enum arch arch,
                         enum hf_cmd_dtype dtype, const char *folder)
{
    json_t *root = NULL;
    TRY(make_generation(model->about, &root));
    TRY(write_json(folder, hf_files_name(HF_FILE_GENERATION_CONFIG), root));
    TRY(write_config(model, arch, dtype, folder));
    return write_tokenizer(model, folder);
}
