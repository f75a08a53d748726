/* Reads, checks and writes tessera.json.
 *
 * The file is the description that training relies on and that no format has,
 * so what is missing is told with the command that makes it. Keys that are not
 * known are passed over: an older build is to read what a newer one has
 * written, unless `format` says otherwise. */
#include "src/data/set/sidecar.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/digest.h"
#include "src/base/jsontext.h"
#include "src/base/new.h"
#include "src/base/regular.h"
#include "src/data/set/values.h"
#include "src/text/tokenizer/tokenizer.h"

/* The limit of an index: both have a line per shard. */
#define SIDECAR_BYTES_MAX ((size_t)256 << 20)
#define SIDECAR_SHA256_DIGITS ((size_t)64)

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

static enum err sidecar_hashes(const json_t *list, struct sidecar *out)
{
    size_t count = json_array_size(list);
    if (!json_is_array(list) || count == 0)
        return err_set(ERR_DATA, "'shards_sha256' has to be a list");
    TRY(new_room(&out->shards_sha256, count * SIDECAR_SHA256_DIGITS));
    for (size_t s = 0; s < count; s++) {
        const char *hex = json_string_value(json_array_get(list, s));
        if (hex == NULL || strlen(hex) != SIDECAR_SHA256_DIGITS)
            return err_set(ERR_DATA, "'shards_sha256' has to hold texts of 64 "
                                     "hexadecimal digits");
        memcpy(out->shards_sha256 + s * SIDECAR_SHA256_DIGITS, hex,
               SIDECAR_SHA256_DIGITS);
    }
    out->shards_hashed = (int64_t)count;
    return ERR_OK;
}

/* What need not be there. */
static enum err sidecar_parse_more(const json_t *root, struct sidecar *out)
{
    char type[16];
    if (json_object_get(root, "eos_token") != NULL)
        TRY(sidecar_int(root, "eos_token", 0, out->vocab_size - 1,
                        &out->eos_token));
    if (json_object_get(root, "bos_token") != NULL)
        TRY(sidecar_int(root, "bos_token", 0, out->vocab_size - 1,
                        &out->bos_token));
    if (out->eos_token >= 0 && out->bos_token >= 0)
        return err_set(ERR_DATA, "'eos_token' and 'bos_token': documents are "
                                 "divided by one of them, not by both");
    if (json_object_get(root, "unicode") != NULL)
        TRY(sidecar_string(root, "unicode", out->unicode, sizeof out->unicode));
    if (json_object_get(root, "longest") != NULL)
        TRY(sidecar_int(root, "longest", 1, INT64_MAX, &out->longest));
    if (json_object_get(root, "token_type") != NULL) {
        TRY(sidecar_string(root, "token_type", type, sizeof type));
        out->token_type = values_code(type);
        if (out->token_type == 0)
            return err_set(ERR_DATA,
                           "'token_type' is '%s'; it has to be one of int8, "
                           "uint8, ... uint64",
                           type);
    }
    out->adopted = json_is_true(json_object_get(root, "adopted"));
    if (json_object_get(root, "shards_sha256") != NULL)
        TRY(sidecar_hashes(json_object_get(root, "shards_sha256"), out));
    return ERR_OK;
}

static enum err sidecar_parse(const json_t *root, struct sidecar *out)
{
    char format[64];
    TRY(sidecar_string(root, "format", format, sizeof format));
    if (strcmp(format, SIDECAR_FORMAT) != 0)
        return err_set(ERR_DATA, "'format' is '%s'; this build reads '%s'",
                       format, SIDECAR_FORMAT);
    TRY(sidecar_int(root, "vocab_size", 1, SIDECAR_VOCAB_MAX,
                    &out->vocab_size));
    TRY(sidecar_string(root, "tokenizer", out->tokenizer,
                       sizeof out->tokenizer));
    TRY(sidecar_string(root, "tokenizer_sha256", out->tokenizer_sha256,
                       sizeof out->tokenizer_sha256));
    if (strlen(out->tokenizer_sha256) != 64)
        return err_set(ERR_DATA, "'tokenizer_sha256' has to be 64 hexadecimal "
                                 "digits");
    TRY(sidecar_int(root, "samples", 0, INT64_MAX, &out->samples));
    TRY(sidecar_int(root, "tokens", 0, INT64_MAX, &out->tokens));
    return sidecar_parse_more(root, out);
}

enum err sidecar_read(const char *folder, struct sidecar *out)
{
    assert(folder != NULL && out != NULL);
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    char *text = NULL;
    size_t bytes = 0;
    json_t *root = NULL;
    json_error_t problem;
    *out = (struct sidecar){ .eos_token = -1, .bos_token = -1 };
    TRY_OUT(fsio_path(path, "%s/%s", folder, SIDECAR_NAME));
    if (!fsio_exists(path))
        TRY_OUT(err_set(ERR_DATA,
                        "%s: no such file, so the vocabulary is unknown; make "
                        "it with: tessera-data adopt --vocab-size N "
                        "--tokenizer NAME --eos-token-id N %s",
                        path, folder));
    TRY_OUT(regular_read(path, SIDECAR_BYTES_MAX, &text, &bytes));
    root = jsontext_load(text, bytes, JSON_REJECT_DUPLICATES, &problem);
    if (root == NULL)
        TRY_OUT(err_set(jsontext_wrong(&problem), "%s:%d: not valid JSON: %s",
                        path, problem.line, problem.text));
    rc = err_prefix(sidecar_parse(root, out), "%s", path);
out:
    if (rc != ERR_OK)
        sidecar_release(out);
    json_decref(root);
    free(text);
    return rc;
}

