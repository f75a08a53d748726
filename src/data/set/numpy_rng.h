/* Draws of NumPy's random.default_rng(seed), bit for bit (numpy_rng.c). The
 * Streaming library orders samples with these.
 *
 * A draw of 32 bits takes the low half of 64, and the next one the high half,
 * whatever was drawn in between. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"

struct numpy_rng {
    uint64_t state[2], increment[2]; /* low, high */
    bool has_half;
    uint32_t half;
};

/* default_rng(seed). */
void numpy_rng_seed(struct numpy_rng *rng, uint64_t seed);

/* uniform(low, high). */
double numpy_rng_uniform(struct numpy_rng *rng, double low, double high);
/* integers(low, high): low <= x < high; low < high. */
int64_t numpy_rng_integers(struct numpy_rng *rng, int64_t low, int64_t high);
/* The j that shuffle() exchanges with i: 0 <= j <= i. */
int64_t numpy_rng_interval(struct numpy_rng *rng, int64_t i);
/* shuffle(values). */
void numpy_rng_shuffle(struct numpy_rng *rng, int64_t *values, int64_t count);
/* permutation(count), into out[count]. */
void numpy_rng_permutation(struct numpy_rng *rng, int64_t count, int64_t *out);
/* choice(population, count, replace=False), into out[count];
 * 0 <= count <= population. ERR_MEMORY. */
enum err numpy_rng_choice(struct numpy_rng *rng, int64_t population,
                          int64_t count, int64_t *out);
