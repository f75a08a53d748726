/* JSON lines: files in which every line is a JSON object, a record. Lines of
 * blanks are left out, a byte-order mark at the beginning of a file as well,
 * and the last line needs no end.
 *
 * A line is at most JSONL_LINE_BYTES_MAX long. Memory: the longest line and its
 * tree. What is no record is ERR_DATA with file
 * and line: no JSON, no object, a line that is too long or cut off, invalid
 * UTF-8, NUL (also as \u0000), a key that an object has twice, nesting deeper
 * than 2048. After an error the reader may only be closed. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/data/texts/source.h"

#define JSONL_LINE_BYTES_MAX ((size_t)256 << 20)

struct jsonl;

/* `path` and `watch` as in source_open(), which also tells what is refused. */
enum err jsonl_open(const char *path, const struct source_options *watch,
                    struct jsonl **out);
void jsonl_close(struct jsonl *reader);

/* The next record, an object; json_decref() it. NULL: the end. */
enum err jsonl_next(struct jsonl *reader, json_t **record);

/* The string `field` of the next record; ERR_DATA when the record has none or it
 * is no string. Lent until the next call; *text NULL: the end. */
enum err jsonl_next_text(struct jsonl *reader, const char *field,
                         const char **text, size_t *bytes);

/* The names of a record's fields, for messages, as many as there is room for;
 * "none". */
void jsonl_fields(const json_t *record, char *out, size_t bytes);

/* "FILE:LINE" of the record that was read last, for messages. Lent. */
const char *jsonl_place(const struct jsonl *reader);

/* source_position() of the file. */
int64_t jsonl_position(const struct jsonl *reader);

/* Where the record that was read last begins, so that a new reader of the same
 * file can begin with it: bytes before it, uncompressed, and lines. */
struct jsonl_mark {
    int64_t offset, line;
};
struct jsonl_mark jsonl_mark(const struct jsonl *reader);
/* Go there; the reader has read nothing yet. */
enum err jsonl_go(struct jsonl *reader, struct jsonl_mark mark);
