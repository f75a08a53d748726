#include "src/data/dataset.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/digest.h"
#include "src/base/fsio.h"
#include "src/data/mds.h"
#include "src/data/mds_index.h"

struct dataset_map {
    struct mds_shard *shard; /* NULL: not mapped */
    uint64_t used;           /* when last */
};

struct dataset {
    char path[FSIO_PATH_MAX];
    struct sidecar sidecar;
    char id[65];
    struct mds_index *index;
    int64_t *first;           /* first sample of each shard, and the total */
    struct dataset_map *maps; /* one per shard */
    int64_t mapped;           /* how many are */
    uint64_t clock;
};

static enum err dataset_identify(struct dataset *dataset)
{
    enum err rc = ERR_OK;
    struct digest *digest = NULL;
    const char *tokenizer = dataset->sidecar.tokenizer_sha256;
    TRY(digest_create(&digest));
    TRY(digest_update(digest, dataset->index->text,
                      dataset->index->text_bytes));
    TRY(digest_update(digest, tokenizer, strlen(tokenizer)));
    TRY(digest_finish(digest, dataset->id));
out:
    digest_destroy(digest);
    return rc;
}

static enum err dataset_number_samples(struct dataset *dataset)
{
    const struct mds_index *index = dataset->index;
    size_t count = (size_t)index->shards + 1;
    dataset->first = calloc(count, sizeof *dataset->first);
    dataset->maps = calloc(count, sizeof *dataset->maps);
    if (dataset->first == NULL || dataset->maps == NULL)
        return err_set(ERR_MEMORY, "%s: no memory for %zu shards",
                       dataset->path, count);
    for (int64_t s = 0; s < index->shards; s++)
        dataset->first[s + 1] = dataset->first[s] + index->shard[s].samples;
    return ERR_OK;
}

/* A folder made with a held-out part is a likely mistake. */
static enum err dataset_check_path(const char *path)
{
    enum err rc = ERR_OK;
    char index[FSIO_PATH_MAX];
    char train[FSIO_PATH_MAX];
    TRY(fsio_path(index, "%s/%s", path, MDS_INDEX_NAME));
    TRY(fsio_path(train, "%s/train/%s", path, MDS_INDEX_NAME));
    if (!fsio_exists(index) && fsio_exists(train))
        rc = err_set(ERR_DATA,
                     "%s holds two data sets; name one of them: %s/train or "
                     "%s/eval",
                     path, path, path);
out:
    return rc;
}

enum err dataset_open_with(const char *path, const struct sidecar *sidecar,
                           struct dataset **out)
{
    assert(path != NULL && sidecar != NULL && out != NULL);
    enum err rc = ERR_OK;
    struct dataset *dataset = calloc(1, sizeof *dataset);
    if (dataset == NULL)
        return err_set(ERR_MEMORY, "%s: out of memory", path);
    dataset->sidecar = *sidecar;
    TRY(fsio_path(dataset->path, "%s", path));
    TRY(mds_index_read(path, &dataset->index));
    TRY(dataset_number_samples(dataset));
    TRY(dataset_identify(dataset));
    *out = dataset;
    dataset = NULL;
out:
    dataset_close(dataset);
    return rc;
}

enum err dataset_open(const char *path, struct dataset **out)
{
    assert(path != NULL && out != NULL);
    enum err rc = ERR_OK;
    char index[FSIO_PATH_MAX];
    struct sidecar sidecar;
    struct dataset *dataset = NULL;
    TRY(dataset_check_path(path));
    TRY(fsio_path(index, "%s/%s", path, MDS_INDEX_NAME));
    if (!fsio_exists(index))
        return err_set(ERR_DATA,
                       "%s: no such file; make a data set with: tessera-data "
                       "tokenize --out %s FILE...",
                       index, path);
    TRY(sidecar_read(path, &sidecar));
    TRY(dataset_open_with(path, &sidecar, &dataset));
    if (sidecar.samples != dataset->index->samples) {
        rc = err_set(ERR_DATA,
                     "%s/%s: says %lld samples, but the index has %lld; copy "
                     "the data set again",
                     path, SIDECAR_NAME, (long long)sidecar.samples,
                     (long long)dataset->index->samples);
        goto out;
    }
    *out = dataset;
    dataset = NULL;
out:
    dataset_close(dataset);
    return rc;
}

