/* What the machine allows: the products of a step by another library, and triad
 * bandwidth. */
#pragma once

#include <stdint.h>

#include "src/base/err.h"
#include "src/cmd/bench_blas.h"
#include "src/cmd/bench_model.h"

#define BENCH_BOUND_ROUNDS 3

/* The linear layers of a model without experts, and its head. */
#define BENCH_BOUND_SHAPES 5
struct bench_shape {
    const char *name;
    int64_t outputs, inputs;
    int times; /* layers */
};
void bench_bound_shapes(const struct model_config *config,
                        struct bench_shape shapes[BENCH_BOUND_SHAPES]);

/* Seconds of one pass over forward, dX and dW of all layers on the kind's batch
 * by that library, in a process that is started for it; each result is checked
 * before it is timed. */
enum err bench_bound_gemm(const struct bench_blas_choice *choice,
                          const struct bench_model_kind *kind,
                          double seconds[BENCH_BOUND_ROUNDS]);

/* For bench_child(): arg is an int, the number of threads; values: per round
 * the best bytes per second of a[i] = b[i] + s c[i] (12 bytes per element). */
enum err bench_bound_triad(const void *arg, double *values);
