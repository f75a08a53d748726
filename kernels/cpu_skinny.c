/* GEMM with few rows in A: B is read once from memory, and that must hide
 * behind arithmetic.
 *
 * BLAS copies a block of B, waits for memory meanwhile, and then computes with
 * it. With hundreds of rows the copy does not matter, with 64 it costs half as
 * much again. Here a panel of B, two vectors of columns by BLOCK of the inner
 * dimension, is copied into L1 while its successor is on the way from memory:
 * prefetches are strewn over the arithmetic. A is read where it lies. */
#include "kernels/cpu_skinny.h"
#include "kernels/cpu_vec.h"

#define BLOCK 192 /* of the inner dimension: a panel is BLOCK rows */
#define STRIP 256 /* columns that are fetched together if B is [k,n] */
#define PANEL (2 * VEC_LANES) /* columns */
#if VEC_LANES == 16
#define ROWS_MAX 12 /* of a block of C that is held in registers */
#else
#define ROWS_MAX 6
#endif
#define LINE 64

/* More rows than this are BLAS's, as is what DESIGN.md says it does better. */
#define SKINNY_ROWS 256

/* A tile begins with a strip that nothing has fetched ahead: few, large ones.
 */
#define TILE_FLOP 200e6

/* What comes next: rows of B in memory, `bytes` apart, of each `lines` cache
 * lines. */
struct ahead {
    uintptr_t next; /* not a pointer: it may run past the end of B */
    uintptr_t bytes;
    int64_t lines;
};

bool CPU_SYMBOL(skinny_fits)(const struct gemm *g)
{
    bool faster = g->form == GEMM_NT ? VEC_LANES >= 8 : VEC_LANES >= 16;
    return faster && g->form != GEMM_TN && g->m <= SKINNY_ROWS;
}

int64_t CPU_SYMBOL(skinny_tiles)(const struct gemm *g)
{
    double flop = 2.0 * (double)g->m * (double)g->n * (double)g->k;
    int64_t most = cpu_min(GEMM_TILES_MAX, cpu_parts(g->n, PANEL));
    int64_t tiles = (int64_t)(flop / TILE_FLOP) + 1;
    return cpu_min(most, tiles);
}

/* --- panels --- */

/* Rows l of B[k,n], columns [0, width), become rows of the panel. */
static void panel_copy(const float *b, int64_t ldb, int64_t k, int64_t width,
                       vec *panel)
{
    for (int64_t l = 0; l < k; l++) {
        panel[2 * l] = vec_load(b + l * ldb, width);
        panel[2 * l + 1] = width > VEC_LANES ? vec_load(b + l * ldb + VEC_LANES,
                                                        width - VEC_LANES)
                                             : (vec){ 0 };
    }
}

/* Exchanges the off-diagonal blocks of `size` lanes in all blocks of 2 size. */
static inline __attribute__((always_inline)) void lanes_exchange(vec *v,
                                                                 int size)
{
    vec_i32 low = { 0 };
    vec_i32 high = { 0 };
    for (int i = 0; i < VEC_LANES; i++) {
        low[i] = (i & size) ? i - size + VEC_LANES : i;
        high[i] = (i & size) ? i + VEC_LANES : i + size;
    }
#pragma GCC unroll 16
    for (int i = 0; i < VEC_LANES; i++) {
        if (i & size)
            continue;
        vec a = v[i];
        vec b = v[i + size];
        v[i] = __builtin_shuffle(a, b, low);
        v[i + size] = __builtin_shuffle(a, b, high);
    }
}

/* VEC_LANES rows of B[n,k], `left` of them there, from column 0 on `k` of them,
 * become lanes [0, VEC_LANES) of every second vector of the panel. */
