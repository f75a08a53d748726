/* Random choices as CPython's module `random` makes them, by which LLM Foundry
 * draws the examples of a few-shot prompt: the Mersenne Twister (Matsumoto and
 * Nishimura 1998, MT19937), started by a whole number, and on it sample() and
 * choice() of a range(n). The order in which CPython iterates over a set of
 * whole numbers decides the order of these examples, so it is here, too. As of
 * CPython 3.11; earlier and later versions of 3 agree. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

#define PYTHON_RANDOM_WORDS 624

struct python_random {
    uint32_t word[PYTHON_RANDOM_WORDS];
    int next;
};

/* random.Random(seed) */
void python_random_seed(struct python_random *random, uint64_t seed);
/* getrandbits(bits), 1 <= bits <= 32 */
uint32_t python_random_bits(struct python_random *random, int bits);
/* choice(range(n)), 0 < n < 2^32 */
int64_t python_random_choice(struct python_random *random, int64_t n);
/* sample(range(n), k), 0 <= k <= n < 2^32, into out[k]. Takes the time of k
 * draws, and memory for as many. */
enum err python_random_sample(struct python_random *random, int64_t n,
                              int64_t k, int64_t *out);

/* A set of whole numbers from 0 on. Zeros: an empty one. */
struct python_set {
    int64_t *slot; /* [mask + 1] a number, or one of the two below; NULL: 8
                      empty ones */
    size_t mask, fill, used;
};

/* Nothing happens where the number is there, or is not there. */
enum err python_set_add(struct python_set *set, int64_t number);
void python_set_remove(struct python_set *set, int64_t number);
bool python_set_has(const struct python_set *set, int64_t number);
/* Its `used` numbers in the order of iteration. */
void python_set_list(const struct python_set *set, int64_t *out);
void python_set_free(struct python_set *set);
