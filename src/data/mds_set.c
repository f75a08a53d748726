/* MDS as a format of data sets: an index.json, and shard files of which as many
 * are open at a time as regular_limit() says. How an index, a shard and a
 * sample are written is known to mds_index.c, mds.c and mds_encoding.c. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/data/checksum.h"
#include "src/data/dataset_format.h"
#include "src/data/mds.h"
#include "src/data/mds_cache.h"
#include "src/data/mds_index.h"
#include "src/data/regular.h"

struct mds_set_file {
    struct mds_shard *shard; /* NULL: not open */
    bool known;              /* its head is right */
    uint64_t used;           /* when last */
};

struct mds_set {
    char path[FSIO_PATH_MAX];
    struct mds_index *index;
    int64_t *first;             /* first sample of each shard, and the total */
    struct mds_set_file *files; /* one per shard */
    int64_t open;               /* how many are */
    int64_t open_max;
    uint64_t clock;
    int token_type;             /* of tokens in bytes; 0: int64 */
    struct cache *cache;        /* lent; NULL: all is in the folder */
    bool remote;                /* nothing but the index is */
    struct cache_shard *shards; /* as the cache has them */
    struct mds_buffer buffer;
};

static enum err mds_set_number_samples(struct mds_set *set)
{
    const struct mds_index *index = set->index;
    size_t count = (size_t)index->shards + 1;
    if (index->samples == 0)
        return err_set(ERR_DATA,
                       "%s: there are no samples in it; make another data set "
                       "with tessera-data tokenize",
                       set->path);
    set->first = calloc(count, sizeof *set->first);
    set->files = calloc(count, sizeof *set->files);
    if (set->first == NULL || set->files == NULL)
        return err_set(ERR_MEMORY, "%s: no memory for %zu shards", set->path,
                       count);
    for (int64_t s = 0; s < index->shards; s++)
        set->first[s + 1] = set->first[s] + index->shard[s].samples;
    assert(set->first[index->shards] == index->samples);
    return ERR_OK;
}

/* The sidecar may name the type of tokens that are bytes. */
static enum err mds_set_token_type(struct mds_set *set, int type)
{
    for (int64_t l = 0; type != 0 && l < set->index->layouts; l++) {
        const struct mds_layout *layout = set->index->layout[l];
        const struct mds_encoding *tokens =
            &layout->column[layout->role[MDS_TOKENS]].encoding;
        if (tokens->kind != MDS_BYTES)
            return err_set(ERR_USAGE,
                           "%s: a token type (--token-type) is for columns of "
                           "'bytes'; this one names its own, %s",
                           set->path,
                           tokens->type != 0 ? values_type(tokens->type)->name
                                             : "in every sample");
    }
    set->token_type = type;
    return ERR_OK;
}

/* What only the sidecar knows of the shards. */
static enum err mds_set_describe_shards(struct mds_set *set,
                                        const struct sidecar *sidecar)
{
    char hex[65] = "";
    struct mds_index *index = set->index;
    int64_t hashed = sidecar->shards_hashed;
    if (hashed != 0 && hashed != index->shards)
        return err_set(ERR_DATA,
                       "%s/%s: has digests of %lld shards, but the index has "
                       "%lld; copy the data set again",
                       set->path, SIDECAR_NAME, (long long)hashed,
                       (long long)index->shards);
    for (int64_t s = 0; s < hashed; s++) {
        memcpy(hex, sidecar->shards_sha256 + 64 * s, 64);
        enum err rc = mds_index_add_hash(&index->shard[s], "sha256", hex);
        if (rc != ERR_OK)
            return err_prefix(rc, "%s/%s", set->path, SIDECAR_NAME);
    }
    return ERR_OK;
}

static void mds_set_count(const struct mds_index *index,
                          struct dataset_contents *out)
{
    bool fixed = true; /* the index has the length of every sample */
    *out = (struct dataset_contents){ .samples = index->samples,
                                      .shards = index->shards };
    for (int64_t s = 0; s < index->shards; s++) {
        const struct mds_shard_info *info = &index->shard[s];
        out->bytes += info->bytes;
        if (info->bytes > out->largest)
            out->largest = info->bytes;
        int64_t count =
            info->layout->column[info->layout->role[MDS_TOKENS]].encoding.count;
        fixed = fixed && count > 0;
        if (count > out->longest)
            out->longest = count;
        bool known = false;
        for (int h = 0; h < info->hashes; h++)
            known = known || checksum_digits(info->hash[h].name) > 0;
        out->unchecked += !known;
    }
    if (!fixed)
        out->longest = 0;
}

