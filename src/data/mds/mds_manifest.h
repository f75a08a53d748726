/* What an MDS writer says of its shards: the JSON text in each shard file, and
 * index.json, as Streaming writes them. */
#pragma once

#include <stdint.h>

#include "src/base/array.h"
#include "src/base/err.h"

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

struct mds_manifest_column {
    char *name, *encoding;
    int64_t bytes; /* or MDS_ENCODING_VARIABLE */
    int given;     /* which of options.columns it was */
};

struct mds_manifest {
    int columns; /* in the order of a sample: by name */
    struct mds_manifest_column *column;
    const char *const *hashes; /* the options' */
    int64_t size_limit;
    struct buffer config;     /* of a shard file */
    struct buffer head, tail; /* of a shard's entry, around its own */
    struct buffer index;
    int64_t shards;
    size_t end;           /* of the last entry in index */
    struct buffer begins; /* size_t of each: where its entry is in index */
};

/* Two parts of a file, one behind the other. */
struct mds_manifest_file {
    const char *name;
    const void *part[2];
    size_t bytes[2];
};

enum err mds_manifest_create(const struct mds_writer_options *options,
                             struct mds_manifest **out);
void mds_manifest_destroy(struct mds_manifest *manifest);

/* One more shard, with the hashes of its file. */
enum err mds_manifest_add(struct mds_manifest *manifest, int64_t samples,
                          const struct mds_manifest_file *file);

/* The entry of a shard, from `*text` on. */
void mds_manifest_entry(const struct mds_manifest *manifest, int64_t shard,
                        const char **text, size_t *bytes);

/* One more shard, by its entry in an index of the same options. */
enum err mds_manifest_again(struct mds_manifest *manifest, const char *entry);

/* FOLDER/index.json */
enum err mds_manifest_write(struct mds_manifest *manifest, const char *folder);
