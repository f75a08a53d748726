/* Finds one string in a line of JSON without building a tree. It only answers
 * for plain lines; of others, and of all that are wrong, it says that it does
 * not know, and a real parser has to look. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

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
