/* Products with matrices in panels. With few rows, as in decoding, all that
 * counts is to read the panels at memory's rate: chains of a few rows and
 * panels stay in registers, and A is read where it lies. With many rows, as in
 * a prompt, panels are the packed operand of the tiles of cpu_gemm_tile.h.
 * Either way each element is one chain over k, so that a row's bits do not
 * depend on how many come with it. */
#include "kernels/cpu/cpu_gemm.h"
#include "kernels/cpu/cpu_gemm_tile.h"
#include "kernels/cpu/cpu_panels.h"

#include <omp.h>

#define LINE 64
#define PANEL_VECS (KERNEL_PANEL / VEC_LANES)

/* Rows whose chains with one panel the registers hold. More panels at a time
 * would be more chains, but also more places in memory that are read in turn:
 * one after the other is nearer to memory's rate. */
#if VEC_LANES == 16
#define CHAIN_ROWS 6
#elif VEC_LANES == 8 || defined(__ARM_NEON)
#define CHAIN_ROWS 3
#else
#define CHAIN_ROWS 1
#endif

/* Rows up to which panels are not unpacked, and multiply-adds that are worth
 * another thread. */
#define FEW 6
#define THREAD_WORTH 16384

/* How much of k a tile runs through; macro tiles per thread with many rows. */
#define BLOCK 512
#define MACRO_TILES 6

/* The product with one group. */
struct work {
    enum panel_type type;
    int64_t m, n, k;
    const float *a;
    const char *panels;
    size_t stride;       /* bytes between panels */
    const float *scales; /* of int8, or NULL */
    const float *bias;   /* or NULL */
    float *c;
};

/* --- few rows --- */

/* What an element becomes when its chain is complete. */
static inline vec finish(const struct work *w, int64_t column, int64_t left,
                         vec chain)
{
    if (w->scales != NULL)
        chain = chain * vec_load(w->scales + column, VEC_LANES);
    if (w->bias != NULL)
        chain = chain + vec_load(w->bias + column, left);
    return chain;
}

/* Inline, so that type and rows are constants. */
static inline __attribute__((always_inline)) void
chains_run(const enum panel_type type, const int rows, const struct work *w,
           int64_t row, int64_t panel)
{
    vec sum[CHAIN_ROWS][PANEL_VECS];
    const char *from = w->panels + (size_t)panel * w->stride;
    const float *a = w->a + row * w->k;
    const int64_t k = w->k;
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int v = 0; v < PANEL_VECS; v++)
            sum[i][v] = (vec){ 0 };
    for (int64_t l = 0; l < k; l++)
#pragma GCC unroll 8
        for (int v = 0; v < PANEL_VECS; v++) {
            vec b = panel_load(type, from, l * KERNEL_PANEL + v * VEC_LANES);
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++)
                sum[i][v] = vec_fma(vec_splat(a[i * k + l]), b, sum[i][v]);
        }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int v = 0; v < PANEL_VECS; v++) {
            int64_t column = panel * KERNEL_PANEL + v * VEC_LANES;
            int64_t left = w->n - column;
            if (left > 0)
                vec_store(w->c + (row + i) * w->n + column, left,
                          finish(w, column, left, sum[i][v]));
        }
}

#define RUN(rows)                                                              \
    case rows:                                                                 \
        chains_run(type, rows, w, row, panel);                                 \
        break;

static inline __attribute__((always_inline)) void
chains(const enum panel_type type, const struct work *w, int64_t row,
       int64_t rows, int64_t panel)
{
    switch (rows) {
        RUN(1)
#if CHAIN_ROWS > 1
        RUN(2)
        RUN(3)
#endif
#if CHAIN_ROWS > 3
        RUN(4)
        RUN(5)
        RUN(6)
#endif
    default:
        assert(false);
    }
}

/* All rows, panels [begin, end). A panel comes from memory for the first rows
 * and from the cache for the others. */
static inline __attribute__((always_inline)) void
panels_run(const enum panel_type type, const struct work *w, int64_t begin,
           int64_t end)
{
    for (int64_t panel = begin; panel < end; panel++)
        for (int64_t row = 0; row < w->m; row += CHAIN_ROWS)
            chains(type, w, row, cpu_min(CHAIN_ROWS, w->m - row), panel);
}

static void few_panels(const struct work *w, int64_t begin, int64_t end)
{
    if (w->type == PANEL_F32)
        panels_run(PANEL_F32, w, begin, end);
    else if (w->type == PANEL_BF16)
        panels_run(PANEL_BF16, w, begin, end);
    else
        panels_run(PANEL_INT8, w, begin, end);
}

