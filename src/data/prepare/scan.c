/* Passes over whole data sets: to count, to verify, to adopt. What one sample's
 * bytes mean is the format's business.
 *
 * There is one loop over all samples (scan_samples()), which shows progress,
 * hears a stop, and shows each sample to whoever counts. Reading is checking: a
 * token outside the vocabulary ends it.
 *
 * To adopt a set that another program has written is to write down what its
 * files do not say: tokenizer, vocabulary, the token that divides documents.
 * Whoever mistypes one of these gets a model that learns rubbish, so all that
 * can be compared with the data is: every token with the vocabulary, the
 * dividing token with whether it occurs. Shards without checksums get digests,
 * for the identity of a set must cover the bytes that are trained on. */
#include "src/data/prepare/scan.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/digest.h"
#include "src/base/fsio.h"
#include "src/base/globs.h"
#include "src/base/new.h"
#include "src/data/prepare/progress.h"
#include "src/data/set/sidecar.h"
#include "src/data/set/values.h"

/* Samples between looks at the clock and the stop flag. */
#define SCAN_POLL_SAMPLES 256

enum err scan_read(struct dataset *dataset, int64_t index, int32_t **tokens,
                   int64_t *capacity, int64_t *length,
                   struct dataset_marks *marks)
{
    TRY(dataset_read_marked(dataset, index, *tokens, *capacity, length, marks));
    if (*length <= *capacity)
        return ERR_OK;
    TRY(array_room(tokens, capacity, *length));
    return dataset_read_marked(dataset, index, *tokens, *capacity, length,
                               marks);
}

enum err scan_tokenizer(const struct dataset *dataset, struct tokenizer **out)
{
    assert(dataset != NULL && out != NULL);
    const char *file = dataset_tokenizer_file(dataset);
    *out = NULL;
    if (file[0] != '\0')
        return tokenizer_create(file, out);
    /* without a file it may be the built-in one, which its digest tells */
    TRY(tokenizer_create(TOKENIZER_DEFAULT, out));
    if (strcmp(tokenizer_sha256(*out),
               dataset_sidecar(dataset)->tokenizer_sha256) == 0)
        return ERR_OK;
    tokenizer_destroy(*out);
    *out = NULL;
    return ERR_OK;
}

static enum err scan_poll(struct dataset *dataset, int (*stop)(void),
                          struct progress *progress, int64_t done)
{
    progress_update(progress, done);
    if (stop != NULL && stop() != 0)
        return err_set(ERR_IO, "%s: interrupted", dataset_path(dataset));
    return ERR_OK;
}

