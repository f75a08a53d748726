/* JSON as Python's json module writes it with sorted keys, for an index.json
 * that is the same bytes: ", " and ": " between things, and ASCII only. Keys
 * are given in order. */
#pragma once

#include "src/base/array.h"
#include "src/base/err.h"

/* As it stands, printf-like. */
enum err mds_text_add(struct buffer *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A string in quotes. ERR_USAGE for what is no UTF-8. */
enum err mds_text_string(struct buffer *text, const char *string);

/* A string of so many bytes, which may have NULs. */
enum err mds_text_span(struct buffer *text, const char *string, size_t bytes);
