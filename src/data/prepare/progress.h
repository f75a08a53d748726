/* Progress of long work on stderr: what, how far, rate, time left. Nothing is
 * shown for work that ends within a second; after that, one line a second,
 * which is overwritten on a terminal. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct progress {
    const char *what; /* "tokenizing"; lent */
    const char *unit; /* "samples"; NULL: bytes */
    int64_t total;    /* < 0: not known */
    int64_t done;
    int64_t from; /* done before, which tells nothing of the rate */
    double start;
    double shown; /* when a line was shown last */
    bool terminal;
    bool any; /* whether one was */
};

void progress_begin(struct progress *progress, const char *what,
                    const char *unit, int64_t total);
/* Cheap enough for every few thousand elements. NULL: nothing. */
void progress_update(struct progress *progress, int64_t done);
/* Show the final state if anything was shown, and end the line. */
void progress_end(struct progress *progress);

/* The line for `seconds` of work so far, without its end; for tests. */
void progress_format(const struct progress *progress, double seconds,
                     char *text, size_t bytes);
