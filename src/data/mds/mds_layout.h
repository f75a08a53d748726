/* The columns of a sample, as index.json lists them for each shard: names,
 * encodings, sizes. Shards that follow each other share one layout where their
 * columns are the same.
 *
 * Training reads the columns `tokens`, `loss_mask` and `lengths`; all others
 * may be anything, and are skipped. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/data/mds/mds_encoding.h"

#define MDS_LAYOUT_COLUMNS_MAX 1024

struct mds_layout_column {
    char *name;
    char *text; /* of its encoding */
    struct mds_encoding encoding;
    int64_t bytes; /* or MDS_ENCODING_VARIABLE: a sample has a size word */
};

/* Columns that training reads. */
enum mds_role { MDS_TOKENS, MDS_LOSS_MASK, MDS_LENGTHS, MDS_ROLES };

struct mds_layout {
    int columns;
    struct mds_layout_column *column;
    int64_t head_bytes;  /* of a sample's size words */
    int role[MDS_ROLES]; /* their columns; -1: there is none */
};

/* The layout in a shard's object. ERR_DATA says what is wrong, without the
 * place. */
enum err mds_layout_read(const json_t *shard, struct mds_layout **out);
void mds_layout_destroy(struct mds_layout *layout);

/* Whether two shards' objects have the same columns. */
bool mds_layout_same(const json_t *a, const json_t *b);

/* By its name; -1: there is none. */
int mds_layout_find(const struct mds_layout *layout, const char *name);

/* "a (int), b (str)", cut at `bytes`. */
void mds_layout_list(const struct mds_layout *layout, char *text, size_t bytes);

/* The columns that training reads are there and can be read; ERR_DATA says what
 * there is in place of tokens, and what helps. */
enum err mds_layout_check(const struct mds_layout *layout);
