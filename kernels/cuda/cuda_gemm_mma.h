/* One tile of a bf16 product by one block on tensor cores, for gemm and
 * grouped_gemm. The inner dimension passes through shared memory in two stages:
 * while the warps multiply one step of it, the next one is on its way. An
 * element is summed in fp32 in order of k and rounded once: its bits depend on
 * its row of A and its column of B and on nothing else, whatever the alignment:
 * vectors that cannot be fetched whole are copied element by element. */
#pragma once

#include "kernels/cuda/cuda_mma.h"

/* Rows and columns of a tile, and steps of k at a time. */
#define CUDA_GEMM_MMA_TILE 128
#define CUDA_GEMM_MMA_K 32

/* Eight warps, 2 by 4, each with 64 rows and 32 columns of the tile. */
#define CUDA_GEMM_MMA_RIGHT 4
#define CUDA_GEMM_MMA_DOWN 2
#define CUDA_GEMM_MMA_THREADS                                                  \
    (CUDA_GEMM_MMA_DOWN * CUDA_GEMM_MMA_RIGHT * CUDA_WARP)
#define CUDA_GEMM_MMA_ROWS (CUDA_GEMM_MMA_TILE / CUDA_GEMM_MMA_DOWN)
#define CUDA_GEMM_MMA_COLUMNS (CUDA_GEMM_MMA_TILE / CUDA_GEMM_MMA_RIGHT)
/* A warp's parts of 16 x 8. */
#define CUDA_GEMM_MMA_HIGH (CUDA_GEMM_MMA_ROWS / CUDA_MMA_ROWS)
#define CUDA_GEMM_MMA_WIDE (CUDA_GEMM_MMA_COLUMNS / 8)

/* How an operand's lines (rows of A, columns of B) lie in memory and in shared
 * memory: one after the other, or ACROSS the rows, side by side. */
template <bool ACROSS> struct cuda_gemm_mma_side {
    static const int rows = ACROSS ? CUDA_GEMM_MMA_K : CUDA_GEMM_MMA_TILE;
    static const int width = ACROSS ? CUDA_GEMM_MMA_TILE : CUDA_GEMM_MMA_K;
    static const int stride = CUDA_MMA_STRIDE(struct cuda_bf16, width);
    static const int count = rows * stride;
};

/* The block's arrays in shared memory. */
template <enum gemm_form FORM> struct cuda_gemm_mma_shared {
    typedef struct cuda_gemm_mma_side<FORM == GEMM_TN> a_side;
    typedef struct cuda_gemm_mma_side<FORM != GEMM_NT> b_side;
    struct {
        struct cuda_bf16 a[a_side::count], b[b_side::count];
    } stages[2];
};

/* A vector of which `left` elements are there; zeros after them. */
CUDA_DEVICE void cuda_gemm_mma_vector(const struct cuda_bf16 *from, int left,
                                      struct cuda_bf16 *to)
{
    const int lanes = cuda_lanes<struct cuda_bf16>::count;
    if (left >= lanes && (uintptr_t)from % CUDA_VECTOR_BYTES == 0) {
        cuda_mma_fetch(from, to);
        return;
    }
    for (int i = 0; i < lanes; i++) {
        if (i < left)
            to[i] = from[i];
        else
            to[i].bits = 0;
    }
}

/* to = the side's rows and columns of `p`, of which there are `rows` and
 * `columns` and rows are `pitch` apart; zeros outside. */
