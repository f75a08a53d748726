/* index.json of an MDS data set (the format of the Streaming library, version
 * 2): which shard files there are, their sizes and checksums, and how a sample
 * is laid out (src/data/mds/mds_layout.h).
 *
 * Reading checks everything that the shards are later checked against. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/array.h"
#include "src/base/err.h"
#include "src/data/mds/mds_layout.h"
#include "src/data/mds/mds_pack.h"

#define MDS_INDEX_NAME "index.json"

struct mds_index {
    char *text; /* the file, for digests; who needs no more of them frees it */
    size_t text_bytes;
    int64_t shards;
    int64_t samples; /* over all shards */
    struct mds_pack pack;
    int64_t layouts, layout_room;
    struct mds_layout **layout; /* each is another than the one before */
    struct buffer forms;        /* the JSON of a shard of each; texts */
};

/* Memory: the text, and what is packed. Read FOLDER/index.json. ERR_DATA when it is missing, malformed or of a form
 * that is not supported; the text names the file and the shard. */
enum err mds_index_read(const char *folder, struct mds_index **out);
/* Training can read every shard: mds_layout_check(), with its place. */
enum err mds_index_check(const struct mds_index *index, const char *folder);
/* Behind what `images` has: all but the text, for other processes. */
enum err mds_index_image(const struct mds_index *index, struct buffer *images);
/* Such an image, at a multiple of 8, as an index; it stays as it is until that
 * is destroyed. */
enum err mds_index_take(const void *image, struct mds_index **out);
void mds_index_destroy(struct mds_index *index);

/* Adds the value as Python's json module writes it with sorted keys, for an
 * index.json that is the same bytes: ", " and ": " between things, and ASCII only.
 * Releases it; ERR_MEMORY where it is NULL. */
enum err mds_text_add(struct buffer *text, json_t *value);
