/* One MDS shard file, read with pread(): a file that becomes shorter while it
 * is in use is an error with its name, where a map would end the process.
 *
 * Opening checks size, samples and, unless there are very many, all offsets; a
 * sample's own offsets and sizes are checked when it is read, so that whatever
 * the file holds, nothing outside of it is. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/array.h"
#include "src/base/err.h"
#include "src/data/mds/mds_index.h"
#include "src/data/set/dataset.h"

struct mds_shard;

/* What training reads of a sample. What the set does not have has count 0. */
struct mds_sample {
    struct values value[MDS_ROLES];
};

/* The bytes of a column. */
struct mds_span {
    const uint8_t *data;
    size_t bytes;
};

/* A file is there, regular, and as long as the index says; ERR_DATA says what
 * to do. */
enum err mds_check_size(const char *path, int64_t bytes);

/* Open the raw file of a shard, which must agree with `info` (whose layout is
 * lent until the close). ERR_DATA names the file, as `shown` once it is open, and what is
 * wrong with it. `known`: its head was found right before, and is not read
 * again. Offsets of at most `table_max` bytes are kept and looked at at once,
 * others one by one when a sample is read. */
enum err mds_shard_open(const char *path, const char *shown,
                        const struct mds_shard_info *info, bool known,
                        size_t table_max, struct mds_shard **out);
void mds_shard_close(struct mds_shard *shard);

/* The columns of sample `index`, 0 <= index < samples, into
 * columns[layout->columns]; they are in `buffer` until its next use. ERR_DATA
 * when the sample is malformed. */
enum err mds_shard_columns(const struct mds_shard *shard, int64_t index,
                           struct buffer *buffer, struct mds_span *columns);

/* What training reads of it. `token_type`: of tokens in bytes, 0: int64. Also
 * ERR_DATA when the tokens are no whole numbers. The layout was checked. */
enum err mds_shard_read(const struct mds_shard *shard, int64_t index,
                        int token_type, struct buffer *buffer,
                        struct mds_sample *out);

/* All checksums of the file, which the index has as `file`, that
 * src/data/codec/checksum.h knows, in one pass: ERR_DATA says which it was.
 * watch NULL: unwatched. */
enum err mds_shard_verify(const struct mds_shard *shard,
                          const struct file_entry *file,
                          const struct dataset_watch *watch);
/* Its SHA-256, whatever the index says. */
enum err mds_shard_sha256(const struct mds_shard *shard, char hex[65]);

/* As shown. */
const char *mds_shard_path(const struct mds_shard *shard);