template <class S>
CUDA_DEVICE void cuda_gemm_mma_load(const struct cuda_bf16 *p, int64_t pitch,
                                    int rows, int columns, struct cuda_bf16 *to)
{
    const int lanes = cuda_lanes<struct cuda_bf16>::count;
    const int vectors = S::width / lanes;
    const int step = CUDA_GEMM_MMA_THREADS / vectors;
    int row = (int)threadIdx.x / vectors;
    int column = (int)threadIdx.x % vectors * lanes;
    bool whole = rows >= S::rows && columns >= S::width &&
                 (uintptr_t)p % CUDA_VECTOR_BYTES == 0 && pitch % lanes == 0;
    p += row * pitch + column;
    to += row * S::stride + column;
    if (whole) {
        CUDA_UNROLL
        for (int at = 0; at < S::rows; at += step)
            cuda_mma_fetch(p + at * pitch, to + at * S::stride);
        return;
    }
    for (int at = 0; at < S::rows; at += step)
        cuda_gemm_mma_vector(p + at * pitch,
                             row + at < rows ? columns - column : 0,
                             to + at * S::stride);
}

/* Where this lane's row of an 8 x 8 matrix begins: `line` and `k` are the
 * matrix's number in either direction. */
template <bool ACROSS> CUDA_DEVICE int cuda_gemm_mma_place(int line, int k)
{
    const int stride = cuda_gemm_mma_side<ACROSS>::stride;
    int inside = cuda_lane() % 8;
    return ACROSS ? (k * 8 + inside) * stride + line * 8
                  : (line * 8 + inside) * stride + k * 8;
}

/* sum += a step of k of this warp's part of the tile. */
template <bool A_ACROSS, bool B_ACROSS>
CUDA_DEVICE void cuda_gemm_mma_multiply(const struct cuda_bf16 *a,
                                        const struct cuda_bf16 *b,
                                        float (*sum)[CUDA_GEMM_MMA_WIDE][4])
{
    const int warp = (int)threadIdx.x / CUDA_WARP, matrix = cuda_lane() / 8;
    cuda_mma_together();
    int down = warp / CUDA_GEMM_MMA_RIGHT * CUDA_GEMM_MMA_ROWS / 8;
    int right = warp % CUDA_GEMM_MMA_RIGHT * CUDA_GEMM_MMA_COLUMNS / 8;
    a += cuda_gemm_mma_place<A_ACROSS>(down + matrix % 2, matrix / 2);
    b += cuda_gemm_mma_place<B_ACROSS>(right + matrix / 2, matrix % 2);
    const int a_line = A_ACROSS ? 1 : cuda_gemm_mma_side<A_ACROSS>::stride;
    const int b_line = B_ACROSS ? 1 : cuda_gemm_mma_side<B_ACROSS>::stride;
    const int a_step = A_ACROSS ? cuda_gemm_mma_side<A_ACROSS>::stride : 1;
    const int b_step = B_ACROSS ? cuda_gemm_mma_side<B_ACROSS>::stride : 1;
    CUDA_UNROLL
    for (int k = 0; k < CUDA_GEMM_MMA_K; k += 16) {
        unsigned rows[4], columns[CUDA_GEMM_MMA_WIDE / 2][4];
        CUDA_UNROLL
        for (int j = 0; j < CUDA_GEMM_MMA_WIDE / 2; j++)
            cuda_mma_load(B_ACROSS, b, j * 16 * b_line + k * b_step,
                          columns[j]);
        CUDA_UNROLL
        for (int i = 0; i < CUDA_GEMM_MMA_HIGH; i++) {
            cuda_mma_load(A_ACROSS, a, i * 16 * a_line + k * a_step, rows);
            CUDA_UNROLL
            for (int j = 0; j < CUDA_GEMM_MMA_WIDE; j++)
                cuda_mma(rows, columns[j / 2] + j % 2 * 2, sum[i][j]);
        }
    }
}

