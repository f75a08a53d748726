/* Measures the start and the reading of MDS data sets. */
#include "src/cmd/bench_data_mds.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/base/rng.h"
#include "src/data/set/dataset.h"
#include "src/data/mds/mds_encode.h"
#include "src/data/mds/mds_writer.h"
#include "src/data/set/values.h"

#define SHARDS 10000
#define TOKENS 2048
#define SAMPLES 8192 /* 64 MiB */
#define VOCAB 257
#define ROUNDS 3

static enum err describe(const char *folder, int64_t samples)
{
    struct sidecar sidecar = { .vocab_size = VOCAB,
                               .tokenizer = "bytes",
                               .samples = samples,
                               .tokens = samples * TOKENS,
                               .longest = TOKENS,
                               .eos_token = 256,
                               .bos_token = -1 };
    memset(sidecar.tokenizer_sha256, 'a', 64);
    return sidecar_write(folder, &sidecar);
}

/* Letters as they are in texts, so that they pack as texts do. */
static void letters(int32_t *tokens, int64_t sample)
{
    static const char often[] = " etaoinshrdlu etaoinshr etaoins the and of";
    for (int64_t t = 0; t < TOKENS; t++) {
        uint64_t draw = rng_u64(3, (uint64_t)sample, (uint64_t)t);
        tokens[t] = often[draw % (sizeof often - 1)];
    }
}

static enum err make_set(const char *folder, const char *compression,
                         int64_t samples)
{
    static const struct mds_column tokens = { "tokens", "ndarray:int32" };
    struct mds_writer_options options = { &tokens, 1, 1 << 24, compression,
                                          "xxh64" };
    enum err rc = ERR_OK;
    int32_t sample[TOKENS];
    struct mds_writer *writer = NULL;
    TRY_OUT(fsio_mkdirs(folder));
    TRY_OUT(mds_writer_create(folder, &options, &writer));
    for (int64_t s = 0; s < samples; s++) {
        letters(sample, s);
        TRY_OUT(mds_writer_add(writer, sample, TOKENS));
    }
    TRY_OUT(mds_writer_finish(writer));
    TRY_OUT(describe(folder, samples));
out:
    mds_writer_destroy(writer);
    return rc;
}

/* One shard under 10,000 names. */
static enum err make_shards(const char *folder)
{
    enum err rc = ERR_OK;
    int32_t tokens[TOKENS] = { 1 };
    char first[FSIO_PATH_MAX], path[FSIO_PATH_MAX], name[64];
    struct mds_writer *one = NULL, *all = NULL;
    TRY_OUT(fsio_mkdirs(folder));
    TRY_OUT(fsio_path(first, "%s/shard.00000.mds", folder));
    TRY_OUT(mds_writer_create_tokens(folder, 1 << 20, true, &one));
    TRY_OUT(mds_writer_create_tokens(folder, 1 << 20, true, &all));
    TRY_OUT(mds_writer_add(one, tokens, TOKENS));
    TRY_OUT(mds_writer_finish(one));
    json_t *entry = mds_writer_shard(one, 0);
    for (int s = 0; s < SHARDS; s++) {
        snprintf(name, sizeof name, "shard.%05d.mds", s);
        TRY_OUT(fsio_path(path, "%s/%s", folder, name));
        if (s > 0 && link(first, path) != 0) {
            rc = err_errno("%s: link", path);
            goto out;
        }
        json_object_set_new(json_object_get(entry, "raw_data"), "basename",
                            json_string(name));
        TRY_OUT(mds_writer_again(all, entry));
    }
    TRY_OUT(mds_writer_finish(all));
    TRY_OUT(describe(folder, SHARDS));
out:
    mds_writer_destroy(one);
    mds_writer_destroy(all);
    return rc;
}

/* Open a set and read its first `count` samples; *bytes of all shards. */
static enum err read_set(const char *folder, int64_t count, double *seconds,
                         double *bytes)
{
    enum err rc = ERR_OK;
    int32_t tokens[TOKENS];
    int64_t length = 0;
    struct dataset *dataset = NULL;
    double begin = clock_now();
    TRY_OUT(dataset_open(folder, &dataset));
    for (int64_t s = 0; s < count; s++)
        TRY_OUT(dataset_read(dataset, s, tokens, TOKENS, &length));
    *seconds = clock_now() - begin;
    *bytes = (double)dataset_contents(dataset)->bytes;
out:
    dataset_close(dataset);
    return rc;
}

/* The best of some rounds. */
static enum err read_rate(const char *folder, double *mb_per_s)
{
    double seconds = 0.0, bytes = 0.0;
    *mb_per_s = 0.0;
    for (int round = 0; round < ROUNDS; round++) {
        TRY(read_set(folder, SAMPLES, &seconds, &bytes));
        if (bytes / seconds / 1e6 > *mb_per_s)
            *mb_per_s = bytes / seconds / 1e6;
    }
    return ERR_OK;
}

enum err bench_data_mds(const struct bench_options *options, json_t *result)
{
    char many[FSIO_PATH_MAX], raw[FSIO_PATH_MAX], zstd[FSIO_PATH_MAX];
    double start_s = 0.0, bytes = 0.0, plain = 0.0, packed = 0.0;
    TRY(fsio_path(many, "%s/shards", options->dir));
    TRY(fsio_path(raw, "%s/raw", options->dir));
    TRY(fsio_path(zstd, "%s/zstd", options->dir));
    TRY(make_shards(many));
    TRY(read_set(many, 1, &start_s, &bytes));
    TRY(make_set(raw, NULL, SAMPLES));
    TRY(read_rate(raw, &plain));
    TRY(make_set(zstd, "zstd:3", SAMPLES));
    TRY(read_rate(zstd, &packed));
    if (json_object_set_new(result, "start_10k_shards_s", json_real(start_s)) !=
            0 ||
        json_object_set_new(result, "read_mb_per_s", json_real(plain)) != 0 ||
        json_object_set_new(result, "read_zstd_mb_per_s", json_real(packed)) !=
            0)
        return err_set(ERR_MEMORY, "out of memory");
    return ERR_OK;
}