static void mds_set_close(void *state)
{
    struct mds_set *set = state;
    if (set == NULL)
        return;
    for (int64_t s = 0; set->files != NULL && s < set->index->shards; s++)
        mds_shard_close(set->files[s].shard);
    free(set->buffer.data);
    free(set->shards);
    free(set->files);
    free(set->first);
    mds_index_destroy(set->index);
    free(set);
}

/* Where the shards come from, if not from the folder. */
static enum err mds_set_find_cache(struct mds_set *set,
                                   struct dataset_access *access)
{
    set->remote = access->cache != NULL;
    if (!set->remote)
        TRY(mds_cache_open(set->path, set->index, access->options,
                           &access->cache));
    set->cache = access->cache;
    if (set->cache == NULL)
        return ERR_OK;
    TRY(mds_cache_shards(set->index, &set->shards));
    TRY(cache_describe(set->cache, set->shards, set->index->shards));
    set->open_max = cache_open_max(set->cache, set->open_max);
    return ERR_OK;
}

static bool mds_set_is_cached(const struct mds_set *set, int64_t shard)
{
    return set->cache != NULL &&
           (set->remote ||
            mds_cache_is_packed(set->path, &set->index->shard[shard]));
}

static enum err mds_set_open(const char *folder, const struct sidecar *sidecar,
                             struct dataset_access *access,
                             struct dataset_contents *contents, void **state)
{
    enum err rc = ERR_OK;
    struct mds_set *set = calloc(1, sizeof *set);
    if (set == NULL)
        return err_set(ERR_MEMORY, "%s: out of memory", folder);
    TRY_OUT(fsio_path(set->path, "%s", folder));
    TRY_OUT(mds_index_read(folder, &set->index));
    TRY_OUT(mds_index_check(set->index, folder));
    TRY_OUT(mds_set_number_samples(set));
    TRY_OUT(mds_set_token_type(set, sidecar->token_type));
    TRY_OUT(mds_set_describe_shards(set, sidecar));
    TRY_OUT(regular_limit(&set->open_max));
    TRY_OUT(mds_set_find_cache(set, access));
    mds_set_count(set->index, contents);
    *state = set;
    set = NULL;
out:
    mds_set_close(set);
    return rc;
}

static enum err mds_set_identify(const void *state, struct digest *digest)
{
    const struct mds_index *index = ((const struct mds_set *)state)->index;
    return digest_update(digest, index->text, index->text_bytes);
}

static int64_t mds_set_samples(const void *state, int64_t index)
{
    return ((const struct mds_set *)state)->index->shard[index].samples;
}

static enum err mds_set_shard_path(const struct mds_set *set, int64_t index,
                                   char path[FSIO_PATH_MAX])
{
    return fsio_path(path, "%s/%s", set->path,
                     set->index->shard[index].basename);
}

static enum err mds_set_look(const void *state, int64_t index)
{
    const struct mds_set *set = state;
    char path[FSIO_PATH_MAX];
    if (mds_set_is_cached(set, index)) /* what is fetched is verified then */
        return set->remote
                   ? ERR_OK
                   : mds_cache_look(set->path, &set->index->shard[index]);
    TRY(mds_set_shard_path(set, index, path));
    return mds_shard_check(path, &set->index->shard[index]);
}

/* The last shard whose first sample is at or before `sample`; of several with
 * the same first sample that is the only one with samples. */