enum err scan_samples(struct dataset *dataset, const struct scan_visit *visit,
                      bool show, int (*stop)(void), struct scan_result *out)
{
    enum err rc = ERR_OK;
    int32_t *tokens = NULL;
    int64_t capacity = 0;
    struct progress progress;
    struct scan_result result = { .samples =
                                      dataset_contents(dataset)->samples };
    progress_begin(&progress, "reading", "samples", result.samples);
    for (int64_t i = 0; i < result.samples; i++) {
        int64_t length = 0;
        struct dataset_marks marks;
        if (i % SCAN_POLL_SAMPLES == 0)
            TRY_OUT(scan_poll(dataset, stop, show ? &progress : NULL, i));
        TRY_OUT(scan_read(dataset, i, &tokens, &capacity, &length, &marks));
        if (visit != NULL)
            visit->sample(visit->self, tokens, length, &marks);
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
    int64_t shards = dataset_contents(dataset)->shards;
    progress_begin(&progress, "checksums", "shards", shards);
    for (int64_t s = 0; s < shards; s++) {
        TRY_OUT(scan_poll(dataset, stop, show ? &progress : NULL, s));
        TRY_OUT(dataset_verify_shard(dataset, s, NULL));
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
    if (out->tokens != dataset_sidecar(dataset)->tokens)
        rc = err_set(ERR_DATA,
                     "%s/%s: says %lld tokens, but the shards hold %lld; copy "
                     "the data set again",
                     dataset_path(dataset), SIDECAR_NAME,
                     (long long)dataset_sidecar(dataset)->tokens,
                     (long long)out->tokens);
    return rc;
}

/* A tokenizer's file, rather than a name: it has a folder or ends as one does. */
static bool scan_is_file(const char *tokenizer)
{
    return tokenizer != NULL && globs_match("*/* ?*.json ?*.model", tokenizer);
}

static enum err scan_put_name(struct sidecar *sidecar, const char *name)
{
    if (name[0] == '\0' || strlen(name) >= sizeof sidecar->tokenizer)
        return err_set(ERR_USAGE,
                       "a tokenizer's name has 1 to %zu bytes: '%.80s'",
                       sizeof sidecar->tokenizer - 1, name);
    snprintf(sidecar->tokenizer, sizeof sidecar->tokenizer, "%s", name);
    return ERR_OK;
}

/* The tokenizer is here: one that was read from a file, or the built-in one. */
static enum err scan_put_tokenizer(const struct scan_adoption *adoption,
                                   const struct tokenizer *tokenizer,
                                   struct sidecar *sidecar)
{
    size_t bytes = 0;
    int64_t size = tokenizer_vocab_size(tokenizer);
    bool built_in = tokenizer_file(tokenizer, &bytes) == NULL;
    TRY(scan_put_name(sidecar, tokenizer_name(tokenizer)));
    memcpy(sidecar->tokenizer_sha256, tokenizer_sha256(tokenizer),
           sizeof sidecar->tokenizer_sha256);
    /* a model's vocabulary is often padded, so a file's may be smaller */
    if (built_in ? sidecar->vocab_size != size : sidecar->vocab_size < size)
        return err_set(ERR_USAGE,
                       "tokenizer '%s' has a vocabulary of %lld, not %lld",
                       sidecar->tokenizer, (long long)size,
                       (long long)sidecar->vocab_size);
    if (built_in && adoption->eos_token < 0 && adoption->bos_token < 0)
        sidecar->eos_token = tokenizer_eos(tokenizer);
    return ERR_OK;
}

static enum err scan_name_tokenizer(const struct scan_adoption *adoption,
                                    const struct tokenizer *tokenizer,
                                    struct sidecar *sidecar)
{
    char text[160];
    size_t bytes = 0;
    const char *name = adoption->tokenizer;
    int64_t vocab_size = tokenizer_vocab_size(tokenizer);
    if (tokenizer_file(tokenizer, &bytes) != NULL ||
        (name != NULL && strcmp(name, tokenizer_name(tokenizer)) == 0) ||
        (name == NULL && adoption->vocab_size == vocab_size))
        return scan_put_tokenizer(adoption, tokenizer, sidecar);
    if (name == NULL)
        return err_set(ERR_USAGE,
                       "which tokenizer has a vocabulary of %lld? Name it with "
                       "--tokenizer NAME, such as gpt-neox-20b; the name only "
                       "has to be the same for all data of a run",
                       (long long)adoption->vocab_size);
    /* of a tokenizer that is not here the name stands for it: its digest is
     * that of the name and the vocabulary, the same for all data that were
     * adopted so */
    TRY(scan_put_name(sidecar, name));
    snprintf(text, sizeof text, "tokenizer %s, vocab_size %lld\n", name,
             (long long)sidecar->vocab_size);
    return digest_bytes(text, strlen(text), sidecar->tokenizer_sha256);
}

static enum err scan_check_adoption(const struct scan_adoption *adoption,
                                    struct sidecar *sidecar)
{
    int64_t vocab_size = adoption->vocab_size;
    if (vocab_size < 1 || vocab_size > SIDECAR_VOCAB_MAX)
        return err_set(ERR_USAGE,
                       "--vocab-size has to be in [1, %lld], not %lld",
                       (long long)SIDECAR_VOCAB_MAX, (long long)vocab_size);
    if (adoption->eos_token >= 0 && adoption->bos_token >= 0)
        return err_set(ERR_USAGE, "--eos-token-id and --bos-token-id: name one "
                                  "of them, the one that every document has");
    if (adoption->eos_token >= vocab_size || adoption->bos_token >= vocab_size)
        return err_set(
            ERR_USAGE, "--%s-token-id has to be in the vocabulary [0, %lld)",
            adoption->eos_token >= 0 ? "eos" : "bos", (long long)vocab_size);
    *sidecar = (struct sidecar){ .vocab_size = vocab_size,
                                 .eos_token = adoption->eos_token,
                                 .bos_token = adoption->bos_token,
                                 .adopted = true };
    if (adoption->token_type == NULL)
        return ERR_OK;
    sidecar->token_type = values_code(adoption->token_type);
    if (sidecar->token_type == 0)
        return err_set(ERR_USAGE,
                       "--token-type is one of int8, uint8, int16, uint16, "
                       "int32, uint32, int64 and uint64, not '%.40s'",
                       adoption->token_type);
    return ERR_OK;
}

/* Digests of all shards, where not every one has a checksum. */
static enum err scan_hash_shards(struct dataset *dataset,
                                 struct sidecar *sidecar)
{
    char hex[65];
    int64_t shards = dataset_contents(dataset)->shards;
    if (dataset_contents(dataset)->unchecked == 0)
        return ERR_OK;
    TRY(new_room(&sidecar->shards_sha256, (size_t)shards * 64));
    sidecar->shards_hashed = shards;
    for (int64_t s = 0; s < shards; s++) {
        TRY(dataset_shard_sha256(dataset, s, hex));
        memcpy(sidecar->shards_sha256 + 64 * s, hex, 64);
    }
    return ERR_OK;
}

/* Without one given, that of the tokenizer's file which the data have. */
static void scan_choose_divider(const struct scan_adoption *adoption,
                                const struct tokenizer *tokenizer,
                                const int64_t *counts, struct sidecar *sidecar)
{
    int32_t eos = tokenizer_eos(tokenizer), bos = tokenizer_bos(tokenizer);
    if (!scan_is_file(adoption->tokenizer) || adoption->eos_token >= 0 ||
        adoption->bos_token >= 0)
        return;
    if (eos >= 0 && counts[eos] > 0)
        sidecar->eos_token = eos;
    else if (bos >= 0 && counts[bos] > 0)
        sidecar->bos_token = bos;
}

/* A token that divides documents and that no document has was mistyped. */
static enum err scan_check_divider(const struct dataset *dataset,
                                   const struct scan_adoption *adoption,
                                   const int64_t *counts)
{
    int64_t token =
        adoption->eos_token >= 0 ? adoption->eos_token : adoption->bos_token;
    if (token < 0 || counts[token] > 0)
        return ERR_OK;
    return err_set(ERR_DATA,
                   "%s: token %lld (--%s-token-id) occurs nowhere in it, so it "
                   "divides no documents; name another one or none",
                   dataset_path(dataset), (long long)token,
                   adoption->eos_token >= 0 ? "eos" : "bos");
}

static void scan_count(void *self, const int32_t *tokens, int64_t count,
                       const struct dataset_marks *marks)
{
    int64_t *counts = self;
    (void)marks;
    for (int64_t t = 0; t < count; t++)
        counts[tokens[t]]++;
}

enum err scan_adopt(const char *path, const struct scan_adoption *given,
                    bool show, int (*stop)(void), struct scan_result *out)
{
    enum err rc = ERR_OK;
    char file[FSIO_PATH_MAX];
    struct scan_adoption adoption = *given;
    struct sidecar sidecar = { 0 };
    struct tokenizer *tokenizer = NULL;
    struct dataset *dataset = NULL;
    int64_t *counts = NULL;
    bool from_file = scan_is_file(given->tokenizer);
    TRY_OUT(tokenizer_create(from_file ? given->tokenizer : TOKENIZER_DEFAULT,
                             &tokenizer));
    if (from_file && adoption.vocab_size == 0)
        adoption.vocab_size = tokenizer_vocab_size(tokenizer);
    TRY_OUT(scan_check_adoption(&adoption, &sidecar));
    TRY_OUT(fsio_path(file, "%s/%s", path, SIDECAR_NAME));
    if (fsio_exists(file))
        TRY_OUT(err_set(ERR_USAGE,
                        "%s exists already; remove it first if it is wrong",
                        file));
    TRY_OUT(scan_name_tokenizer(&adoption, tokenizer, &sidecar));
    TRY_OUT(dataset_open_as(path, &sidecar, true, &cache_defaults, &dataset));
    TRY_OUT(new_zeroed(&counts, (size_t)sidecar.vocab_size));
    TRY_OUT(scan_shards(dataset, show, stop));
    const struct scan_visit visit = { scan_count, counts };
    TRY_OUT(scan_samples(dataset, &visit, show, stop, out));
    TRY_OUT(scan_check_divider(dataset, &adoption, counts));
    scan_choose_divider(&adoption, tokenizer, counts, &sidecar);
    TRY_OUT(scan_hash_shards(dataset, &sidecar));
    sidecar.samples = out->samples;
    sidecar.tokens = out->tokens;
    sidecar.longest = out->longest;
    if (from_file)
        TRY_OUT(tokenizer_copy_write(path, tokenizer));
    TRY_OUT(sidecar_write(path, &sidecar));
out:
    sidecar_release(&sidecar);
    free(counts);
    dataset_close(dataset);
    tokenizer_destroy(tokenizer);
    return rc;
}
