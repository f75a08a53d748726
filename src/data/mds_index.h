/* index.json of an MDS data set (the format of the Streaming library, version
 * 2): which shard files there are, their sizes, and how a sample is laid out.
 *
 * Reading checks everything that the shards are later checked against. Only
 * the column `tokens` is used; it must be ndarray:int32, ndarray:int32:N or
 * ndarray (dynamic type, then int32). Other columns are skipped. Compressed
 * shards are ERR_DATA: this build reads plain ones. */
#ifndef TESSERA_DATA_MDS_INDEX_H
#define TESSERA_DATA_MDS_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

#define MDS_INDEX_NAME "index.json"
#define MDS_INDEX_COLUMNS_MAX 16
#define MDS_INDEX_VARIABLE (-1)

struct mds_shard_info {
    char *basename;  /* relative to the folder of the index */
    int64_t bytes;   /* of the file */
    int64_t samples; /* 0 is fine */
    char sha256[65]; /* of the file, lower-case hex; empty: not recorded */
    int columns;     /* of a sample, in order */
    int64_t column_bytes[MDS_INDEX_COLUMNS_MAX]; /* or MDS_INDEX_VARIABLE */
    int tokens_column;                           /* which of them is `tokens` */
    bool tokens_typed;  /* ndarray:int32...; false: the data name the type */
    bool tokens_shaped; /* ndarray:int32:N; false: the data name the shape */
};

struct mds_index {
    char *text; /* the file, for digests */
    size_t text_bytes;
    int64_t shards;
    struct mds_shard_info *shard;
    int64_t samples; /* over all shards */
};

/* Read FOLDER/index.json. ERR_DATA when it is missing, malformed or of a form
 * that is not supported; the text names the file and the shard. */
enum err mds_index_read(const char *folder, struct mds_index **out);
void mds_index_destroy(struct mds_index *index);

#endif
