/* A tile of C that the registers hold, and how operands are packed for it.
 *
 * Each element is one chain of fused multiply-adds in the order of k, begun at
 * 0. Where k is cut into blocks the chain is stored between them, which loses
 * nothing, as it is fp32 already: so the bits follow from the operands alone,
 * whatever the sizes below are in a kernel set. */
#pragma once

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_vec.h"

/* Rows, and vectors of a row, of a whole tile: their sums, a row of B and one
 * element of A fill the registers. Without fused multiply-adds each of them
 * takes registers of its own. */
#if VEC_LANES == 16
#define GEMM_ROWS 14
#define GEMM_VECS 2
#elif VEC_LANES == 8
#define GEMM_ROWS 6
#define GEMM_VECS 2
#elif defined(__ARM_NEON)
#define GEMM_ROWS 8
#define GEMM_VECS 3
#else
#define GEMM_ROWS 4
#define GEMM_VECS 1
#endif
#define GEMM_COLUMNS (GEMM_VECS * VEC_LANES)

/* What the next tiles will read from memory: rows of it, `bytes` apart, of each
 * `lines` cache lines. A tile fetches a line per step of k. */
struct gemm_ahead {
    uintptr_t next; /* not a pointer: it may run past the end */
    uintptr_t bytes;
    int64_t lines;
};

struct gemm_tile {
    int64_t k;      /* of this block */
    const float *a; /* packed: [k][GEMM_ROWS] */
    const float *b; /* [k], rows of `width` elements, b_stride apart */
    int64_t b_stride;
    int64_t width; /* columns that are there, at most GEMM_COLUMNS */
    float *sums;   /* where chains wait between blocks of k */
    int64_t sums_stride;
    bool begin, end; /* the first, the last block of k */
    /* Used at the end: C = chain, or C + chain with `add`, or +0 + chain with
     * `plus_zero`, then + bias. */
    float *c;
    int64_t c_stride;
    bool add, plus_zero;
    const float *bias; /* of these columns, or NULL */
};

/* Computes `rows` of them, 1 to GEMM_ROWS; *ahead becomes what is left to
 * fetch. */
void CPU_SYMBOL(gemm_tile)(int rows, const struct gemm_tile *tile,
                           struct gemm_ahead *ahead);

/* `count` rows of A or columns of B, at most `width` (GEMM_ROWS or
 * GEMM_COLUMNS), of k elements become the panel to[k][width], `from` being the
 * first element; what the panel has beyond `count` means nothing. Writes up to
 * VEC_LANES floats beyond it. An element's neighbour in memory is its neighbour
 * along k ("across"), or along the width; `ld` elements lie between the other
 * neighbours. In the latter case the first `reach` >= count elements of each
 * row may be read. */
void CPU_SYMBOL(gemm_pack_across)(int64_t count, int64_t k, int width,
                                  const float *from, int64_t ld, float *to);
void CPU_SYMBOL(gemm_pack_along)(int64_t count, int64_t reach, int64_t k,
                                 int width, const float *from, int64_t ld,
                                 float *to);
