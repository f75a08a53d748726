#include "src/data/sidecar.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"

#define SIDECAR_BYTES_MAX ((size_t)1 << 20)

static enum err sidecar_int(const json_t *root, const char *key, int64_t min,
                            int64_t max, int64_t *out)
{
    const json_t *value = json_object_get(root, key);
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < min || number > max)
        return err_set(ERR_DATA,
                       "'%s' has to be a whole number in [%lld, %lld]", key,
                       (long long)min, (long long)max);
    *out = (int64_t)number;
    return ERR_OK;
}

static enum err sidecar_string(const json_t *root, const char *key, char *out,
                               size_t bytes)
{
    const char *text = json_string_value(json_object_get(root, key));
    if (text == NULL || text[0] == '\0' || strlen(text) >= bytes)
        return err_set(ERR_DATA, "'%s' has to be a text of 1 to %zu bytes", key,
                       bytes - 1);
    memcpy(out, text, strlen(text) + 1);
    return ERR_OK;
}

static enum err sidecar_parse(const json_t *root, struct sidecar *out)
{
    enum err rc = ERR_OK;
    char format[64];
    TRY(sidecar_string(root, "format", format, sizeof format));
    if (strcmp(format, SIDECAR_FORMAT) != 0)
        return err_set(ERR_DATA, "'format' is '%s'; this build reads '%s'",
                       format, SIDECAR_FORMAT);
    TRY(sidecar_int(root, "vocab_size", 1, INT32_MAX, &out->vocab_size));
    TRY(sidecar_string(root, "tokenizer", out->tokenizer,
                       sizeof out->tokenizer));
    TRY(sidecar_string(root, "tokenizer_sha256", out->tokenizer_sha256,
                       sizeof out->tokenizer_sha256));
    if (strlen(out->tokenizer_sha256) != 64)
        return err_set(ERR_DATA, "'tokenizer_sha256' has to be 64 hexadecimal "
                                 "digits");
    TRY(sidecar_int(root, "samples", 0, INT64_MAX, &out->samples));
    TRY(sidecar_int(root, "tokens", 0, INT64_MAX, &out->tokens));
    out->eos_token = -1;
    if (json_object_get(root, "eos_token") != NULL)
        TRY(sidecar_int(root, "eos_token", 0, out->vocab_size - 1,
                        &out->eos_token));
out:
    return rc;
}

enum err sidecar_read(const char *folder, struct sidecar *out)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    char *text = NULL;
    size_t bytes = 0;
    json_t *root = NULL;
    json_error_t problem;
    TRY(fsio_path(path, "%s/%s", folder, SIDECAR_NAME));
    if (!fsio_exists(path))
        return err_set(ERR_DATA,
                       "%s: no such file, so the vocabulary is unknown; make "
                       "it with: tessera-data adopt --vocab-size N %s",
                       path, folder);
    TRY(fsio_read_file(path, SIDECAR_BYTES_MAX, &text, &bytes));
    root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &problem);
    if (root == NULL) {
        rc = err_set(ERR_DATA, "%s:%d: not valid JSON: %s", path, problem.line,
                     problem.text);
        goto out;
    }
    rc = sidecar_parse(root, out);
    if (rc != ERR_OK)
        err_prefix(rc, "%s", path);
out:
    json_decref(root);
    free(text);
    return rc;
}

enum err sidecar_write(const char *folder, const struct sidecar *sidecar)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    char *text = NULL;
    json_t *root = NULL;
    TRY(fsio_path(path, "%s/%s", folder, SIDECAR_NAME));
    root = json_pack("{s:s, s:I, s:s, s:s, s:I, s:I}", "format", SIDECAR_FORMAT,
                     "vocab_size", (json_int_t)sidecar->vocab_size, "tokenizer",
                     sidecar->tokenizer, "tokenizer_sha256",
                     sidecar->tokenizer_sha256, "samples",
                     (json_int_t)sidecar->samples, "tokens",
                     (json_int_t)sidecar->tokens);
    if (sidecar->eos_token >= 0)
        json_object_set_new(root, "eos_token",
                            json_integer(sidecar->eos_token));
    text = json_dumps(root, JSON_INDENT(2));
    if (text == NULL) {
        rc = err_set(ERR_DATA, "%s: the tokenizer's name is not UTF-8 text",
                     path);
        goto out;
    }
    /* The NUL becomes the line end. */
    size_t bytes = strlen(text) + 1;
    text[bytes - 1] = '\n';
    TRY(fsio_write_atomic(path, text, bytes));
out:
    json_decref(root);
    free(text);
    return rc;
}
