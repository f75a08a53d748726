/* A product in macro tiles of C, for the ops that run products in a loop of their
 * own. Bits do not depend on how C is cut (cpu_gemm_tile.h): macro tiles are chosen
 * by what keeps threads busy, and whoever runs them, in whatever order and
 * beside whatever else, gets the same. */
#pragma once

#include "kernels/cpu/cpu.h"

/* How often C is cut in each direction. */
struct gemm_cuts {
    int64_t rows, columns;
};

/* What there is room for: rows of A with so much of k, and elements of B. */
#define GEMM_ROOM_ROWS 280
#define GEMM_ROOM_DEPTH 1024
#define GEMM_ROOM_B (256 * 256)

/* A thread's packed operands and unfinished sums. */
struct gemm_room {
    float *a, *b, *sums;
    /* What is in `a`: rows [row, row_end) of this product, all of k; NULL:
     * nothing that may be used again. */
    const void *packed;
    int64_t row, row_end;
};

/* Bytes of scratch of one thread. */
size_t CPU_SYMBOL(gemm_room_bytes)(void);

/* The calling thread's room in ctx->scratch, with nothing packed. */
struct gemm_room CPU_SYMBOL(gemm_room)(const struct kernel_ctx *ctx);

/* The cuts with which so many threads are done soonest; m and n > 0. */
struct gemm_cuts CPU_SYMBOL(gemm_cuts)(const struct gemm *g, int threads);

/* Computes macro tile 0 <= index < rows * columns, on one thread. Macro tiles with
 * neighbouring numbers share rows, which are packed once. With k = 0 the
 * product is 0. */
void CPU_SYMBOL(gemm_macro_tile)(const struct gemm *g, struct gemm_cuts cuts,
                                 int64_t index, struct gemm_room *room);
