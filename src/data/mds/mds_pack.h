/* What an index says of its shards, in few bytes: a set has up to some 600,000,
 * and each node has them for the whole run.
 *
 * A shard is a record of its sizes and checksums, 4 bytes and those of the
 * checksums, and its first sample, 8 bytes. What shards that follow each other
 * have alike is kept once, in a run of them: the layout, the names of the
 * checksums, the compression, and the name, whose last number counts on. Where
 * it does not each has its own. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "src/base/array.h"
#include "src/base/err.h"
#include "src/data/mds/mds_layout.h"
#include "src/data/remote/cache.h"

struct mds_shard_info {
    int64_t bytes;                   /* of the raw file */
    int64_t samples;                 /* 0 is fine */
    const struct mds_layout *layout; /* the index's */
};

/* Zeros are an empty one. */
struct mds_pack {
    int64_t shards;
    int64_t *first; /* sample of each shard, and behind them their number */
    size_t first_room;
    struct buffer records, names;
    struct buffer form;   /* of what is added */
    struct mds_run *runs; /* none is empty */
    int64_t run_count, run_room;
    uint8_t *sha256; /* of each raw file, beside its record; NULL: none */
    bool lent;       /* all but the runs lies in an image */
};

void mds_pack_release(struct mds_pack *pack);

/* One more shard; `files` is copied, the layout lent. */
enum err mds_pack_add(struct mds_pack *pack, const struct cache_shard *files,
                      int64_t samples, const struct mds_layout *layout);

/* One more checksum of all raw files: 64 lower-case hexadecimal digits for each
 * shard, or ERR_DATA. Once. */
enum err mds_pack_add_sha256(struct mds_pack *pack, const char *digits);

/* All of it behind what `images` has, which begins at a multiple of 8: for other
 * processes of this program, which take it and read it where it lies. `layouts`:
 * the same ones as were added, without those that were the last one's again. */
enum err mds_pack_image(const struct mds_pack *pack, struct buffer *images);
enum err mds_pack_take(const char *at, struct mds_layout *const *layouts,
                       struct mds_pack *pack);

/* 0 <= shard < shards; by any number of threads. */
struct mds_shard_info mds_pack_shard(const struct mds_pack *pack,
                                     int64_t shard);
/* As cache_list.shard: `pack` is a struct mds_pack. The checksums' names are
 * lent. */
void mds_pack_files(const void *pack, int64_t shard, struct cache_shard *out);

/* The shard of sample `index`, 0 <= index < samples, and which of its samples
 * that is. */
int64_t mds_pack_find(const struct mds_pack *pack, int64_t index,
                      int64_t *number);

/* That it takes. */
size_t mds_pack_bytes(const struct mds_pack *pack);
