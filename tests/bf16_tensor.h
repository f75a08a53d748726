/* A tensor as fp32 and as bf16 tables see it, with the same values. */
#pragma once

#include "tests/kernel_check.h"

struct tensor {
    int64_t n;
    float *wide;
    uint16_t *half;
};

/* half becomes wide, whose values bf16 can hold. */
static inline void tensor_narrow(struct tensor *t)
{
    for (int64_t i = 0; i < t->n; i++) {
        uint32_t bits;
        memcpy(&bits, &t->wide[i], sizeof(bits));
        t->half[i] = (uint16_t)(bits >> 16);
    }
}

static inline struct tensor tensor_random(int64_t n, uint64_t seed,
                                          double scale)
{
    struct tensor t = { .n = n, .wide = check_random(n, seed, scale) };
    t.half = check_alloc((size_t)n * sizeof(*t.half));
    for (int64_t i = 0; i < n; i++)
        t.wide[i] = check_bf16_of(t.wide[i]);
    tensor_narrow(&t);
    return t;
}

static inline void tensor_free(struct tensor *t)
{
    free(t->half);
    free(t->wide);
}

static inline float widened(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}
