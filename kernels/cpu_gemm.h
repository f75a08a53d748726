/* The tiles of a GEMM, for the ops that run GEMMs in a loop of their own.
 *
 * Which tiles there are follows from the shape of this GEMM alone, and each one
 * is a single-threaded BLAS call: whoever runs them, in whatever order and
 * beside whatever else, gets the same bits. */
#ifndef TESSERA_KERNELS_CPU_GEMM_H
#define TESSERA_KERNELS_CPU_GEMM_H

#include "kernels/cpu.h"

/* No GEMM is cut into more tiles. */
#define GEMM_TILES_MAX 16

struct gemm_tiling {
    int64_t rows, columns; /* number of tiles in each direction */
};

struct gemm_tiling CPU_SYMBOL(gemm_tiling)(const struct gemm *g);

/* Computes tile 0 <= index < rows * columns, on one thread. With k = 0 the tile
 * is zeroed, or left alone if it accumulates. */
void CPU_SYMBOL(gemm_tile)(const struct gemm *g, struct gemm_tiling tiling,
                           int64_t index);

#endif
