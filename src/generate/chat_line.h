/* Lines that somebody types, or a pipe has, and Ctrl-C. The terminal's own line
 * editing is used. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "src/base/err.h"

struct chat_line;

enum chat_line_got {
    CHAT_LINE_TEXT,
    CHAT_LINE_INTERRUPTED, /* Ctrl-C: what was typed is gone */
    CHAT_LINE_END          /* of the input */
};

/* From here on SIGINT ends nothing, in threads that are made later, too: before
 * there are any. */
enum err chat_line_create(struct chat_line **out);
void chat_line_destroy(struct chat_line *line);

/* Has Ctrl-C come since it was asked last, or a read had it? */
bool chat_line_interrupted(struct chat_line *line);

/* The next line of standard input, without its end, lent until the next call;
 * one that ends with a backslash goes on on the next line. On a terminal
 * `prompt` is shown. */
enum err chat_line_read(struct chat_line *line, const char *prompt,
                        enum chat_line_got *got, const char **text,
                        size_t *bytes);
