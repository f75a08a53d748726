/* Pairs of tokens in words: how often each occurs, in which words, and which
 * occurs most often. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

struct bpe_pairs;

enum err bpe_pairs_create(struct bpe_pairs **out);
void bpe_pairs_destroy(struct bpe_pairs *pairs);

/* The pair occurs so many times more in this word, or less. All changes of a
 * word follow one another. */
enum err bpe_pairs_add(struct bpe_pairs *pairs, int32_t a, int32_t b,
                       int64_t times, uint32_t word);
/* Those that became more since the last call may be popped. */
enum err bpe_pairs_settle(struct bpe_pairs *pairs);

struct bpe_pairs_top {
    int32_t a, b;
    int64_t count;
    uint32_t *word; /* that may have it; the caller frees it */
    size_t words;
};

/* The pair that occurs most often, of several that of the smaller tokens;
 * false: there is none. */
bool bpe_pairs_pop(struct bpe_pairs *pairs, struct bpe_pairs_top *out);
