#include "src/data/scan.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/digest.h"
#include "src/base/fsio.h"
#include "src/data/progress.h"
#include "src/data/sidecar.h"
#include "src/data/tokenizer.h"

/* Samples between looks at the clock and the stop flag. */
#define SCAN_POLL_SAMPLES 256

enum err scan_read(struct dataset *dataset, int64_t index, int32_t **tokens,
                   int64_t *capacity, int64_t *length)
{
    enum err rc = ERR_OK;
    TRY(dataset_read(dataset, index, *tokens, *capacity, length));
    if (*length <= *capacity)
        return ERR_OK;
    int32_t *grown = realloc(*tokens, (size_t)*length * sizeof *grown);
    if (grown == NULL)
        return err_set(ERR_MEMORY, "%s: no memory for a sample of %lld tokens",
                       dataset_path(dataset), (long long)*length);
    *tokens = grown;
    *capacity = *length;
    TRY(dataset_read(dataset, index, *tokens, *capacity, length));
out:
    return rc;
}

static enum err scan_poll(struct dataset *dataset, int (*stop)(void),
                          struct progress *progress, int64_t done)
{
    progress_update(progress, done);
    if (stop != NULL && stop() != 0)
        return err_set(ERR_IO, "%s: interrupted", dataset_path(dataset));
    return ERR_OK;
}

enum err scan_samples(struct dataset *dataset, int64_t *counts, bool show,
                      int (*stop)(void), struct scan_result *out)
{
    enum err rc = ERR_OK;
    int32_t *tokens = NULL;
    int64_t capacity = 0;
    struct progress progress;
    struct scan_result result = { .samples = dataset_samples(dataset) };
    progress_begin(&progress, "reading", "samples", result.samples);
    for (int64_t i = 0; i < result.samples; i++) {
        int64_t length = 0;
        if (i % SCAN_POLL_SAMPLES == 0)
            TRY(scan_poll(dataset, stop, show ? &progress : NULL, i));
        TRY(scan_read(dataset, i, &tokens, &capacity, &length));
        for (int64_t t = 0; counts != NULL && t < length; t++)
            counts[tokens[t]]++;
        result.tokens += length;
        if (length > result.longest)
            result.longest = length;
    }
    progress.done = result.samples;
    *out = result;
out:
    progress_end(&progress);
    free(tokens);
    return rc;
}

static enum err scan_shards(struct dataset *dataset, bool show,
                            int (*stop)(void))
{
    enum err rc = ERR_OK;
    struct progress progress;
    int64_t shards = dataset_shards(dataset);
    progress_begin(&progress, "checksums", "shards", shards);
    for (int64_t s = 0; s < shards; s++) {
        TRY(scan_poll(dataset, stop, show ? &progress : NULL, s));
        TRY(dataset_verify_shard(dataset, s));
    }
    progress.done = shards;
out:
    progress_end(&progress);
    return rc;
}

enum err scan_verify(struct dataset *dataset, bool show, int (*stop)(void),
                     struct scan_result *out)
{
    enum err rc = ERR_OK;
    TRY(scan_shards(dataset, show, stop));
    TRY(scan_samples(dataset, NULL, show, stop, out));
    if (out->tokens != dataset_tokens(dataset))
        rc =
            err_set(ERR_DATA,
                    "%s/%s: says %lld tokens, but the shards hold %lld; copy "
                    "the data set again",
                    dataset_path(dataset), SIDECAR_NAME,
                    (long long)dataset_tokens(dataset), (long long)out->tokens);
out:
    return rc;
}

static enum err scan_name_tokenizer(const char *name, struct sidecar *sidecar)
{
    enum err rc = ERR_OK;
    char text[160];
    struct tokenizer *tokenizer = NULL;
    if (name[0] == '\0' || strlen(name) >= sizeof sidecar->tokenizer)
        return err_set(ERR_USAGE,
                       "a tokenizer's name has 1 to %zu bytes: '%.80s'",
                       sizeof sidecar->tokenizer - 1, name);
    snprintf(sidecar->tokenizer, sizeof sidecar->tokenizer, "%s", name);
    if (strcmp(name, TOKENIZER_DEFAULT) != 0) {
        snprintf(text, sizeof text, "tokenizer %s, vocab_size %lld\n", name,
                 (long long)sidecar->vocab_size);
        return digest_bytes(text, strlen(text), sidecar->tokenizer_sha256);
    }
    TRY(tokenizer_create(name, &tokenizer));
    if (tokenizer_vocab_size(tokenizer) != sidecar->vocab_size) {
        rc = err_set(ERR_USAGE,
                     "tokenizer '%s' has a vocabulary of %lld, not %lld", name,
                     (long long)tokenizer_vocab_size(tokenizer),
                     (long long)sidecar->vocab_size);
        goto out;
    }
    sidecar->eos_token = tokenizer_eos(tokenizer);
    memcpy(sidecar->tokenizer_sha256, tokenizer_sha256(tokenizer),
           sizeof sidecar->tokenizer_sha256);
out:
    tokenizer_destroy(tokenizer);
    return rc;
}

enum err scan_adopt(const char *path, const char *tokenizer, int64_t vocab_size,
                    bool show, int (*stop)(void), struct scan_result *out)
{
    enum err rc = ERR_OK;
    char file[FSIO_PATH_MAX];
    struct sidecar sidecar = { .vocab_size = vocab_size, .eos_token = -1 };
    struct dataset *dataset = NULL;
    if (vocab_size < 1 || vocab_size > INT32_MAX)
        return err_set(ERR_USAGE, "vocab_size has to be in [1, %d], not %lld",
                       INT32_MAX, (long long)vocab_size);
    TRY(fsio_path(file, "%s/%s", path, SIDECAR_NAME));
    if (fsio_exists(file))
        return err_set(ERR_USAGE,
                       "%s exists already; remove it first if it is wrong",
                       file);
    TRY(scan_name_tokenizer(tokenizer, &sidecar));
    TRY(dataset_open_with(path, &sidecar, &dataset));
    TRY(scan_samples(dataset, NULL, show, stop, out));
    sidecar.samples = out->samples;
    sidecar.tokens = out->tokens;
    TRY(sidecar_write(path, &sidecar));
out:
    dataset_close(dataset);
    return rc;
}