static int64_t mds_set_find_shard(const struct mds_set *set, int64_t sample)
{
    int64_t low = 0, high = set->index->shards - 1;
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (set->first[middle] <= sample)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Close the shard that was not used for longest. */
static void mds_set_evict(struct mds_set *set)
{
    struct mds_set_file *oldest = NULL;
    for (int64_t s = 0; s < set->index->shards; s++) {
        struct mds_set_file *file = &set->files[s];
        if (file->shard != NULL &&
            (oldest == NULL || file->used < oldest->used))
            oldest = file;
    }
    assert(oldest != NULL);
    mds_shard_close(oldest->shard);
    oldest->shard = NULL;
    set->open--;
}

/* The file of an open shard may lose its name, but nothing else. */
static enum err mds_set_open_cached(struct mds_set *set, int64_t index,
                                    bool known, struct mds_shard **out)
{
    struct cache_hold hold;
    TRY(cache_hold(set->cache, index, &hold));
    enum err rc =
        mds_shard_open(hold.path, &set->index->shard[index], known, out);
    cache_release(&hold);
    return rc;
}

static enum err mds_set_open_file(struct mds_set *set, int64_t index,
                                  bool known, struct mds_shard **out)
{
    char path[FSIO_PATH_MAX];
    if (mds_set_is_cached(set, index))
        return mds_set_open_cached(set, index, known, out);
    TRY(mds_set_shard_path(set, index, path));
    return mds_shard_open(path, &set->index->shard[index], known, out);
}

static enum err mds_set_open_shard(struct mds_set *set, int64_t index,
                                   struct mds_shard **out)
{
    struct mds_set_file *file = &set->files[index];
    assert(set->open >= 0 && set->open <= set->open_max);
    if (file->shard == NULL) {
        if (set->open == set->open_max)
            mds_set_evict(set);
        TRY(mds_set_open_file(set, index, file->known, &file->shard));
        file->known = true;
        set->open++;
    }
    file->used = ++set->clock;
    *out = file->shard;
    return ERR_OK;
}

static enum err mds_set_read(void *state, int64_t index,
                             struct dataset_sample *out)
{
    struct mds_set *set = state;
    struct mds_shard *shard = NULL;
    struct mds_sample sample;
    int64_t s = mds_set_find_shard(set, index);
    assert(index >= set->first[s] && index < set->first[s + 1]);
    out->number = index - set->first[s];
    TRY(mds_set_open_shard(set, s, &shard));
    out->file = mds_shard_path(shard);
    TRY(mds_shard_read(shard, out->number, set->token_type, &set->buffer,
                       &sample));
    out->values = sample.value[MDS_TOKENS];
    out->loss_mask = sample.value[MDS_LOSS_MASK];
    out->lengths = sample.value[MDS_LENGTHS];
    return ERR_OK;
}

static void mds_set_want(const void *state, int64_t sample)
{
    const struct mds_set *set = state;
    if (set->cache != NULL) {
        int64_t shard = mds_set_find_shard(set, sample);
        if (mds_set_is_cached(set, shard))
            cache_want(set->cache, shard);
    }
}

static enum err mds_set_verify(void *state, int64_t index,
                               const struct dataset_watch *watch)
{
    struct mds_shard *shard = NULL;
    TRY(mds_set_open_shard(state, index, &shard));
    return mds_shard_verify(shard, watch);
}

static enum err mds_set_sha256(void *state, int64_t index, char hex[65])
{
    struct mds_shard *shard = NULL;
    TRY(mds_set_open_shard(state, index, &shard));
    return mds_shard_sha256(shard, hex);
}

/* Is `name` one of "a, b, c"? */
static bool mds_set_is_listed(const char *names, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = names; (at = strstr(at, name)) != NULL; at++)
        if ((at == names || at[-1] == ' ') &&
            (at[length] == '\0' || at[length] == ','))
            return true;
    return false;
}

static void mds_set_checksums(const void *state, bool known, char *names,
                              size_t bytes)
{
    const struct mds_index *index = ((const struct mds_set *)state)->index;
    names[0] = '\0';
    for (int64_t s = 0; s < index->shards; s++) {
        const struct mds_shard_info *info = &index->shard[s];
        for (int h = 0; h < info->hashes; h++) {
            const char *name = info->hash[h].name;
            size_t length = strlen(names);
            if ((checksum_digits(name) > 0) == known &&
                !mds_set_is_listed(names, name))
                snprintf(names + length, bytes - length, "%s%s",
                         length > 0 ? ", " : "", name);
        }
    }
}

const struct dataset_format mds_set_format = {
    .index = MDS_INDEX_NAME,
    .open = mds_set_open,
    .close = mds_set_close,
    .identify = mds_set_identify,
    .samples = mds_set_samples,
    .look = mds_set_look,
    .verify = mds_set_verify,
    .sha256 = mds_set_sha256,
    .checksums = mds_set_checksums,
    .read = mds_set_read,
    .want = mds_set_want,
};
