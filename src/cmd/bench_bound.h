/* What the machine allows: GEMM by threaded OpenBLAS and triad bandwidth. For
 * a process of its own (bench_child.h). */
#ifndef TESSERA_CMD_BENCH_BOUND_H
#define TESSERA_CMD_BENCH_BOUND_H

#include <stdint.h>

#include "src/base/err.h"

#define BENCH_BOUND_ROUNDS 3
#define BENCH_BOUND_VALUES (2 * BENCH_BOUND_ROUNDS)

/* One GEMM triple: y[m,n] = x[m,k] w[n,k]^T forward, then dX and dW. */
struct bench_shape {
    int64_t m, n, k;
    int times;
};

struct bench_bound {
    const struct bench_shape *shapes;
    int count;
    int threads;
};

/* arg: struct bench_bound. values: per round the seconds of one pass over all
 * shapes, and bytes per second of a[i] = b[i] + s c[i] (12 bytes per element).
 * A first pass is not counted. */
enum err bench_bound(const void *arg, double *values);

#endif
