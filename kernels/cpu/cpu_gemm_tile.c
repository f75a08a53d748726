/* The arithmetic of every product: a tile of C in registers. */
#include "kernels/cpu/cpu_gemm_tile.h"

#define LINE 64

/* --- sums that wait, and C ---------------------------------------------------
 * Inline, so that `left` is a constant where the tile is whole. */

static inline vec begin_vec(const struct gemm_tile *t, int64_t i, int64_t j,
                            int64_t left)
{
    if (t->begin)
        return (vec){ 0 };
    return vec_load(t->sums + i * t->sums_stride + j, left);
}

static inline void end_vec(const struct gemm_tile *t, int64_t i, int64_t j,
                           int64_t left, vec chain)
{
    if (!t->end) {
        vec_store(t->sums + i * t->sums_stride + j, left, chain);
        return;
    }
    float *c = t->c + i * t->c_stride + j;
    if (t->add)
        chain = vec_load(c, left) + chain;
    else if (t->plus_zero)
        chain = (vec){ 0 } + chain; /* no -0 */
    if (t->bias != NULL)
        chain = chain + vec_load(t->bias + j, left);
    vec_store(c, left, chain);
}

/* C's lines come while the chains are computed. */
static void prefetch_c(int rows, const struct gemm_tile *t)
{
    const float *row = t->end ? t->c : t->sums;
    int64_t stride = t->end ? t->c_stride : t->sums_stride;
    for (int i = 0; i < rows; i++, row += stride)
        for (int v = 0; v < GEMM_COLUMNS; v += LINE / 4)
            __builtin_prefetch(row + v, 1, 3);
}

/* --- chains --- */

/* Inline, so that `rows`, `vecs` and `whole` are constants in each copy. */
static inline __attribute__((always_inline)) void
chains_run(const int rows, const int vecs, const bool whole,
           const struct gemm_tile *t, struct gemm_ahead *ahead)
{
    vec sum[GEMM_ROWS][GEMM_VECS];
    const float *a = t->a;
    const float *b = t->b;
    const int64_t k = t->k, stride = t->b_stride, lines = ahead->lines;
    uintptr_t run = ahead->next;
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            sum[i][v] = begin_vec(t, i, v * VEC_LANES,
                                  whole ? VEC_LANES : t->width - v * VEC_LANES);
    for (int64_t at = 0; at < k; at += lines, run += ahead->bytes) {
        int64_t end = cpu_min(k, at + lines);
        uintptr_t next = run;
        for (int64_t l = at; l < end; l++) {
            vec row[GEMM_VECS];
#pragma GCC unroll 4
            for (int v = 0; v < vecs; v++)
                row[v] = vec_load(b + v * VEC_LANES,
                                  whole ? VEC_LANES : t->width - v * VEC_LANES);
            __builtin_prefetch((const void *)next, 0, 2);
            next += LINE;
#pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                vec x = vec_splat(a[i]);
#pragma GCC unroll 4
                for (int v = 0; v < vecs; v++)
                    sum[i][v] = vec_fma(x, row[v], sum[i][v]);
            }
            a += GEMM_ROWS;
            b += stride;
        }
    }
    ahead->next = run;
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            end_vec(t, i, v * VEC_LANES,
                    whole ? VEC_LANES : t->width - v * VEC_LANES, sum[i][v]);
}

void CPU_SYMBOL(gemm_tile)(int rows, const struct gemm_tile *t,
                           struct gemm_ahead *ahead)
{
    int vecs = (int)cpu_parts(t->width, VEC_LANES);
    bool whole = t->width == GEMM_COLUMNS;
    assert(rows >= 1 && rows <= GEMM_ROWS && t->width >= 1);
    assert(t->width <= GEMM_COLUMNS);
    if (t->add || !t->end)
        prefetch_c(rows, t);
#define RUN(rows, vecs, whole)                                                 \
    case ((rows)*4 + (vecs)) * 2 + (whole):                                    \
        chains_run(rows, vecs, whole, t, ahead);                               \
        break;
#if GEMM_VECS == 1
#define CASE(rows) RUN(rows, 1, false) RUN(rows, 1, true)
#elif GEMM_VECS == 2
#define CASE(rows) RUN(rows, 1, false) RUN(rows, 2, false) RUN(rows, 2, true)
#else
#define CASE(rows)                                                             \
    RUN(rows, 1, false)                                                        \
    RUN(rows, 2, false) RUN(rows, 3, false) RUN(rows, 3, true)
#endif
    switch ((rows * 4 + vecs) * 2 + whole) {
        CASE(1)
        CASE(2)
        CASE(3)
        CASE(4)
#if GEMM_ROWS > 4
        CASE(5)
        CASE(6)
#endif
#if GEMM_ROWS > 6
        CASE(7)
        CASE(8)
#endif
#if GEMM_ROWS > 8
        CASE(9)
        CASE(10)
        CASE(11)
        CASE(12)
        CASE(13)
        CASE(14)
#endif
    }
#undef CASE
#undef RUN
}