static void lanes_transpose(const float *b, int64_t ldb, int64_t left,
                            int64_t k, vec *panel)
{
    vec v[VEC_LANES];
    for (int64_t l = 0; l < k; l += VEC_LANES) {
        if (left >= VEC_LANES && k - l >= VEC_LANES) {
#pragma GCC unroll 16
            for (int64_t i = 0; i < VEC_LANES; i++)
                v[i] = vec_load(b + i * ldb + l, VEC_LANES);
        } else {
            for (int64_t i = 0; i < VEC_LANES; i++)
                v[i] = i < left ? vec_load(b + i * ldb + l, k - l) : (vec){ 0 };
        }
        lanes_exchange(v, 1);
        lanes_exchange(v, 2);
#if VEC_LANES > 4
        lanes_exchange(v, 4);
#endif
#if VEC_LANES > 8
        lanes_exchange(v, 8);
#endif
        if (k - l >= VEC_LANES) {
#pragma GCC unroll 16
            for (int64_t i = 0; i < VEC_LANES; i++)
                panel[2 * (l + i)] = v[i];
        } else {
            for (int64_t i = 0; i < k - l; i++)
                panel[2 * (l + i)] = v[i];
        }
    }
}

/* --- arithmetic --- */

static inline __attribute__((always_inline)) void
block_run(const int rows, int64_t k, const float *a, int64_t lda,
          const vec *panel, struct ahead ahead, vec sum[ROWS_MAX][2])
{
    vec low[ROWS_MAX], high[ROWS_MAX];
    const float *row[ROWS_MAX];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        low[i] = (vec){ 0 };
        high[i] = (vec){ 0 };
        row[i] = a + i * lda;
    }
    for (int64_t at = 0; at < k; at += ahead.lines) {
        int64_t end = cpu_min(k, at + ahead.lines);
        uintptr_t next = ahead.next;
        for (int64_t l = at; l < end; l++) {
            vec b0 = panel[2 * l];
            vec b1 = panel[2 * l + 1];
            __builtin_prefetch((const void *)next, 0, 2);
            next += LINE;
#pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                vec x = vec_splat(row[i][l]);
                low[i] = vec_fma(x, b0, low[i]);
                high[i] = vec_fma(x, b1, high[i]);
            }
        }
        ahead.next += ahead.bytes;
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        sum[i][0] = low[i];
        sum[i][1] = high[i];
    }
}

static void block_store(int rows, int64_t width, vec sum[ROWS_MAX][2], bool add,
                        float *c, int64_t ldc)
{
    for (int i = 0; i < rows; i++, c += ldc) {
        for (int64_t j = 0; j < width; j += VEC_LANES) {
            vec v = sum[i][j / VEC_LANES];
            vec_store(c + j, width - j,
                      add ? vec_load(c + j, width - j) + v : v);
        }
    }
}

static void block_choose(int rows, int64_t k, const float *a, int64_t lda,
                         const vec *panel, struct ahead ahead,
                         vec sum[ROWS_MAX][2])
{
    switch (rows) {
#define CASE(rows)                                                             \
    case rows:                                                                 \
        block_run(rows, k, a, lda, panel, ahead, sum);                         \
        break
        CASE(1);
        CASE(2);
        CASE(3);
        CASE(4);
        CASE(5);
        CASE(6);
#if ROWS_MAX > 6
        CASE(7);
        CASE(8);
        CASE(9);
        CASE(10);
        CASE(11);
        CASE(12);
#endif
#undef CASE
    }
}

/* Columns [j, j_end) of B and C, inner dimension [l, l_end): what is fetched
 * from memory together. */
struct strip {
    int64_t j, j_end, l, l_end;
};

/* Equal blocks: a short one would load and store C for little. */
static int64_t block_of(int64_t k)
{
    int64_t each = cpu_parts(k, cpu_parts(k, BLOCK));
    return cpu_parts(each, VEC_LANES) * VEC_LANES;
}

/* Strip number `at` of columns [first, end). Either form's strip takes whole
 * runs of lines out of rows of B in memory, and their memory pages are used up
 * soon. */
