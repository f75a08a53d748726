/* Files of columns (Parquet): texts of a column, or records of some of them.
 *
 * A column of texts is at the top or in a group ("a.b"). What else a file has is
 * left out unread where it was not asked for, and refused by its name where it was.
 * A row's list has at most 65536 objects.
 *
 * Errors name file, part of it and column: ERR_DATA for what is damaged or not
 * there, ERR_UNSUPPORTED for what is not read here. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

struct columns;
struct columns_format;

/* The format of a file with this name; NULL: it has none of columns. */
const struct columns_format *columns_by_name(const char *path);

/* The texts of `column`. */
enum err columns_open(const struct columns_format *format, const char *path,
                      const char *column, struct columns **out);
/* Records of those of the `count` names that the file has, at its top: a text, or
 * a list of objects with texts. */
enum err columns_open_records(const struct columns_format *format,
                              const char *path, const char *const *names,
                              size_t count, struct columns **out);
void columns_close(struct columns *columns);

/* Go on with this row; nothing was read yet. */
enum err columns_go(struct columns *columns, int64_t row);

/* The text of the next row, lent until the next call; NULL: it has none.
 * *more false: the end. */
enum err columns_next_text(struct columns *columns, const uint8_t **text,
                           size_t *bytes, bool *more);

/* The next row as an object, which json_decref(): its texts, lists of objects, and
 * null where there is nothing. Of objects in a list what is null is left out; the
 * first record has all other columns, too, as null. NULL: the end. */
enum err columns_next_record(struct columns *columns, json_t **record);

/* The row that was read last, from 0, and "FILE: row 5" for messages, lent. */
int64_t columns_row(const struct columns *columns);
const char *columns_place(struct columns *columns);

/* About how much of the file was read. */
int64_t columns_position(const struct columns *columns);
