/* Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011): a counter-based generator.
 * There is no state: a draw is a function of key and counter, so nothing has to
 * be saved and nothing depends on rank count or order of use. */
#pragma once

#include <stdint.h>

/* One block: out[4] from key[2] and counter[4]. */
void rng_philox(const uint32_t key[2], const uint32_t counter[4],
                uint32_t out[4]);

/* 64 bits for (seed, stream, index). Streams separate uses. */
uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t index);
/* Uniform in [0, 1), 53 bits. */
double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index);
/* Standard normal, Box-Muller on one block, in fp64. */
double rng_normal(uint64_t seed, uint64_t stream, uint64_t index);
/* out[i] = scale * normal(seed, stream, first + i). */
void rng_fill_normal(uint64_t seed, uint64_t stream, uint64_t first,
                     int64_t count, float scale, float *out);

/* A stream number from a name (FNV-1a 64): tensors are streams. */
uint64_t rng_stream(const char *name);