static struct strip strip_at(const struct gemm *g, int64_t first, int64_t end,
                             int64_t at)
{
    int64_t columns = g->form == GEMM_NT ? PANEL : STRIP;
    int64_t strips = cpu_parts(end - first, columns);
    int64_t block = block_of(g->k);
    int64_t blocks = cpu_parts(g->k, block);
    struct strip s;
    s.j = first + (g->form == GEMM_NT ? at / blocks : at % strips) * columns;
    s.l = (g->form == GEMM_NT ? at % blocks : at / strips) * block;
    s.j_end = cpu_min(end, s.j + columns);
    s.l_end = cpu_min(g->k, s.l + block);
    return s;
}

/* Prefetching the same few lines over and over costs nothing. */
static struct ahead nothing_ahead(const struct gemm *g)
{
    return (struct ahead){ (uintptr_t)g->b, 0, BLOCK };
}

/* The share of panel `at` of `panels` in fetching the next strip. */
static struct ahead strip_ahead(const struct gemm *g, struct strip s,
                                int64_t at, int64_t panels)
{
    const float *b = g->b;
    bool nt = g->form == GEMM_NT;
    int64_t size = sizeof(*b);
    int64_t ld = nt ? g->k : g->n;
    int64_t row = nt ? s.j : s.l;
    int64_t rows = nt ? s.j_end - s.j : s.l_end - s.l;
    int64_t column = nt ? s.l : s.j;
    int64_t columns = nt ? s.l_end - s.l : s.j_end - s.j;
    row += rows * at / panels;
    return (struct ahead){ (uintptr_t)(b + row * ld + column),
                           (uintptr_t)(ld * size),
                           cpu_parts(columns * size, LINE) };
}

static void panel_pack(const struct gemm *g, struct strip s, int64_t j,
                       vec *panel)
{
    const float *b = g->b;
    int64_t width = cpu_min(PANEL, s.j_end - j);
    int64_t k = s.l_end - s.l;
    if (g->form == GEMM_NT) {
        b += j * g->k + s.l;
        lanes_transpose(b, g->k, width, k, panel);
        b += width > VEC_LANES ? VEC_LANES * g->k : 0;
        lanes_transpose(b, g->k, width - VEC_LANES, k, panel + 1);
    } else {
        panel_copy(b + s.l * g->n + j, g->n, k, width, panel);
    }
}

static void panel_run(const struct gemm *g, struct strip s, int64_t j,
                      const vec *panel, struct ahead ahead)
{
    vec sum[ROWS_MAX][2];
    const float *a = g->a;
    float *c = g->c;
    int64_t k = s.l_end - s.l;
    int64_t width = cpu_min(PANEL, s.j_end - j);
    int64_t blocks = cpu_parts(g->m, ROWS_MAX);
    for (int64_t block = 0; block < blocks; block++) {
        int64_t row = g->m * block / blocks;
        int rows = (int)(g->m * (block + 1) / blocks - row);
        block_choose(rows, k, a + row * g->k + s.l, g->k, panel, ahead, sum);
        block_store(rows, width, sum, g->accumulate || s.l > 0,
                    c + row * g->n + j, g->n);
        if (block == 0)
            ahead.next += ahead.bytes * (uintptr_t)(k / ahead.lines);
        else
            ahead = nothing_ahead(g);
    }
}

void CPU_SYMBOL(skinny_tile)(const struct gemm *g, int64_t tiles, int64_t index)
{
    vec panel[2 * BLOCK];
    int64_t panels = cpu_parts(g->n, PANEL);
    int64_t first = panels * index / tiles * PANEL;
    int64_t end = cpu_min(g->n, panels * (index + 1) / tiles * PANEL);
    struct strip strip = strip_at(g, first, end, 0);
    for (int64_t at = 1; strip.j < end && strip.l < g->k; at++) {
        struct strip next = strip_at(g, first, end, at);
        bool last = next.j >= end || next.l >= g->k;
        int64_t count = cpu_parts(strip.j_end - strip.j, PANEL);
        for (int64_t i = 0; i < count; i++) {
            int64_t j = strip.j + i * PANEL;
            panel_pack(g, strip, j, panel);
            panel_run(g, strip, j, panel,
                      last ? nothing_ahead(g) : strip_ahead(g, next, i, count));
        }
        strip = next;
    }
}
