/* Any MDS data set as a table of columns: no column tokens is needed, and no
 * sidecar. For looking at foreign sets, and for texts that are to become
 * tokens. One thread at a time. */
#pragma once

#include <stdint.h>

#include "src/base/err.h"
#include "src/data/mds/mds.h"
#include "src/data/mds/mds_column.h"
#include "src/data/mds/mds_index.h"

struct mds_table;

enum err mds_table_open(const char *folder, struct mds_table **out);
void mds_table_close(struct mds_table *table);

/* Lent. */
const struct mds_index *mds_table_index(const struct mds_table *table);

/* Every shard has the column and it can be read: ERR_USAGE lists those that
 * there are. */
enum err mds_table_check(const struct mds_table *table, const char *column);

/* A column, which was checked, of sample `index`, 0 <= index < samples, until
 * the next call. */
enum err mds_table_read(struct mds_table *table, int64_t index,
                        const char *column, struct mds_value *out);

/* The bytes of all its columns, in the order of its shard's layout; until the
 * next call. */
enum err mds_table_spans(struct mds_table *table, int64_t index,
                         const struct mds_span **columns);
