/* Write an MDS data set of one column, tokens = ndarray:int32: byte for byte
 * what the Streaming library's MDSWriter writes with the same size limit and
 * hashes, including its rotation: a shard counts 8 bytes, its JSON text, and
 * each sample's bytes + 4; a sample that would pass the limit starts the next
 * one (so a first sample above the limit leaves an empty shard before it).
 *
 * Memory: one shard. Shards are on disk (fsync) when the next one begins; the
 * index is written last. */
#ifndef TESSERA_DATA_MDS_WRITER_H
#define TESSERA_DATA_MDS_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"

struct mds_writer;

/* Into an existing folder. 0 < size_limit < 2^32 bytes, else ERR_USAGE.
 * sha256: record the files' digests in the index, which makes the index
 * identify the content. */
enum err mds_writer_create(const char *folder, int64_t size_limit, bool sha256,
                           struct mds_writer **out);
/* Without mds_writer_finish() no index is written. */
void mds_writer_destroy(struct mds_writer *writer);

/* One sample of count > 0 tokens. */
enum err mds_writer_add(struct mds_writer *writer, const int32_t *tokens,
                        int64_t count);

/* The last shard and the index. */
enum err mds_writer_finish(struct mds_writer *writer);

/* Bytes of the smallest shard that holds one sample of `count` tokens. */
enum err mds_writer_shard_bytes(struct mds_writer *writer, int64_t count,
                                int64_t *bytes);

#endif
