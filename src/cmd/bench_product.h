/* Matrix products to be timed: their operands, and whether a result is right.
 *
 * Operands are whole numbers so small that every partial sum, in whatever
 * order, is a whole number below 2^24: fp32 holds it exactly, so a right
 * product has exactly one value. It is checked whole by Freivalds' method
 * (1977), in integers: C r = A (B r) for a random vector r. A's numbers have
 * more than bf16's 8 bits. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernel_shapes.h"
#include "src/base/arena.h"
#include "src/base/err.h"

/* `groups` products of the same form, one after the other in memory: those of
 * group g begin at a + g m k, b + g n k and c + g m n in every form. */
struct bench_product {
    enum gemm_form form;
    int groups; /* 1: an ordinary product */
    int64_t m, n, k;
};

/* Operands of one product at a time, in memory that grows with it. */
struct bench_operands {
    struct arena arena;
    float *a, *b, *c;
};

/* Who computes: c of each group, from operands that bench_product_prepare() has
 * made. */
struct bench_multiplier {
    enum err (*multiply)(void *arg, const struct bench_product *product,
                         const struct bench_operands *operands);
    void *arg;
};

/* That of a linear layer on so many tokens: its output (NT), the gradient of
 * its input (NN) or of its weights[outputs, inputs] (TN). */
struct bench_product bench_product_linear(enum gemm_form form, int64_t tokens,
                                          int64_t outputs, int64_t inputs);

/* "NT", "NN", "TN" */
const char *bench_product_form(const struct bench_product *product);

/* 2 m n k of every group. */
double bench_product_flops(const struct bench_product *product);

/* A zeroed struct bench_operands is empty. */
void bench_operands_destroy(struct bench_operands *operands);

/* Makes the operands and computes once. ERR_NUMERIC: the result is wrong. */
enum err bench_product_prepare(const struct bench_product *product,
                               const struct bench_multiplier *multiplier,
                               struct bench_operands *operands);

/* Seconds of one of `calls` calls after bench_product_prepare(), or of fewer if
 * they take longer than 0.2 s. */
enum err bench_product_time(const struct bench_product *product,
                            const struct bench_multiplier *multiplier,
                            const struct bench_operands *operands, int calls,
                            double *seconds);
