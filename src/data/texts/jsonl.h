/* JSON lines: files in which every line is a JSON object, a record. Lines of
 * blanks are left out, a byte-order mark at the beginning of a file as well,
 * and the last line needs no end.
 *
 * A line is at most JSONL_LINE_BYTES_MAX long. Memory: the longest line, its
 * text, and for jsonl_next() its tree. What is no record is ERR_DATA with file
 * and line: no JSON, no object, a line that is too long or cut off, invalid
 * UTF-8, NUL (also as \u0000), a key that an object has twice, nesting deeper
 * than 2048. After an error the reader may only be closed. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/data/texts/source.h"

#define JSONL_LINE_BYTES_MAX ((size_t)256 << 20)

struct jsonl;

/* `path` and `watch` as in source_open(), which also tells what is refused. */
enum err jsonl_open(const char *path, const struct source_watch *watch,
                    struct jsonl **out);
void jsonl_close(struct jsonl *reader);

/* The next record, an object; json_decref() it. NULL: the end. */
enum err jsonl_next(struct jsonl *reader, json_t **record);

/* The string `field` of the next record without a tree of all of it; ERR_DATA
 * when the record has none or it is no string. The same errors and the same
 * text, with escapes resolved, as jsonl_next(). Lent until the next call, not
 * ended by NUL; *text NULL: the end. */
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

/* Finds one string in a line of JSON without building a tree. It only answers
 * for plain lines; of others, and of all that are wrong, it says that it does
 * not know, and a real parser has to look. */
struct jsonl_scan {
    const char *text; /* within the line, between the quotes; NULL: none */
    size_t bytes;
    bool escaped; /* it has escapes */
};

/* True: jansson would take the line for an object without doubled keys, and
 * `out` is its member `field`, if that is there and a string. False: unknown.
 * Reads nothing outside of line[bytes]. */
bool jsonl_scan(const char *line, size_t bytes, const char *field,
                struct jsonl_scan *out);

/* Resolve the escapes of a text that jsonl_scan() found into to[bytes]; returns
 * the bytes of the result, which are fewer. */
size_t jsonl_scan_unescape(const char *text, size_t bytes, char *to);
