/* Parquet files: texts of a column, or records of some of them.
 *
 * A column of texts is one of BYTE_ARRAY, at the top or in a group ("a.b"), of any
 * size, in the encodings PLAIN, dictionary, DELTA_LENGTH_BYTE_ARRAY and
 * DELTA_BYTE_ARRAY, in pages of both versions, packed with snappy, gzip, brotli,
 * zstd, lz4_raw or not. What else a file has is left out unread where it was not
 * asked for, and refused by its name where it was. Memory: for each column that is
 * read a page, packed and not, of at most PARQUET_PAGE_BYTES_MAX, a dictionary, and
 * the footer's row groups; a row's list has at most 65536 objects, a file 16384
 * columns.
 *
 * Errors name file, row group and column: ERR_DATA for what is damaged or not
 * there, ERR_UNSUPPORTED for what is not read here. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

struct parquet;

/* The texts of `column`. */
enum err parquet_open(const char *path, const char *column,
                      struct parquet **out);
/* Records of those of the `count` names that the file has, at its top: a text, or
 * a list of objects with texts. */
enum err parquet_open_records(const char *path, const char *const *names,
                              size_t count, struct parquet **out);
void parquet_close(struct parquet *parquet);

/* Go on with this row; nothing was read yet. */
enum err parquet_go(struct parquet *parquet, int64_t row);

/* The text of the next row, lent until the next call; NULL: it has none.
 * *more false: the end. */
enum err parquet_next_text(struct parquet *parquet, const uint8_t **text,
                           size_t *bytes, bool *more);

/* The next row as an object, which json_decref(): its texts, lists of objects, and
 * null where there is nothing. Of objects in a list what is null is left out; the
 * first record has all other columns, too, as null. NULL: the end. */
enum err parquet_next_record(struct parquet *parquet, json_t **record);

/* The row that was read last, from 0, and "FILE: row 5" for messages, lent. */
int64_t parquet_row(const struct parquet *parquet);
const char *parquet_place(struct parquet *parquet);

/* About how much of the file was read. */
int64_t parquet_position(const struct parquet *parquet);
