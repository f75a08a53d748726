/* Several short examples in one row: first-fit decreasing, the longest first,
 * each into the first row that has room for it.
 *
 * The same lengths give the same rows. Examples are packed in windows, so that
 * those of a row were near each other and memory is bounded. */
#pragma once

#include <stdint.h>

#include "src/base/err.h"

/* Examples that are packed together. */
#define PACK_WINDOW 16384

/* row[i]: the row of example i, 0 .. *rows - 1, for `count` examples of 1 to
 * seq_len tokens. Rows are numbered by their longest example, and hold their
 * examples in the order in which they came. */
enum err pack_rows(const int64_t *length, int64_t count, int64_t seq_len,
                   int64_t *row, int64_t *rows);
