/* Files that are no text: by their first bytes, or by what is in them. A tokenizer
 * takes any bytes, so that training on a table or a program would fail nowhere. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

/* The beginning of a file, unpacked, that tells its kind. */
#define BINARY_KIND_HEAD_BYTES ((size_t)1 << 16)

struct binary_kind {
    const char *name;   /* "Parquet" */
    const char *remedy; /* how to get text out of it; NULL: there is none */
};

/* The kind of a file that begins so; NULL: none that is known. */
const struct binary_kind *binary_kind_find(const uint8_t *head, size_t bytes);

/* ERR_DATA, with name and remedy, for a file that begins so. `wanted` is what
 * it should have been: "text", "JSON lines". */
enum err binary_kind_check(const char *file, const char *wanted,
                           const uint8_t *head, size_t bytes);

/* A text so far. */
struct binary_count {
    int64_t bytes, invalid; /* invalid: of no character of UTF-8 */
    int64_t nul;            /* where the first one is; -1: none */
    int64_t due;            /* how many bytes are judged next */
    bool bad;               /* they were not good enough */
    uint8_t rest[4];        /* the beginning of a character */
    size_t rest_bytes;
};
#define BINARY_COUNT_NONE                                                      \
    {                                                                          \
        .nul = -1, .due = (int64_t)BINARY_KIND_HEAD_BYTES                      \
    }

/* What comes next. A text has no NUL and at most one invalid byte in a thousand,
 * which is judged at the first 64 KiB, at every doubling of that, and at the end
 * (`bytes` 0), wherever the parts begin. False: it is no text. */
bool binary_count_add(struct binary_count *count, const uint8_t *text,
                      size_t bytes);
/* Go on `bytes` later with what was judged before. */
void binary_count_skip(struct binary_count *count, int64_t bytes);
/* ERR_DATA with what is wrong, and the likely remedy. */
enum err binary_count_refuse(const struct binary_count *count,
                             const char *file);

/* All of this of a whole text in memory. */
enum err binary_kind_text(const char *file, const uint8_t *text, size_t bytes);
