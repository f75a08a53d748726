/* A file of lines that grows while it is read: whole lines, each once. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/base/fsio.h"

/* Longer ones are passed over, and counted. */
#define LINE_TAIL_BYTES_MAX ((size_t)1 << 20)

/* Most bytes of such a line; after more without its end the file is none of
 * lines. */
#define LINE_TAIL_PASSED_MAX ((int64_t)64 << 20)

/* Zeros but for the path: nothing is read yet. */
struct line_tail {
    char path[FSIO_PATH_MAX];
    int64_t newest;   /* bytes: of a longer file only the last lines; 0: all */
    int64_t offset;   /* of what is read */
    uint64_t file;    /* its inode; 0: there is none so far */
    char *data;       /* NULL, or LINE_TAIL_BYTES_MAX */
    size_t held;      /* bytes of a line whose end is not there yet */
    int64_t too_long; /* lines */
    bool passing;     /* over one of them */
    int64_t passed;   /* bytes of it */
};

/* `take` is called with every line that has come since, without its end. Where
 * there is no file there are no lines. ERR_DATA where the file is a link or no
 * regular one, has become shorter, is another than before, or has no ends of
 * lines. */
typedef enum err (*line_tail_fn)(void *arg, const char *line, size_t bytes);
enum err line_tail_read(struct line_tail *tail, line_tail_fn take, void *arg);

void line_tail_free(struct line_tail *tail);

/* The numbers of a line of JSON, fast: a million lines of metrics.jsonl take
 * less than a second, where a parser that makes objects takes five.
 *
 * Looks for `count` keys of the line's object, at its first level. Sets
 * values[i] to the number behind keys[i], NaN where there is none (null, a
 * string, no such key); of a key that comes twice the last counts. false: the
 * line is no object, or it is torn. Numbers that JSON does not have (nan, inf)
 * are taken as none. What is nested is passed over. */
bool line_tail_numbers(const char *line, size_t bytes, const char *const *keys,
                       int count, double *values);
