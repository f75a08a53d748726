/* Products of small matrices that stay in the cache, for attention.
 *
 * b is packed: its rows are whole vectors. a is read element by element in any
 * layout, so neither a nor its transpose is ever copied. Each element of c is
 * one sum over k in order. */
#pragma once

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_vec.h"

/* Rows, and vectors of a row, whose sums fit into the registers together. */
#define CPU_TILE_ROWS 6
#if VEC_LANES == 16
#define CPU_TILE_VECS 4
#else
#define CPU_TILE_VECS 2
#endif

/* c[i, n] = or += scale * sum over k of a[i a_row + k a_column] b[k, n], of at
 * most CPU_TILE_ROWS rows; b and c by their strides. Vectors of b are read
 * whole. */
struct cpu_tile {
    int64_t rows, n, k;
    const float *a;
    int64_t a_row, a_column;
    const float *b;
    int64_t b_stride;
    float *c;
    int64_t c_stride;
    float scale;
    bool accumulate;
};

/* Columns [at, at + vecs * VEC_LANES); `vecs` is a constant. Rows that are not
 * there repeat the last one and are not stored. */
static inline __attribute__((always_inline)) void
cpu_tile_columns(const struct cpu_tile *t, int64_t at, int vecs)
{
    vec sum[CPU_TILE_ROWS][CPU_TILE_VECS];
    const float *a[CPU_TILE_ROWS];
    const float *b = t->b + at;
    int64_t step = t->a_column;
#pragma GCC unroll 6
    for (int r = 0; r < CPU_TILE_ROWS; r++) {
        a[r] = t->a + cpu_min(r, t->rows - 1) * t->a_row;
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            sum[r][v] = (vec){ 0 };
    }
    for (int64_t k = 0; k < t->k; k++, b += t->b_stride) {
        vec row[CPU_TILE_VECS];
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            memcpy(&row[v], b + v * VEC_LANES, sizeof(vec));
#pragma GCC unroll 6
        for (int r = 0; r < CPU_TILE_ROWS; r++) {
            vec x = vec_splat(a[r][k * step]);
#pragma GCC unroll 4
            for (int v = 0; v < vecs; v++)
                sum[r][v] = vec_fma(x, row[v], sum[r][v]);
        }
    }
    /* By way of memory, so that the sums stay in registers until here. */
    vec done[CPU_TILE_ROWS][CPU_TILE_VECS];
#pragma GCC unroll 6
    for (int r = 0; r < CPU_TILE_ROWS; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            done[r][v] = sum[r][v] * t->scale;
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t v = 0; v < vecs; v++) {
            int64_t column = at + v * VEC_LANES;
            float *c = t->c + r * t->c_stride + column;
            vec y = done[r][v];
            if (t->accumulate)
                y += vec_load(c, t->n - column);
            vec_store(c, t->n - column, y);
        }
}

static inline void cpu_tile_product(const struct cpu_tile *t)
{
    int64_t at = 0;
    int64_t step = CPU_TILE_VECS * VEC_LANES;
    for (; at + step - VEC_LANES < t->n; at += step)
        cpu_tile_columns(t, at, CPU_TILE_VECS);
#if CPU_TILE_VECS == 4
    if (at + 2 * VEC_LANES < t->n)
        cpu_tile_columns(t, at, 3);
    else if (at + VEC_LANES < t->n)
        cpu_tile_columns(t, at, 2);
    else if (at < t->n)
        cpu_tile_columns(t, at, 1);
#else
    if (at < t->n)
        cpu_tile_columns(t, at, 1);
#endif
}

/* Rows of n elements into rows of whole vectors, filled with zeros. */
static inline void cpu_tile_pack(int64_t rows, int64_t n, const float *from,
                                 int64_t from_stride, float *to,
                                 int64_t to_stride)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j += VEC_LANES)
            vec_store(to + i * to_stride + j, VEC_LANES,
                      vec_load(from + i * from_stride + j, n - j));
}

/* to[n, rows] is the transpose of from[rows, n]; its rows are filled up to
 * whole vectors with zeros. In squares, so that both sides stay in the cache.
 */
static inline void cpu_tile_transpose(int64_t rows, int64_t n,
                                      const float *from, int64_t from_stride,
                                      float *to, int64_t to_stride)
{
    int64_t width = cpu_parts(rows, VEC_LANES) * VEC_LANES;
    for (int64_t i0 = 0; i0 < width; i0 += VEC_LANES)
        for (int64_t j0 = 0; j0 < n; j0 += VEC_LANES) {
            float square[VEC_LANES][VEC_LANES];
            int64_t columns = cpu_min(VEC_LANES, n - j0);
            for (int64_t i = 0; i < VEC_LANES; i++) {
                vec row = { 0 };
                if (i0 + i < rows)
                    row = vec_load(from + (i0 + i) * from_stride + j0, n - j0);
                memcpy(square[i], &row, sizeof(row));
            }
            for (int64_t j = 0; j < columns; j++) {
                vec column = { 0 };
                for (int64_t i = 0; i < VEC_LANES; i++)
                    column[i] = square[i][j];
                vec_store(to + (j0 + j) * to_stride + i0, VEC_LANES, column);
            }
        }
}
