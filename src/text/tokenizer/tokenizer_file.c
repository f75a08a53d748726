/* A tokenizer.json, or a SentencePiece model that becomes one, and what lies
 * beside it.
 *
 * A tokenizer.json is the Hugging Face library's own state, written by serde:
 * five parts that are run one after the other, each an object whose "type" says
 * which of the library's structures it is. Which token ends a text is not in
 * it, but in files in the same folder (tokenizer_beside.c).
 *
 * The file's bytes are kept, and its SHA-256 is the tokenizer's name to data
 * sets and checkpoints: two files that differ anywhere may give other tokens,
 * and to find out whether they do would take longer than to say no. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/base/digest.h"
#include "src/base/fsio.h"
#include "src/base/globs.h"
#include "src/base/new.h"
#include "src/base/jsontext.h"
#include "src/text/tokenizer/sentencepiece.h"
#include "src/text/tokenizer/tokenizer_beside.h"
#include "src/text/tokenizer/tokenizer_decode.h"

#define FILE_BYTES_MAX (256 << 20)
#define FILE_NAME "tokenizer.json"

/* Truncation and padding are for batches; a data set is neither. */
static enum err file_nothing(const struct tokenizer_node *root, const char *key)
{
    struct tokenizer_node node = tokenizer_reader_member(root, key);
    return node.value == NULL
               ? ERR_OK
               : tokenizer_reader_refuse(&node, "only null is known here");
}

static enum err file_parts(const struct tokenizer_node *root,
                           struct tokenizer *tokenizer)
{
    static const char *const keys[] = { "version",        "truncation",
                                        "padding",        "added_tokens",
                                        "normalizer",     "pre_tokenizer",
                                        "post_processor", "decoder",
                                        "model",          NULL };
    struct tokenizer_decode decode = { .steps = 0 };
    struct tokenizer_node version = tokenizer_reader_member(root, "version");
    TRY(tokenizer_reader_keys(root, keys));
    if (version.value != NULL &&
        (!json_is_string(version.value) ||
         strcmp(json_string_value(version.value), "1.0") != 0))
        return tokenizer_reader_refuse(&version, "only \"1.0\" is known here");
    TRY(file_nothing(root, "truncation"));
    TRY(file_nothing(root, "padding"));
    TRY(unicode_create(&tokenizer->unicode));
    TRY(pretoken_create(&tokenizer->pretoken));
    TRY(added_create(&tokenizer->added));
    TRY(added_create(&tokenizer->added_normalized));
    TRY(tokenizer_parts_normalizer(root, tokenizer));
    TRY(tokenizer_parts_pre_tokenizer(root, tokenizer));
    TRY(tokenizer_parts_decoder(root, tokenizer, &decode));
    TRY(tokenizer_model_read(root, &decode, tokenizer));
    return tokenizer_parts_post_processor(root, tokenizer);
}

static enum err file_json(const char *path, const char *text, size_t bytes,
                          json_t **out)
{
    json_error_t error;
    *out = jsontext_load(text, bytes, JSON_REJECT_DUPLICATES, &error);
    return *out != NULL ? ERR_OK
                        : err_set(jsontext_wrong(&error), "%s:%d:%d: %s", path,
                                  error.line, error.column, error.text);
}

/* The file's stem, or its folder's name. */
static void file_name(const char *path, struct tokenizer *tokenizer)
{
    size_t end = strlen(path);
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    if (slash != NULL && (strcmp(name, FILE_NAME) == 0 ||
                          strcmp(name, SENTENCEPIECE_FILE) == 0)) {
        end = (size_t)(slash - path);
        while (end > 0 && path[end - 1] != '/')
            end--;
        name = path + end;
        end = (size_t)(slash - name);
    } else {
        const char *dot = strrchr(name, '.');
        end = dot == NULL || dot == name ? strlen(name) : (size_t)(dot - name);
    }
    snprintf(tokenizer->name, sizeof tokenizer->name, "%.*s", (int)end, name);
}

enum err tokenizer_file_json(const char *name, const char *json, size_t bytes,
                             struct tokenizer *tokenizer)
{
    assert(json != NULL && tokenizer->bpe == NULL);
    enum err rc = ERR_OK;
    json_t *parsed = NULL;
    TRY(new_room(&tokenizer->file, bytes + 1));
    memcpy(tokenizer->file, json, bytes);
    tokenizer->file[bytes] = '\0';
    tokenizer->file_bytes = bytes;
    TRY_OUT(digest_bytes(json, bytes, tokenizer->sha256));
    TRY_OUT(file_json(name, json, bytes, &parsed));
    struct tokenizer_node root = { .path = name, .value = parsed };
    TRY_OUT(file_parts(&root, tokenizer));
out:
    json_decref(parsed);
    return rc;
}

/* The text of a tokenizer.json; ends of texts that it does not name. */
static enum err file_read(const char *path, struct tokenizer *tokenizer,
                          char **text, size_t *bytes)
{
    struct sentencepiece made = { .json = NULL };
    if (!globs_match("*.model", path))
        return fsio_read_file(path, FILE_BYTES_MAX, text, bytes);
    TRY(sentencepiece_load(path, &made));
    *text = made.json;
    *bytes = strlen(made.json);
    tokenizer->bos = made.bos;
    tokenizer->eos = made.eos;
    return ERR_OK;
}

enum err tokenizer_file_load(const char *name, struct tokenizer *tokenizer)
{
    assert(name != NULL && tokenizer->bpe == NULL);
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    struct stat status;
    char *text = NULL;
    size_t bytes = 0;
    bool there = stat(name, &status) == 0;
    if (!there && errno != ENOENT && errno != ENOTDIR)
        return err_errno("%s: look at", name);
    if (!there)
        return err_set(ERR_USAGE,
                       "unknown tokenizer '%s': there is: bytes, or the path "
                       "of a tokenizer.json or tokenizer.model (%s)",
                       name, strerror(errno));
    TRY(fsio_path(path, S_ISDIR(status.st_mode) ? "%s/" FILE_NAME : "%s",
                  name));
    if (S_ISDIR(status.st_mode) && !fsio_exists(path)) {
        TRY(fsio_path(path, "%s/" SENTENCEPIECE_FILE, name));
        if (!fsio_exists(path))
            TRY(fsio_path(path, "%s/" FILE_NAME, name));
    }
    tokenizer->eos = tokenizer->bos = -1;
    TRY(file_read(path, tokenizer, &text, &bytes));
    file_name(path, tokenizer);
    TRY_OUT(tokenizer_beside_add(path, &text, &bytes, &tokenizer->bos,
                                 &tokenizer->eos));
    TRY_OUT(tokenizer_file_json(path, text, bytes, tokenizer));
out:
    free(text);
    return rc;
}