static void few(const struct kernel_ctx *ctx, const struct work *w)
{
    int64_t panels = cpu_parts(w->n, KERNEL_PANEL);
    int64_t worth = cpu_parts(w->m * w->n * w->k, THREAD_WORTH);
    int threads = (int)cpu_min(cpu_min(ctx->threads, panels), worth);
    if (threads == 1) {
        few_panels(w, 0, panels);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        int64_t t = omp_get_thread_num(), all = omp_get_num_threads();
        few_panels(w, panels * t / all, panels * (t + 1) / all);
    }
}

/* --- many rows --- */

/* A macro tile of C, its rows dealt to panels of A. */
struct macro_tile {
    const struct work *w;
    struct gemm_room *room;
    int64_t row, row_end, panel, panel_end;
    int64_t strips; /* panels of A */
};

/* Equal parts of `count`, at most `most` each. */
static int64_t equal(int64_t count, int64_t most)
{
    return cpu_parts(count, cpu_parts(count, most));
}

static int64_t strip_row(const struct macro_tile *p, int64_t strip)
{
    return p->row + (p->row_end - p->row) * strip / p->strips;
}

static float *strip_at(const struct macro_tile *p, int64_t depth, int64_t strip)
{
    return p->room->a + strip * (depth * GEMM_ROWS + VEC_LANES);
}

static void pack_a(const struct macro_tile *p, int64_t l, int64_t depth)
{
    const struct work *w = p->w;
    for (int64_t i = 0; i < p->strips; i++) {
        int64_t row = strip_row(p, i);
        CPU_SYMBOL(gemm_pack_across)
        (strip_row(p, i + 1) - row, depth, GEMM_ROWS, w->a + row * w->k + l,
         w->k, strip_at(p, depth, i));
    }
}

/* Columns [l, l_end) of a panel as floats. */
static const float *floats_of(const struct macro_tile *p, const void *panel,
                              int64_t l, int64_t l_end)
{
    float *to = p->room->b;
    if (p->w->type == PANEL_F32)
        return (const float *)panel + l * KERNEL_PANEL;
    int64_t end = (l_end - l) * KERNEL_PANEL;
    if (p->w->type == PANEL_BF16)
        for (int64_t i = 0; i < end; i += VEC_LANES)
            vec_store(to + i, VEC_LANES,
                      panel_load(PANEL_BF16, panel, l * KERNEL_PANEL + i));
    else
        for (int64_t i = 0; i < end; i += VEC_LANES)
            vec_store(to + i, VEC_LANES,
                      panel_load(PANEL_INT8, panel, l * KERNEL_PANEL + i));
    return to;
}

/* All rows meet columns [l, l_end) of a panel, of which A is packed from
 * `packed` on for `depth` of k, while what follows comes from memory. */
static void block_run(const struct macro_tile *p, int64_t panel, int64_t l,
                      int64_t l_end, int64_t packed, int64_t depth)
{
    const struct work *w = p->w;
    const char *from = w->panels + (size_t)panel * w->stride;
    const float *b = floats_of(p, from, l, l_end);
    int64_t column = panel * KERNEL_PANEL;
    int64_t bytes = (int64_t)w->stride / w->k * (l_end - l);
    struct gemm_ahead here = { (uintptr_t)from, 0, BLOCK / 4 };
    struct gemm_ahead ahead = {
        (uintptr_t)from + (uintptr_t)((int64_t)w->stride / w->k * l_end),
        LINE * LINE, LINE
    };
    for (int64_t i = 0; i < p->strips; i++) {
        int64_t row = strip_row(p, i);
        struct gemm_tile tile = {
            .k = l_end - l,
            .a = strip_at(p, depth, i) + (l - packed) * GEMM_ROWS,
            .b_stride = KERNEL_PANEL,
            .begin = l == 0,
            .end = l_end == w->k,
            .sums_stride = w->n,
            .c_stride = w->n,
        };
        for (int64_t j = 0; j < cpu_min(KERNEL_PANEL, w->n - column);
             j += GEMM_COLUMNS) {
            tile.width =
                cpu_min(GEMM_COLUMNS, cpu_min(KERNEL_PANEL, w->n - column) - j);
            tile.b = b + j;
            tile.c = tile.sums = w->c + row * w->n + column + j;
            if (w->bias != NULL && w->scales == NULL)
                tile.bias = w->bias + column + j;
            CPU_SYMBOL(gemm_tile)
            ((int)(strip_row(p, i + 1) - row), &tile, &ahead);
            if ((bytes -= tile.k * LINE) <= 0)
                ahead = here;
        }
    }
}

