/* Write an MDS data set: byte for byte what the Streaming library's MDSWriter
 * writes with the same options and no compression, including its rotation: a
 * shard counts 8 bytes, its JSON text, and each sample's bytes + 4; a sample
 * that would pass the limit starts the next one (so a first sample above the
 * limit leaves an empty shard before it).
 *
 * Memory: one shard, and the index. Shards are on disk (fsync) when the next
 * one begins; the index is written last. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

struct mds_writer;

struct mds_column {
    const char *name;
    const char *encoding; /* Streaming's name, src/data/mds/mds_encoding.h */
};

struct mds_writer_options {
    const struct mds_column *columns; /* of different names, in any order */
    int count;
    int64_t size_limit;        /* bytes of a shard, 1 to 2^32 - 1 */
    const char *const *hashes; /* of the files, in the index: known names in
                                  their order, then NULL; NULL: none */
};

/* The bytes of a column, as src/data/mds/mds_encoding.h makes them. */
struct mds_field {
    const void *data;
    size_t bytes;
};

/* For options.hashes. */
extern const char *const mds_writer_sha256[];

/* Into an existing folder. ERR_USAGE for a size limit or column that is not
 * possible, a pickle among them. The options are copied, but for the hashes. */
enum err mds_writer_create(const char *folder,
                           const struct mds_writer_options *options,
                           struct mds_writer **out);
/* The same for one column, tokens = ndarray:int32. sha256: record the files'
 * digests in the index, which makes the index identify the content. */
enum err mds_writer_create_tokens(const char *folder, int64_t size_limit,
                                  bool sha256, struct mds_writer **out);
/* Without mds_writer_finish() no index is written. */
void mds_writer_destroy(struct mds_writer *writer);

/* One sample: a field for each of options.columns, in their order. ERR_USAGE
 * for a field of another size than its encoding has, or a sample that no shard
 * can hold. */
enum err mds_writer_add_fields(struct mds_writer *writer,
                               const struct mds_field *fields);

/* One sample of count > 0 tokens, where they are the only column. */
enum err mds_writer_add(struct mds_writer *writer, const int32_t *tokens,
                        int64_t count);

/* The last shard and the index. */
enum err mds_writer_finish(struct mds_writer *writer);

/* Shards that are on disk, and one's entry in the index, lent. */
int64_t mds_writer_shards(const struct mds_writer *writer);
json_t *mds_writer_shard(const struct mds_writer *writer, int64_t shard);

/* Go on behind a shard that another writer with the same options has written,
 * by its entry; nothing was added yet. ERR_DATA where its file is not in the
 * folder or has another size. */
enum err mds_writer_again(struct mds_writer *writer, const json_t *shard);

/* Bytes of the smallest shard that holds one sample of `count` tokens as the
 * only column. */
enum err mds_writer_shard_bytes(struct mds_writer *writer, int64_t count,
                                int64_t *bytes);