void dataset_close(struct dataset *dataset)
{
    if (dataset == NULL)
        return;
    for (int64_t s = 0; dataset->maps != NULL && s < dataset->index->shards;
         s++)
        mds_shard_close(dataset->maps[s].shard);
    free(dataset->maps);
    mds_index_destroy(dataset->index);
    free(dataset->first);
    free(dataset);
}

int64_t dataset_samples(const struct dataset *dataset)
{
    return dataset->index->samples;
}

int64_t dataset_tokens(const struct dataset *dataset)
{
    return dataset->sidecar.tokens;
}

int64_t dataset_shards(const struct dataset *dataset)
{
    return dataset->index->shards;
}

int64_t dataset_vocab_size(const struct dataset *dataset)
{
    return dataset->sidecar.vocab_size;
}

int64_t dataset_eos_token(const struct dataset *dataset)
{
    return dataset->sidecar.eos_token;
}

const char *dataset_id(const struct dataset *dataset)
{
    return dataset->id;
}

const char *dataset_tokenizer_sha256(const struct dataset *dataset)
{
    return dataset->sidecar.tokenizer_sha256;
}

const char *dataset_tokenizer(const struct dataset *dataset)
{
    return dataset->sidecar.tokenizer;
}

const char *dataset_path(const struct dataset *dataset)
{
    return dataset->path;
}

/* The last shard whose first sample is at or before `sample`; of several with
 * the same first sample that is the only one with samples. */
static int64_t dataset_find_shard(const struct dataset *dataset, int64_t sample)
{
    int64_t low = 0, high = dataset->index->shards - 1;
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (dataset->first[middle] <= sample)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Unmap the shard that was not used for longest. */
static void dataset_evict(struct dataset *dataset)
{
    struct dataset_map *oldest = NULL;
    for (int64_t s = 0; s < dataset->index->shards; s++) {
        struct dataset_map *map = &dataset->maps[s];
        if (map->shard != NULL && (oldest == NULL || map->used < oldest->used))
            oldest = map;
    }
    assert(oldest != NULL);
    mds_shard_close(oldest->shard);
    oldest->shard = NULL;
    dataset->mapped--;
}

static enum err dataset_map_shard(struct dataset *dataset, int64_t index,
                                  struct mds_shard **out)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    struct dataset_map *map = &dataset->maps[index];
    if (map->shard == NULL) {
        const struct mds_shard_info *info = &dataset->index->shard[index];
        if (dataset->mapped == DATASET_MAPS_MAX)
            dataset_evict(dataset);
        TRY(fsio_path(path, "%s/%s", dataset->path, info->basename));
        TRY(mds_shard_open(path, info, &map->shard));
        dataset->mapped++;
    }
    map->used = ++dataset->clock;
    *out = map->shard;
out:
    return rc;
}

enum err dataset_read(struct dataset *dataset, int64_t index, int32_t *tokens,
                      int64_t capacity, int64_t *length)
{
    enum err rc = ERR_OK;
    struct mds_shard *shard = NULL;
    const uint8_t *values = NULL;
    assert(index >= 0 && index < dataset->index->samples);
    assert(capacity >= 0 && (tokens != NULL || capacity == 0));
    int64_t s = dataset_find_shard(dataset, index);
    int64_t sample = index - dataset->first[s];
    TRY(dataset_map_shard(dataset, s, &shard));
    TRY(mds_shard_tokens(shard, sample, &values, length));
    int64_t count = *length < capacity ? *length : capacity;
    if (count > 0)
        memcpy(tokens, values, (size_t)count * sizeof *tokens);
    int64_t vocab_size = dataset->sidecar.vocab_size;
    for (int64_t t = 0; t < count; t++)
        if (tokens[t] < 0 || tokens[t] >= vocab_size)
            return err_set(ERR_DATA,
                           "%s: sample %lld: token %d at position %lld is "
                           "outside the vocabulary [0, %lld) of %s",
                           mds_shard_path(shard), (long long)sample, tokens[t],
                           (long long)t, (long long)vocab_size, SIDECAR_NAME);
out:
    return rc;
}

enum err dataset_verify_shard(struct dataset *dataset, int64_t index)
{
    enum err rc = ERR_OK;
    struct mds_shard *shard = NULL;
    assert(index >= 0 && index < dataset->index->shards);
    TRY(dataset_map_shard(dataset, index, &shard));
    TRY(mds_shard_verify(shard));
out:
    return rc;
}
