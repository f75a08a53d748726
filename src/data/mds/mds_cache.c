/* Describes an MDS set's shards to a cache, and finds those that must be
 * unpacked into one. */
#include "src/data/mds/mds_cache.h"

#include <stdlib.h>

#include "src/base/new.h"
#include "src/data/codec/codec.h"
#include "src/data/mds/mds_check.h"
#include "src/data/remote/store_url.h"

enum err mds_cache_shards(const struct mds_index *index,
                          struct cache_shard **out)
{
    TRY(new_zeroed(out, (size_t)index->shards + 1));
    for (int64_t s = 0; s < index->shards; s++) {
        const struct mds_shard_info *info = &index->shard[s];
        (*out)[s] = (struct cache_shard){
            .raw = { info->raw.name, info->raw.bytes, info->raw.hashes,
                     info->raw.hash },
            .zip = { info->zip.name, info->zip.bytes, info->zip.hashes,
                     info->zip.hash },
            .compression = info->compression,
        };
    }
    return ERR_OK;
}

bool mds_cache_is_packed(const char *folder, const struct mds_shard_info *info)
{
    char path[FSIO_PATH_MAX];
    return info->zip.name != NULL &&
           fsio_path(path, "%s/%s", folder, info->raw.name) == ERR_OK &&
           !fsio_exists(path);
}

enum err mds_cache_look(const char *folder, const struct mds_shard_info *info)
{
    char path[FSIO_PATH_MAX];
    const struct codec *codec = NULL;
    TRY(fsio_path(path, "%s/%s", folder, info->zip.name));
    TRY(mds_check_size(path, &info->zip));
    enum err rc = codec_find(info->compression, &codec, NULL);
    return rc == ERR_OK ? rc : err_prefix(rc, "%s", path);
}

enum err mds_cache_open(const char *folder, const struct mds_index *index,
                        const struct cache_options *options, struct cache **out)
{
    static const char *const names[] = { MDS_INDEX_NAME };
    char address[4 * FSIO_PATH_MAX] = "file://";
    bool packed = false;
    *out = NULL;
    for (int64_t s = 0; s < index->shards && !packed; s++)
        packed = mds_cache_is_packed(folder, &index->shard[s]);
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
