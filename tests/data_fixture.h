/* Small data sets for tests, in a folder of their own. */
#pragma once

#include "src/base/fsio.h"
#include "src/data/mds/mds_writer.h"
#include "src/data/set/dataset.h"
#include "tests/tap.h"

#define FIXTURE_VOCAB 257

/* A fixture that cannot be made ends the test. */
static inline void fixture_need(enum err rc)
{
    if (rc == ERR_OK)
        return;
    tap_ok(false, "fixture: %s", err_text());
    exit(1);
}

/* A path below the folder; valid until the fourth next call. */
static inline const char *fixture_path(const char *folder, const char *name)
{
    static char paths[4][FSIO_PATH_MAX];
    static int next;
    char *path = paths[next++ % 4];
    fixture_need(fsio_path(path, "%s/%s", folder, name));
    return path;
}

static inline int32_t fixture_token(int64_t sample, int64_t position)
{
    return (int32_t)((sample * 31 + position * 7) % FIXTURE_VOCAB);
}

static inline void fixture_write_file(const char *path, const void *data,
                                      size_t bytes)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL || (bytes > 0 && fwrite(data, 1, bytes, file) != bytes) ||
        fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}

/* All of a file, for the caller to free. Inlined, gcc 12 takes what points into
 * it for a pointer to the local variable. */
__attribute__((noinline, unused)) static char *fixture_read(const char *path,
                                                            size_t *bytes)
{
    char *data = NULL;
    fixture_need(fsio_read_file(path, 1 << 28, &data, bytes));
    return data;
}

static inline struct dataset *fixture_open(const char *path)
{
    struct dataset *dataset = NULL;
    fixture_need(dataset_open(path, &dataset));
    return dataset;
}

static inline struct sidecar fixture_sidecar(int64_t samples, int64_t tokens)
{
    struct sidecar sidecar = { .vocab_size = FIXTURE_VOCAB,
                               .tokenizer = "bytes",
                               .samples = samples,
                               .tokens = tokens,
                               .eos_token = 256,
                               .bos_token = -1 };
    memset(sidecar.tokenizer_sha256, 'a', 64);
    return sidecar;
}

/* A data set with samples of these lengths; hashes as in the writer's options.
 */
static inline void fixture_set(const char *path, const int64_t *lengths,
                               int64_t samples, int64_t size_limit,
                               const char *const *hashes)
{
    static const struct mds_column column = { "tokens", "ndarray:int32" };
    const struct mds_writer_options options = { &column, 1, size_limit,
                                                hashes };
    struct mds_writer *writer = NULL;
    struct sidecar sidecar = fixture_sidecar(samples, 0);
    fixture_need(fsio_mkdirs(path));
    fixture_need(mds_writer_create(path, &options, &writer));
    for (int64_t s = 0; s < samples; s++) {
        int32_t *tokens = malloc((size_t)lengths[s] * sizeof *tokens);
        for (int64_t t = 0; t < lengths[s]; t++)
            tokens[t] = fixture_token(s, t);
        fixture_need(mds_writer_add(writer, tokens, lengths[s]));
        sidecar.tokens += lengths[s];
        free(tokens);
    }
    fixture_need(mds_writer_finish(writer));
    fixture_need(sidecar_write(path, &sidecar));
    mds_writer_destroy(writer);
}

/* The same in FOLDER/name. */
static inline void fixture_dataset(const char *folder, const char *name,
                                   const int64_t *lengths, int64_t samples,
                                   int64_t size_limit, bool sha256)
{
    fixture_set(fixture_path(folder, name), lengths, samples, size_limit,
                sha256 ? mds_writer_sha256 : NULL);
}
