/* Texts that nobody here wrote, shown on a terminal. */
#pragma once

#include "src/base/err.h"
#include "src/base/buffer.h"

/* Append the text, which is valid UTF-8, with all control characters but tab
 * and line feed written out as in JSON, "\u001b": a terminal would obey them. */
enum err visible_add(const char *text, size_t bytes, struct buffer *out);
