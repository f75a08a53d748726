/* A GEMM with few rows per weight matrix, as an expert's are. */
#ifndef TESSERA_KERNELS_CPU_SKINNY_H
#define TESSERA_KERNELS_CPU_SKINNY_H

#include "kernels/cpu_gemm.h"

/* Whether this GEMM is better run by skinny_tile() than by BLAS: by its shape
 * and the kernel set alone. */
bool CPU_SYMBOL(skinny_fits)(const struct gemm *g);

/* The number of tiles of C, at most GEMM_TILES_MAX. */
int64_t CPU_SYMBOL(skinny_tiles)(const struct gemm *g);

/* Computes tile 0 <= index < `tiles`, on one thread, without a bias. The bits
 * of an element of C follow from its row of A and its column of B. */
void CPU_SYMBOL(skinny_tile)(const struct gemm *g, int64_t tiles,
                             int64_t index);

#endif