/* c = or += sum, and the bias; (row, column) is the tile's place. */
template <class C>
CUDA_DEVICE void cuda_gemm_mma_store(const struct gemm *g, int64_t row,
                                     int64_t column,
                                     float (*sum)[CUDA_GEMM_MMA_WIDE][4])
{
    const int warp = (int)threadIdx.x / CUDA_WARP;
    row += warp / CUDA_GEMM_MMA_RIGHT * CUDA_GEMM_MMA_ROWS + cuda_lane() / 4;
    column += warp % CUDA_GEMM_MMA_RIGHT * CUDA_GEMM_MMA_COLUMNS +
              cuda_lane() % 4 * 2;
    CUDA_UNROLL
    for (int part = 0; part < 2 * CUDA_GEMM_MMA_HIGH; part++) {
        C *c = (C *)g->c + (row + part * 8) * g->n + column;
        if (row + part * 8 >= g->m)
            return;
        CUDA_UNROLL
        for (int j = 0; j < CUDA_GEMM_MMA_WIDE; j++) {
            float *pair = sum[part / 2][j] + part % 2 * 2, add[2] = { 0, 0 };
            int64_t left = g->n - column - j * 8;
            if (g->accumulate)
                cuda_load<2>(c + j * 8, left, 0, add);
            else if (g->bias != NULL)
                cuda_load<2>((const struct cuda_bf16 *)g->bias + column + j * 8,
                             left, 0, add);
            pair[0] += add[0];
            pair[1] += add[1];
            cuda_store<2>(c + j * 8, left, pair);
        }
    }
}

/* The tile at (row, column) of C by the whole block, which may come from
 * another tile. C's elements are bf16, or fp32 in TN. */
template <enum gemm_form FORM, class C>
CUDA_DEVICE void cuda_gemm_mma_tile(const struct gemm *g, int64_t row,
                                    int64_t column,
                                    struct cuda_gemm_mma_shared<FORM> *shared)
{
    typedef struct cuda_gemm_mma_shared<FORM> arrays;
    const bool a_across = FORM == GEMM_TN, b_across = FORM != GEMM_NT;
    const int64_t a_pitch = a_across ? g->m : g->k;
    const int64_t b_pitch = b_across ? g->n : g->k;
    const struct cuda_bf16 *a =
        (const struct cuda_bf16 *)g->a + row * (a_across ? 1 : a_pitch);
    const struct cuda_bf16 *b =
        (const struct cuda_bf16 *)g->b + column * (b_across ? 1 : b_pitch);
    const int a_lines = (int)cuda_min(g->m - row, CUDA_GEMM_MMA_TILE);
    const int b_lines = (int)cuda_min(g->n - column, CUDA_GEMM_MMA_TILE);
    float sum[CUDA_GEMM_MMA_HIGH][CUDA_GEMM_MMA_WIDE][4] = {};
    for (int64_t next = 0; next < g->k + CUDA_GEMM_MMA_K;
         next += CUDA_GEMM_MMA_K) {
        int stage = (int)(next / CUDA_GEMM_MMA_K % 2);
        int left = (int)cuda_min(g->k - next, CUDA_GEMM_MMA_K);
        cuda_mma_fetched();
        __syncthreads();
        if (left > 0) {
            cuda_gemm_mma_load<typename arrays::a_side>(
                a + next * (a_across ? a_pitch : 1), a_pitch,
                a_across ? left : a_lines, a_across ? a_lines : left,
                shared->stages[stage].a);
            cuda_gemm_mma_load<typename arrays::b_side>(
                b + next * (b_across ? b_pitch : 1), b_pitch,
                b_across ? left : b_lines, b_across ? b_lines : left,
                shared->stages[stage].b);
        }
        if (next > 0)
            cuda_gemm_mma_multiply<a_across, b_across>(
                shared->stages[1 - stage].a, shared->stages[1 - stage].b, sum);
    }
    cuda_gemm_mma_store<C>(g, row, column, sum);
}

/* Calls function<form, C>(...), C being the type of C's elements. */
#define CUDA_GEMM_MMA_BY_FORM(form, function, ...)                             \
    ((form) == GEMM_NT   ? function<GEMM_NT, struct cuda_bf16>(__VA_ARGS__)    \
     : (form) == GEMM_NN ? function<GEMM_NN, struct cuda_bf16>(__VA_ARGS__)    \
                         : function<GEMM_TN, float>(__VA_ARGS__))
