/* tessera-bench gemm: our products by shape, beside the peak and beside every
 * other BLAS that is here (bench_peer.h).
 *
 *   shapes    of the step of 125m and 10m (bench_model.h) on leaves of 64, 256
 *             and 2048 tokens: forward (NT), gradient of the input (NN) and of
 *             the weights (TN) of every linear layer and the head; attention's,
 *             one head of 64 by as many queries and keys, without the mask;
 *             those of moe's experts, 8 groups of 64 rows, which a peer
 *             computes by 8 calls; what takes more than 256 MiB is left out
 *   ours_gflops  2 m n k per group and second by kernels->gemm or grouped_gemm
 *   peak_gflops  of multiply-adds in registers by the same threads and kernel
 *             set; peak_fraction = ours_gflops / peak_gflops
 *   peers     GFLOP/s by library; best_peer_fraction = ours over the fastest
 *   attention  forward and backward of 12 heads of 64 on one sequence of 2048
 *             tokens; FLOPs of the causal half (bench_flops.h)
 *   peak_fraction_min, _median, best_peer_fraction_min, _median  over the
 *             shapes
 *
 * Everyone computes the same numbers, and everyone's result is checked before
 * it is timed. Bursts of some 10 ms take turns: peak, ours, the peers, and back
 * in the opposite order. A figure is the median of its bursts. Operands stay
 * where they are, so that small ones are in a cache.
 */
#pragma once

#include <jansson.h>

#include "kernels/kernels.h"
#include "src/cmd/bench_peer.h"
#include "src/cmd/bench_product.h"
#include "src/cmd/bench_step.h"

enum err bench_gemm(const struct bench_options *options, json_t **result);
/* The result as a table. */
void bench_gemm_print(const json_t *result);

/* --- what its files share --- */

#define BENCH_GEMM_SAMPLES 24
#define BENCH_GEMM_SHAPES 160

struct bench_gemm_shape {
    char what[32]; /* "125m qkv" */
    struct bench_product product;
    int count; /* of samples: FLOP/s */
    double ours[BENCH_GEMM_SAMPLES];
    double peak[BENCH_GEMM_SAMPLES];
    double peers[BLAS_KINDS][BENCH_GEMM_SAMPLES];
};

/* All shapes that the options choose; returns how many. ERR_USAGE: no such
 * model. */
enum err bench_gemm_shapes(const struct bench_options *options,
                           struct bench_gemm_shape *shapes, int *count);

/* Our side. */
struct bench_gemm_ours {
    const struct kernels *kernels;
    struct kernel_ctx ctx;
};
double bench_gemm_peak(const struct bench_gemm_ours *ours);

/* attention: [{what, tokens, heads, head_dim, gflops, peak_gflops,
 * peak_fraction}, ...], from `rounds` bursts of each. */
enum err bench_gemm_attention(const struct bench_gemm_ours *ours,
                              int64_t tokens, int rounds, json_t **result);
#define BENCH_GEMM_HEADS 12
#define BENCH_GEMM_HEAD_DIM 64

json_t *bench_gemm_report(const struct bench_gemm_ours *ours,
                          const struct bench_peers *peers,
                          struct bench_gemm_shape *shapes, int count);
