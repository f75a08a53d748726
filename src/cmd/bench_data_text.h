/* The part of tessera-bench data that tokenizes, in one thread:
 *
 *   tokenizer              what encodes: the file in TESSERA_BENCH_TOKENIZER, a
 *                          tokenizer.json; bytes without one
 *   tokenize_mb_per_s      10^6 bytes of text a second, of the file in
 *                          TESSERA_BENCH_TEXT, or of made words
 *   tokenize_bytes_per_token  of that text
 *   tokenize_hard_ratio    the longest time per byte of a megabyte that was made
 *                          to take long, over that of the text
 *   tokenize_hard_input    which one that was
 *
 * Times are the best of a few rounds, in which text and hard inputs take turns.
 */
#pragma once

#include <jansson.h>

#include "src/base/err.h"

/* Add them to `result`. */
enum err bench_data_text(json_t *result);
