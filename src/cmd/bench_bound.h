/* A child process that measures what the machine allows: GEMM by threaded
 * OpenBLAS and triad bandwidth. It must be forked before this process uses
 * OpenMP or OpenBLAS. */
#ifndef TESSERA_CMD_BENCH_BOUND_H
#define TESSERA_CMD_BENCH_BOUND_H

#include <stdint.h>

#include "src/base/err.h"

struct bench_bound;

/* One GEMM triple: y[m,n] = x[m,k] w[n,k]^T forward, then dX and dW. */
struct bench_shape {
    int64_t m, n, k;
    int times;
};

enum err bench_bound_create(const struct bench_shape *shapes, int count,
                            int threads, struct bench_bound **out);
void bench_bound_destroy(struct bench_bound *bound);

/* Seconds of one pass over all shapes, and bytes per second of
 * a[i] = b[i] + s c[i] (12 bytes per element). */
enum err bench_bound_measure(struct bench_bound *bound, double *gemm_s,
                             double *triad_bytes_per_s);

#endif
