/* One picture of a run in letters, for tessera-top. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "src/report/run_history.h"

struct top_frame_style {
    int columns, rows; /* of the terminal; lines are cut to this */
    bool ansi;         /* bold and colours */
    bool blocks;       /* curves in block letters of UTF-8, else in ASCII */
    double now_s;      /* seconds since the epoch */
};

/* Text of a file for a terminal: printable ASCII, in at most size - 1 letters;
 * line ends and tabs become blanks, controls go, any other character is one
 * '?'. */
void top_frame_plain(const char *text, char *out, size_t size);

/* All text that comes from files passes through top_frame_plain(). ERR_MEMORY
 * alone. */
enum err top_frame_draw(const struct run_history *run,
                        const struct top_frame_style *style, FILE *out);
