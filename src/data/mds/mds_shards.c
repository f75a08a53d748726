/* Finds, opens and closes the shards of an MDS data set. What is in them is
 * read in mds.c.
 *
 * A set may have more shards than a process may have files open. So many are
 * open as are allowed, and the one that was used longest ago makes room:
 * samples are shuffled over few shards at a time, which then stay open. Which
 * shard a sample is in is found by bisection of the shards' first samples.
 *
 * A shard's file is in the folder, or comes through a cache: all of a set at an
 * address, and those that the folder has packed only. A cache's file may be
 * evicted while it is open here, which takes its name and leaves its bytes, so
 * it is held just until it is open. */
#include "src/data/mds/mds_shards.h"

#include <assert.h>
#include <stdlib.h>

#include "src/base/fsio.h"
#include "src/base/new.h"
#include "src/base/regular.h"
#include "src/data/codec/codec.h"
#include "src/data/remote/cache.h"
#include "src/data/remote/store_url.h"

/* A shard of a folder that is there only packed. */
static bool mds_cache_is_packed(const char *folder,
                                const struct cache_shard *files)
{
    char path[FSIO_PATH_MAX];
    return files->zip.name[0] != '\0' &&
           fsio_path(path, "%s/%s", folder, files->raw.name) == ERR_OK &&
           !fsio_exists(path);
}

/* The packed file of such a shard is there, as long as the index says, and of a
 * compression that is known; ERR_DATA, or ERR_UNSUPPORTED. */
static enum err mds_cache_look(const char *folder,
                               const struct cache_shard *files)
{
    char path[FSIO_PATH_MAX];
    const struct codec *codec = NULL;
    TRY(fsio_path(path, "%s/%s", folder, files->zip.name));
    TRY(mds_check_size(path, files->zip.bytes));
    return err_prefix(codec_find(files->compression, &codec), "%s", path);
}

/* A cache for a folder that has such a shard; NULL where it has none. To the
 * cache the folder is a store like any other, at file://. */
static enum err mds_cache_open(const char *folder,
                               const struct mds_index *index,
                               const struct cache_options *options,
                               struct cache **out)
{
    static const char *const names[] = { MDS_INDEX_NAME };
    char address[4 * FSIO_PATH_MAX] = "file://";
    bool packed = false;
    *out = NULL;
    for (int64_t s = 0; s < index->shards && !packed; s++) {
        struct cache_shard files;
        mds_pack_files(&index->pack, s, &files);
        packed = mds_cache_is_packed(folder, &files);
    }
    if (!packed)
        return ERR_OK;
    char *whole = realpath(folder, NULL);
    if (whole == NULL)
        return err_errno("%s: find", folder);
    enum err rc =
        store_url_encode(whole, "", false, address + 7, sizeof address - 7);
    free(whole);
    return rc == ERR_OK ? cache_open(address, options, names, 1, 1, out) : rc;
}

/* An open shard, between the one used before it and the one used after it. */
struct mds_shards_file {
    struct mds_shard *shard;
    int64_t number;
    int32_t before, after;
};

/* Offsets that a set keeps of its open shards. */
#define MDS_TABLES_BYTES_MAX ((size_t)64 << 20)

/* What mds_shards.at says of a shard that is not open, and what is open at most:
 * it has a place for each shard on every rank. */
enum {
    MDS_SHARD_NEW = 0,
    MDS_SHARD_KNOWN = UINT16_MAX, /* its head is right */
    MDS_OPEN_MAX = UINT16_MAX - 1
};

struct mds_shards {
    char path[FSIO_PATH_MAX];
    struct mds_index *index;
    uint16_t *at; /* of each shard: its place in files */
    /* a ring in order of use: what follows files[0], which is none, was used
     * longest ago, and what precedes it last */
    struct mds_shards_file *files;
    int64_t open; /* how many are */
    int64_t open_max;
    size_t table_max;    /* bytes that each may keep of its offsets */
    struct cache *cache; /* lent; NULL: all is in the folder */
    bool remote;         /* nothing but the index is */
};

enum err mds_shards_open(const char *folder, const void *image,
                         struct mds_shards **out)
{
    assert(folder != NULL && out != NULL);
    enum err rc = ERR_OK;
    struct mds_shards *set = NULL;
    TRY(new_zeroed(&set, 1));
    TRY_OUT(fsio_path(set->path, "%s", folder));
    TRY_OUT(image != NULL ? mds_index_take(image, &set->index)
                          : mds_index_read(folder, &set->index));
    if (set->index->samples == 0)
        TRY_OUT(err_set(ERR_DATA,
                        "%s: there are no samples in it; make another data set "
                        "with tessera-data tokenize",
                        set->path));
    TRY_OUT(new_zeroed(&set->at, (size_t)set->index->shards));
    TRY_OUT(regular_limit(set->index->shards < MDS_OPEN_MAX ? set->index->shards
                                                            : MDS_OPEN_MAX,
                          &set->open_max));
    set->table_max = MDS_TABLES_BYTES_MAX / (size_t)set->open_max;
    TRY_OUT(new_zeroed(&set->files, (size_t)set->open_max + 1));
out:
    return new_or_none(rc, set, out, mds_shards_close);
}

void mds_shards_close(struct mds_shards *set)
{
    if (set == NULL)
        return;
    for (int64_t f = 1; f <= set->open; f++)
        mds_shard_close(set->files[f].shard);
    free(set->files);
    free(set->at);
    mds_index_destroy(set->index);
    free(set);
}

