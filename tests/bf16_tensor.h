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

static inline float widened(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* A rounding to 8 significant bits, with room for the fp32 error before it. */
#define BF16_ROUNDING 0x1.002p-8

/* The table that has bf16; NULL, after a visible skip, if there is none. */
static inline const struct kernels *bf16_table(void)
{
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++)
        if (strcmp((*t)->backend, "cpu") != 0)
            return *t;
    tap_skip("no table has bf16: the CUDA kernels are emulated only where a "
             "C++ compiler is");
    return NULL;
}

static inline double element_at(const void *data, enum dtype dtype, int64_t i)
{
    return dtype == DTYPE_F32 ? (double)((const float *)data)[i]
                              : (double)widened(((const uint16_t *)data)[i]);
}

/* n elements of either type, and their values. */
struct operand {
    int64_t n;
    size_t bytes; /* of an element */
    void *data;
    double *value;
};

static inline struct operand operand_random(enum dtype dtype, int64_t n,
                                            uint64_t seed, double scale)
{
    struct operand o = { .n = n,
                         .bytes = dtype == DTYPE_F32 ? sizeof(float)
                                                     : sizeof(uint16_t) };
    o.data = dtype == DTYPE_F32 ? (void *)check_random(n, seed, scale)
                                : tensor_random(n, seed, scale).half;
    o.value = check_f64(n);
    for (int64_t i = 0; i < n; i++)
        o.value[i] = element_at(o.data, dtype, i);
    return o;
}

static inline void operand_poison(struct operand *o, int64_t i)
{
    const float nan = check_nan();
    const uint16_t half = 0x7fc1;
    memcpy((char *)o->data + (size_t)i * o->bytes,
           o->bytes == sizeof(nan) ? (const void *)&nan : &half, o->bytes);
    o->value[i] = NAN;
}

/* A copy of `count` elements from element `at` on, behind `skip` ones of NaN. */
static inline char *operand_part(const struct operand *o, int64_t at,
                                 int64_t count, int64_t skip)
{
    struct operand copy = *o;
    copy.data = check_alloc((size_t)(skip + count) * o->bytes);
    copy.value = check_f64(skip);
    for (int64_t i = 0; i < skip; i++)
        operand_poison(&copy, i);
    memcpy((char *)copy.data + (size_t)skip * o->bytes,
           (const char *)o->data + (size_t)at * o->bytes,
           (size_t)count * o->bytes);
    return copy.data;
}
