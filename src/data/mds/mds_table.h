/* Any MDS data set as a table of columns: no column tokens is needed, and no
 * sidecar. For looking at foreign sets, and for texts that are to become
 * tokens. One thread at a time. */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "src/base/err.h"
#include "src/data/mds/mds.h"
#include "src/data/mds/mds_index.h"
#include "src/data/mds/mds_layout.h"

/* A column of a sample as a typed value, whatever its encoding. Training has
 * mds_shard_read().
 *
 *   numbers  int, [u]int8 to 64, float16 to 64, ndarray of any type and shape
 *   text     str (valid UTF-8), str_int, str_float, str_decimal (numbers), json
 *            (valid UTF-8; not parsed)
 *   bytes    bytes, and pil, jpeg, png and lists of them, as they are
 *
 * pkl is refused: unpickling runs what program the writer put into it. */
struct mds_value {
    enum mds_kind kind;
    struct values numbers;  /* of MDS_SCALAR and MDS_ARRAY */
    struct mds_span column; /* the column's bytes: text and bytes */
};

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

/* ERR_DATA for an encoding that cannot be read, ERR_UNSUPPORTED for pkl. */
enum err mds_column_check(const struct mds_layout_column *column);

/* The value of a column that was checked; it lies in the span's bytes. ERR_DATA
 * says what is wrong, without the place. */
enum err mds_column_decode(const struct mds_layout_column *column,
                           const struct mds_span *span, struct mds_value *out);

/* On one line without its end: numbers with blanks between them, floats with as
 * few digits as make them again (float16 as float32); str in quotes as in JSON;
 * other texts as they are, their line ends as blanks; bytes in hexadecimal. */
enum err mds_column_print(const struct mds_value *value, FILE *file);