/* The panel's columns of C are complete but for scales. */
static void panel_finish(const struct macro_tile *p, int64_t panel)
{
    const struct work *w = p->w;
    int64_t end = cpu_min(w->n, (panel + 1) * KERNEL_PANEL);
    for (int64_t row = p->row; row < p->row_end && w->scales != NULL; row++)
        for (int64_t j = panel * KERNEL_PANEL; j < end; j += VEC_LANES) {
            float *c = w->c + row * w->n + j;
            vec_store(c, end - j, finish(w, j, end - j, vec_load(c, end - j)));
        }
}

static void macro_tile_run(struct macro_tile *p)
{
    const struct work *w = p->w;
    struct gemm_room *room = p->room;
    int64_t depth = equal(w->k, GEMM_ROOM_DEPTH);
    for (int64_t l = 0, l_end; l < w->k; l = l_end) {
        l_end = cpu_min(w->k, l + depth);
        int64_t block = equal(l_end - l, BLOCK);
        if (room->packed != w->a || room->row != p->row ||
            room->row_end != p->row_end)
            pack_a(p, l, l_end - l);
        for (int64_t panel = p->panel; panel < p->panel_end; panel++) {
            for (int64_t at = l; at < l_end; at += block)
                block_run(p, panel, at, cpu_min(l_end, at + block), l,
                          l_end - l);
            if (l_end == w->k)
                panel_finish(p, panel);
        }
    }
    room->packed = depth == w->k ? w->a : NULL;
    room->row = p->row;
    room->row_end = p->row_end;
}

static void many(const struct kernel_ctx *ctx, const struct work *w)
{
    int64_t panels = cpu_parts(w->n, KERNEL_PANEL);
    int64_t rows = cpu_parts(w->m, GEMM_ROOM_ROWS);
    int64_t columns =
        cpu_min(panels, cpu_parts((int64_t)ctx->threads * MACRO_TILES, rows));
    int threads = (int)cpu_min(ctx->threads, rows * columns);
    _Static_assert(BLOCK * KERNEL_PANEL <= GEMM_ROOM_B, "a block fits");
#pragma omp parallel num_threads(threads)
    {
        struct gemm_room room = CPU_SYMBOL(gemm_room)(ctx);
        /* a thread's macro tiles come in order and share their rows of A */
#pragma omp for schedule(monotonic : dynamic, 1)
        for (int64_t t = 0; t < rows * columns; t++) {
            int64_t i = t / columns, j = t % columns;
            struct macro_tile p = { .w = w,
                                    .room = &room,
                                    .row = w->m * i / rows,
                                    .row_end = w->m * (i + 1) / rows,
                                    .panel = panels * j / columns,
                                    .panel_end = panels * (j + 1) / columns };
            p.strips = cpu_parts(p.row_end - p.row, GEMM_ROWS);
            macro_tile_run(&p);
        }
    }
}

/* --- the op --- */

static void group_run(const struct kernel_ctx *ctx,
                      const struct panels_product *p, int64_t group,
                      int64_t first, int64_t rows)
{
    const struct panels *shape = &p->shape;
    int64_t panel = group * panels_count(shape);
    struct work w = { .type = shape->type,
                      .m = rows,
                      .n = shape->n,
                      .k = shape->k,
                      .a = p->a + first * shape->k,
                      .panels = panels_at(shape, p->panels, panel),
                      .stride = panels_stride(shape),
                      .bias = p->bias,
                      .c = p->c + first * shape->n };
    assert(rows >= 0);
    if (shape->type == PANEL_INT8)
        w.scales = panels_scales(shape, p->panels) + panel * KERNEL_PANEL;
    if (rows > FEW)
        many(ctx, &w);
    else if (rows > 0)
        few(ctx, &w);
}

enum err CPU_SYMBOL(panels_product) KERNEL_LIKE(panels_product)
{
    assert(product->shape.n > 0 && product->shape.k > 0 && product->m >= 0);
    assert(product->offsets == NULL || product->bias == NULL);
    assert(product->offsets == NULL ||
           product->offsets[product->shape.groups] == product->m);
    if (product->offsets == NULL)
        group_run(ctx, product, 0, 0, product->m);
    for (int64_t g = 0; product->offsets != NULL && g < product->shape.groups;
         g++)
        group_run(ctx, product, g, product->offsets[g],
                  product->offsets[g + 1] - product->offsets[g]);
    return ERR_OK;
}
