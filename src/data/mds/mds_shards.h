/* The shards of an MDS data set by the numbers of their samples, opened when
 * they are needed, as many at a time as regular_limit() says. For whoever reads
 * samples: mds_set.c for training, mds_table.c any column. */
#pragma once

#include <stdint.h>

#include "src/base/err.h"
#include "src/data/set/dataset_format.h"
#include "src/data/mds/mds.h"
#include "src/data/mds/mds_index.h"

struct mds_shards;

/* Read the index in the folder, or take its image (mds_index.h), NULL: none,
 * without a look at the shards. ERR_DATA for a set without samples. */
enum err mds_shards_open(const char *folder, const void *image,
                         struct mds_shards **out);
void mds_shards_close(struct mds_shards *shards);

/* Use the cache of an address, or make one where shards are only there packed,
 * which the caller closes after the shards: access->cache. Before any other
 * call for shards, and after the index has all checksums. */
enum err mds_shards_use_cache(struct mds_shards *shards,
                              struct dataset_access *access);

/* Lent; the sidecar may add checksums before shards are opened. */
struct mds_index *mds_shards_index(const struct mds_shards *shards);
const char *mds_shards_folder(const struct mds_shards *shards);

/* As dataset_look(), dataset_shard_is_cached() and dataset_want(). */
enum err mds_shards_look(const struct mds_shards *shards, int64_t shard);
bool mds_shards_is_cached(const struct mds_shards *shards, int64_t shard);

void mds_shards_want(const struct mds_shards *shards, int64_t index);

/* An open shard, lent until the next call. */
enum err mds_shards_get(struct mds_shards *shards, int64_t shard,
                        struct mds_shard **out);
