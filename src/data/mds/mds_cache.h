/* An MDS set's shards as a cache fetches them (src/data/remote/cache.h). */
#pragma once

#include "src/data/remote/cache.h"
#include "src/data/mds/mds_index.h"

/* *out is malloc'ed, and lends from the index. */
enum err mds_cache_shards(const struct mds_index *index,
                          struct cache_shard **out);

/* A shard of a folder that is there only packed. */
bool mds_cache_is_packed(const char *folder, const struct mds_shard_info *info);

/* The packed file of such a shard is there, as long as the index says, and of a
 * compression that is known; ERR_DATA, or ERR_UNSUPPORTED. */
enum err mds_cache_look(const char *folder, const struct mds_shard_info *info);

/* A cache for a folder that has such a shard; NULL where it has none. */
enum err mds_cache_open(const char *folder, const struct mds_index *index,
                        const struct cache_options *options,
                        struct cache **out);
