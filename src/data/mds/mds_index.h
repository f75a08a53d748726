/* index.json of an MDS data set (the format of the Streaming library, version
 * 2): which shard files there are, their sizes and checksums, and how a sample
 * is laid out (src/data/mds/mds_layout.h).
 *
 * Reading checks everything that the shards are later checked against. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/data/codec/file_sums.h"
#include "src/data/mds/mds_layout.h"
#include "src/data/set/dataset_format.h"

#define MDS_INDEX_NAME "index.json"

struct mds_shard_info {
    const struct cache_shard *files; /* a set may have either, or both */
    int64_t samples;                 /* 0 is fine */
    const struct mds_layout *layout; /* the index's */
};

struct mds_index {
    char *text; /* the file, for digests */
    size_t text_bytes;
    int64_t shards;
    struct mds_shard_info *shard;
    struct cache_shard *files; /* of each shard */
    int64_t samples;           /* over all shards */
    int64_t layouts, layout_room;
    struct mds_layout **layout; /* each is another than the one before */
};

/* Read FOLDER/index.json. ERR_DATA when it is missing, malformed or of a form
 * that is not supported; the text names the file and the shard. */
enum err mds_index_read(const char *folder, struct mds_index **out);
/* Training can read every shard: mds_layout_check(), with its place. */
enum err mds_index_check(const struct mds_index *index, const char *folder);
void mds_index_destroy(struct mds_index *index);

/* One more checksum of a file, which is copied; of a name that is known here
 * ERR_DATA unless `hex` has its form. */
enum err mds_index_add_hash(struct file_entry *file, const char *name,
                            const char *hex);