void sidecar_release(struct sidecar *sidecar)
{
    free(sidecar->shards_sha256);
    sidecar->shards_sha256 = NULL;
    sidecar->shards_hashed = 0;
}

static void sidecar_set(json_t **root, const char *key, int64_t value,
                        int64_t least)
{
    if (value >= least)
        jsontext_set(root, key, json_integer(value));
}

static void sidecar_set_more(json_t **root, const struct sidecar *sidecar)
{
    sidecar_set(root, "eos_token", sidecar->eos_token, 0);
    sidecar_set(root, "bos_token", sidecar->bos_token, 0);
    if (sidecar->unicode[0] != '\0')
        jsontext_set(root, "unicode", json_string(sidecar->unicode));
    sidecar_set(root, "longest", sidecar->longest, 1);
    if (sidecar->token_type != 0)
        jsontext_set(root, "token_type",
                     json_string(values_type(sidecar->token_type)->name));
    if (sidecar->adopted)
        jsontext_set(root, "adopted", json_true());
    if (sidecar->shards_sha256 == NULL)
        return;
    json_t *hashes = json_array();
    for (int64_t s = 0; s < sidecar->shards_hashed; s++)
        jsontext_append(&hashes,
                        json_stringn(sidecar->shards_sha256 +
                                         (size_t)s * SIDECAR_SHA256_DIGITS,
                                     SIDECAR_SHA256_DIGITS));
    jsontext_set(root, "shards_sha256", hashes);
}

enum err sidecar_write(const char *folder, const struct sidecar *sidecar)
{
    assert(folder != NULL && sidecar != NULL);
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    char *text = NULL;
    json_t *root = NULL;
    assert(sidecar->eos_token < 0 || sidecar->bos_token < 0);
    assert((sidecar->shards_sha256 != NULL) == (sidecar->shards_hashed > 0));
    TRY_OUT(fsio_path(path, "%s/%s", folder, SIDECAR_NAME));
    errno = 0;
    root = json_pack("{s:s, s:I, s:s, s:s, s:I, s:I}", "format", SIDECAR_FORMAT,
                     "vocab_size", (json_int_t)sidecar->vocab_size, "tokenizer",
                     sidecar->tokenizer, "tokenizer_sha256",
                     sidecar->tokenizer_sha256, "samples",
                     (json_int_t)sidecar->samples, "tokens",
                     (json_int_t)sidecar->tokens);
    sidecar_set_more(&root, sidecar);
    text = root == NULL ? NULL : json_dumps(root, JSON_INDENT(2));
    if (text == NULL)
        TRY_OUT(errno == ENOMEM
                    ? err_set(ERR_MEMORY, "%s: out of memory", path)
                    : err_set(ERR_DATA,
                              "%s: the tokenizer's name is not UTF-8 text",
                              path));
    /* The NUL becomes the line end. */
    size_t bytes = strlen(text) + 1;
    text[bytes - 1] = '\n';
    TRY_OUT(fsio_write_atomic(path, text, bytes));
out:
    json_decref(root);
    free(text);
    return rc;
}

/* --- the copy of a tokenizer's file ---
 *
 * Numbers of tokens mean nothing without the file that they were made with, and
 * a path or a name does not keep it. So a set carries it, and the digest in
 * tessera.json, which is part of the set's identity, says whether it still is
 * that one. */

#define COPY_BYTES_MAX ((size_t)1 << 30)

enum err tokenizer_copy_write(const char *folder,
                              const struct tokenizer *tokenizer)
{
    assert(folder != NULL && tokenizer != NULL);
    char path[FSIO_PATH_MAX];
    size_t bytes = 0;
    const char *file = tokenizer_file(tokenizer, &bytes);
    if (file == NULL)
        return ERR_OK;
    TRY(fsio_path(path, "%s/" TOKENIZER_COPY_NAME, folder));
    return fsio_write_atomic(path, file, bytes);
}

enum err sidecar_write_made(const char *folder, struct sidecar *sidecar,
                            const struct tokenizer *tokenizer)
{
    snprintf(sidecar->tokenizer, sizeof sidecar->tokenizer, "%s",
             tokenizer_name(tokenizer));
    snprintf(sidecar->tokenizer_sha256, sizeof sidecar->tokenizer_sha256, "%s",
             tokenizer_sha256(tokenizer));
    snprintf(sidecar->unicode, sizeof sidecar->unicode, "%s",
             tokenizer_unicode(tokenizer));
    TRY(tokenizer_copy_write(folder, tokenizer));
    return sidecar_write(folder, sidecar);
}

enum err tokenizer_copy_find(const char *folder, const char *name,
                             const char *sha256, char path[FSIO_PATH_MAX])
{
    enum err rc = ERR_OK;
    char *file = NULL, found[65];
    size_t bytes = 0;
    TRY(fsio_path(path, "%s/" TOKENIZER_COPY_NAME, folder));
    if (!fsio_exists(path)) {
        path[0] = '\0';
        return ERR_OK;
    }
    TRY_OUT(regular_read(path, COPY_BYTES_MAX, &file, &bytes));
    TRY_OUT(digest_bytes(file, bytes, found));
    if (strcmp(found, sha256) != 0)
        rc = err_set(ERR_DATA,
                     "%s has the SHA-256 %s, but the tokenizer '%s' of this "
                     "data set has %s: copy the set again; one that was made "
                     "elsewhere, adopt with --tokenizer %s",
                     path, found, name, sha256, path);
out:
    free(file);
    return rc;
}
