/* One tile of a product in fp32 by one block on CUDA cores, for gemm and
 * grouped_gemm. The inner dimension passes through shared memory, and every
 * element is one thread's sum in order of k: its bits depend on its row of A
 * and its column of B and on nothing else. */
#pragma once

#include "kernels/cuda/cuda_vec.h"

/* Rows and columns of a tile, steps of k at a time, and threads, each of which
 * has QUAD x QUAD elements. */
#define CUDA_TILE 64
#define CUDA_TILE_K 32
#define CUDA_TILE_QUAD 4
#define CUDA_TILE_SIDE (CUDA_TILE / CUDA_TILE_QUAD)
#define CUDA_TILE_THREADS (CUDA_TILE_SIDE * CUDA_TILE_SIDE)

/* Elements between steps of k in shared memory: quads stay aligned and those
 * of neighbouring steps lie in other banks. */
#define CUDA_TILE_PITCH (CUDA_TILE + CUDA_TILE_QUAD)
#define CUDA_TILE_FLOATS (CUDA_TILE_K * CUDA_TILE_PITCH)
#define CUDA_TILE_BYTES (2 * CUDA_TILE_FLOATS * sizeof(float))

/* tile[l][i] = element l of the inner dimension of line i, for CUDA_TILE lines
 * (rows of A, columns of B) of which there are `lines`, and CUDA_TILE_K of the
 * `k` elements from p on; 0 outside. Lines are `pitch` apart in memory, or with
 * `across` the elements of one are, and lines lie side by side. */
CUDA_DEVICE void cuda_tile_load(const float *p, int64_t pitch, bool across,
                                int64_t lines, int64_t k, float *tile)
{
    const int quad = CUDA_TILE_QUAD;
    float x[quad];
    for (int at = (int)threadIdx.x * quad; at < CUDA_TILE * CUDA_TILE_K;
         at += CUDA_TILE_THREADS * quad) {
        if (across) {
            int i = at % CUDA_TILE, l = at / CUDA_TILE;
            cuda_load<quad>(p + l * pitch + i, l < k ? lines - i : 0, 0, x);
            for (int q = 0; q < quad; q++)
                tile[l * CUDA_TILE_PITCH + i + q] = x[q];
        } else {
            int l = at % CUDA_TILE_K, i = at / CUDA_TILE_K;
            cuda_load<quad>(p + i * pitch + l, i < lines ? k - l : 0, 0, x);
            for (int q = 0; q < quad; q++)
                tile[(l + q) * CUDA_TILE_PITCH + i] = x[q];
        }
    }
}

/* sum[i][j] += a[l][i] * b[l][j], l in order. */
CUDA_DEVICE void cuda_tile_multiply(const float *a, const float *b,
                                    float sum[CUDA_TILE_QUAD][CUDA_TILE_QUAD])
{
    typedef struct cuda_piece<CUDA_TILE_QUAD, float> piece;
    int down = (int)threadIdx.x / CUDA_TILE_SIDE * CUDA_TILE_QUAD;
    int right = (int)threadIdx.x % CUDA_TILE_SIDE * CUDA_TILE_QUAD;
    for (int l = 0; l < CUDA_TILE_K; l++) {
        piece x = *(const piece *)(a + l * CUDA_TILE_PITCH + down);
        piece y = *(const piece *)(b + l * CUDA_TILE_PITCH + right);
        for (int i = 0; i < CUDA_TILE_QUAD; i++)
            for (int j = 0; j < CUDA_TILE_QUAD; j++)
                sum[i][j] = fmaf(x.at[i], y.at[j], sum[i][j]);
    }
}

/* c = or += sum, and the bias. */
CUDA_DEVICE void cuda_tile_store(const struct gemm *g, int64_t row,
                                 int64_t column, float sum[][CUDA_TILE_QUAD])
{
    const int quad = CUDA_TILE_QUAD;
    row += threadIdx.x / CUDA_TILE_SIDE * quad;
    column += threadIdx.x % CUDA_TILE_SIDE * quad;
    float add[quad];
    int64_t left = g->n - column;
    for (int i = 0; i < quad && row + i < g->m; i++) {
        float *c = (float *)g->c + (row + i) * g->n + column;
        if (g->accumulate)
            cuda_load<quad>(c, left, 0, add);
        else if (g->bias != NULL)
            cuda_load<quad>((const float *)g->bias + column, left, 0, add);
        if (g->accumulate || g->bias != NULL)
            for (int j = 0; j < quad; j++)
                sum[i][j] += add[j];
        cuda_store<quad>(c, left, sum[i]);
    }
}

/* The tile at (row, column) of C by the whole block; shared memory:
 * CUDA_TILE_BYTES. */
CUDA_DEVICE void cuda_tile(const struct gemm *g, int64_t row, int64_t column,
                           float *shared)
{
    float sum[CUDA_TILE_QUAD][CUDA_TILE_QUAD] = { { 0 } };
    float *a_tile = shared, *b_tile = shared + CUDA_TILE_FLOATS;
    bool a_across = g->form == GEMM_TN, b_across = g->form != GEMM_NT;
    const float *a = (const float *)g->a + row * (a_across ? 1 : g->k);
    const float *b = (const float *)g->b + column * (b_across ? 1 : g->k);
    int64_t a_pitch = a_across ? g->m : g->k;
    int64_t b_pitch = b_across ? g->n : g->k;
    for (int64_t l = 0; l < g->k; l += CUDA_TILE_K) {
        cuda_tile_load(a + l * (a_across ? a_pitch : 1), a_pitch, a_across,
                       g->m - row, g->k - l, a_tile);
        cuda_tile_load(b + l * (b_across ? b_pitch : 1), b_pitch, b_across,
                       g->n - column, g->k - l, b_tile);
        __syncthreads();
        cuda_tile_multiply(a_tile, b_tile, sum);
        __syncthreads();
    }
    cuda_tile_store(g, row, column, sum);
}