struct mds_index *mds_shards_index(const struct mds_shards *set)
{
    return set->index;
}

const char *mds_shards_folder(const struct mds_shards *set)
{
    return set->path;
}

static enum err mds_shards_path(const struct mds_shards *set,
                                const struct file_entry *file,
                                char path[FSIO_PATH_MAX])
{
    return fsio_path(path, "%s/%s", set->path, file->name);
}

enum err mds_shards_use_cache(struct mds_shards *set,
                              struct dataset_access *access)
{
    set->remote = access->cache != NULL;
    if (!set->remote)
        TRY(mds_cache_open(set->path, set->index, access->options,
                           &access->cache));
    set->cache = access->cache;
    if (set->cache == NULL)
        return ERR_OK;
    const struct cache_list list = { mds_pack_files, &set->index->pack,
                                     set->index->shards };
    TRY(cache_describe(set->cache, &list));
    set->open_max = cache_open_max(set->cache, set->open_max);
    return ERR_OK;
}

bool mds_shards_is_cached(const struct mds_shards *set, int64_t shard)
{
    struct cache_shard files;
    if (set->cache == NULL || set->remote)
        return set->cache != NULL;
    mds_pack_files(&set->index->pack, shard, &files);
    return mds_cache_is_packed(set->path, &files);
}

enum err mds_shards_look(const struct mds_shards *set, int64_t index)
{
    char path[FSIO_PATH_MAX];
    struct cache_shard files;
    if (set->remote) /* what is fetched is verified then */
        return ERR_OK;
    mds_pack_files(&set->index->pack, index, &files);
    if (mds_cache_is_packed(set->path, &files))
        return mds_cache_look(set->path, &files);
    TRY(mds_shards_path(set, &files.raw, path));
    return mds_check_size(path, files.raw.bytes);
}

static void mds_shards_leave(struct mds_shards *set, int32_t f)
{
    const struct mds_shards_file *file = &set->files[f];
    set->files[file->before].after = file->after;
    set->files[file->after].before = file->before;
}

static void mds_shards_use(struct mds_shards *set, int32_t f)
{
    struct mds_shards_file *file = &set->files[f];
    file->before = set->files[0].before;
    file->after = 0;
    set->files[file->before].after = f;
    set->files[0].before = f;
}

/* The file of an open shard may lose its name, but nothing else. */
static enum err mds_shards_open_cached(struct mds_shards *set, int64_t index,
                                       bool known, struct mds_shard **out)
{
    char shown[FSIO_PATH_MAX];
    struct cache_hold hold;
    const struct mds_shard_info info = mds_pack_shard(&set->index->pack, index);
    struct cache_shard files;
    mds_pack_files(&set->index->pack, index, &files);
    TRY(cache_hold(set->cache, index, &hold));
    enum err rc = ERR_OK;
    if (!set->remote)
        rc = mds_shards_path(set, &files.zip, shown);
    if (rc == ERR_OK)
        rc = mds_shard_open(hold.path, set->remote ? hold.path : shown, &info,
                            known, set->table_max, out);
    cache_release(&hold);
    return rc;
}

static enum err mds_shards_open_file(struct mds_shards *set, int64_t index,
                                     struct mds_shard **out)
{
    char path[FSIO_PATH_MAX];
    const struct mds_shard_info info = mds_pack_shard(&set->index->pack, index);
    struct cache_shard files;
    mds_pack_files(&set->index->pack, index, &files);
    bool known = set->at[index] == MDS_SHARD_KNOWN;
    if (mds_shards_is_cached(set, index))
        return mds_shards_open_cached(set, index, known, out);
    TRY(mds_shards_path(set, &files.raw, path));
    return mds_shard_open(path, path, &info, known, set->table_max, out);
}

/* Let go of the shard that was not used for longest; its place is the next to be
 * taken, even where what is to be there can't be opened. */
static int32_t mds_shards_evict(struct mds_shards *set)
{
    int32_t f = set->files[0].after;
    struct mds_shards_file *file = &set->files[f];
    if (file->shard != NULL)
        set->at[file->number] = MDS_SHARD_KNOWN;
    mds_shard_close(file->shard);
    file->shard = NULL;
    return f;
}

enum err mds_shards_get(struct mds_shards *set, int64_t index,
                        struct mds_shard **out)
{
    int32_t f = set->at[index];
    bool full = set->open == set->open_max;
    bool open = f != MDS_SHARD_NEW && f != MDS_SHARD_KNOWN;
    bool used = open || full; /* the place was, by this one or another */
    assert(set->open >= 0 && set->open <= set->open_max);
    if (!open) {
        f = full ? mds_shards_evict(set) : (int32_t)set->open + 1;
        TRY(mds_shards_open_file(set, index, &set->files[f].shard));
        set->files[f].number = index;
        set->at[index] = (uint16_t)f;
        set->open += !full;
    }
    if (used)
        mds_shards_leave(set, f);
    mds_shards_use(set, f);
    *out = set->files[f].shard;
    return ERR_OK;
}

void mds_shards_want(const struct mds_shards *set, int64_t index)
{
    int64_t number = 0;
    if (set->cache == NULL)
        return;
    int64_t shard = mds_pack_find(&set->index->pack, index, &number);
    if (mds_shards_is_cached(set, shard))
        cache_want(set->cache, shard);
}
