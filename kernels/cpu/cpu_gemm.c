/* GEMM: the loops around the tile.
 *
 * A product of n^3 multiplications has n^2 numbers, and a core multiplies far
 * faster than memory gives: what counts is how often each number comes from
 * where. So, as Goto and van de Geijn have it (Anatomy of High-Performance
 * Matrix Multiplication, 2008), a tile of C stays in registers while k goes by,
 * a narrow panel of B in the first cache while all panels of A pass it, and the
 * panels of A in the second. Both are packed: copied into the order in which
 * the tile reads them. Each element of C is one chain over k whatever the cuts
 * (cpu_gemm_tile.h), so all sizes here are free to be those of the processor.
 *
 * A macro tile packs its rows of A once for up to DEPTH of k. Then it walks over B
 * in blocks: each is packed, and all rows of A meet it while the next block is
 * on its way from memory. With hundreds of rows reading B hardly matters; with
 * 64 of them, as an expert or a short sequence has, it would cost half as much
 * again. */
#include "kernels/cpu/cpu_gemm.h"

#include <omp.h>
#include <string.h>

#include "kernels/cpu/cpu_gemm_tile.h"

#define BLOCK 256 /* of k: what a tile runs through, twice that for NT */
#define DEPTH GEMM_ROOM_DEPTH /* of k: what is packed of A at a time */
#define ROWS GEMM_ROOM_ROWS   /* at most, of a macro tile */
/* Columns of a block of B that is as deep. */
#define STRIP (STRIP_VECS * GEMM_COLUMNS)
#define STRIP_VECS (256 / GEMM_COLUMNS)
/* Columns of a macro tile whose sums must wait beside C. */
#define SUMS_COLUMNS 256

/* Rows of memory that are dealt to several panels at a time: they stay in the
 * first cache meanwhile. */
#define FEW 16

/* Panels of A for which B is not packed. */
#define READS 12

/* How C is cut: packing an element, or reading one of B where it lies, takes
 * as long as so many multiply-adds of a lane, and longer where rows of B are
 * cut short; a thread has at most so many macro tiles of a small product. */
#define PACKING 8.0
#define READING 1.0
#define RUN 512.0
#define TURNS 6
#define UNEVEN 0.01

#define LINE 64

static int64_t a_floats(void)
{
    return cpu_parts(ROWS, GEMM_ROWS) * (GEMM_ROWS * DEPTH + VEC_LANES);
}

_Static_assert(STRIP *BLOCK <= GEMM_ROOM_B, "a strip fits");

size_t CPU_SYMBOL(gemm_room_bytes)(void)
{
    int64_t floats = a_floats() + GEMM_ROOM_B + VEC_LANES + ROWS * SUMS_COLUMNS;
    return (size_t)cpu_parts(floats, 16) * LINE;
}

struct gemm_room CPU_SYMBOL(gemm_room)(const struct kernel_ctx *ctx)
{
    size_t bytes = CPU_SYMBOL(gemm_room_bytes)();
    assert(ctx->scratch_bytes >= bytes * (size_t)ctx->threads);
    float *at =
        (float *)ctx->scratch + (size_t)omp_get_thread_num() * (bytes / 4);
    return (struct gemm_room){ .b = at,
                               .a = at + GEMM_ROOM_B,
                               .sums = at + GEMM_ROOM_B + a_floats() };
}

/* A block's largest extent along k. A strip of B across is narrow, so it may be
 * deep. */
static int64_t deepest_block(const struct gemm *g)
{
    return g->form == GEMM_NT ? 2 * BLOCK : BLOCK;
}

/* Equal blocks: a short one would load and store sums for little. */
static int64_t block_of(const struct gemm *g)
{
    int64_t each = cpu_parts(g->k, cpu_parts(g->k, deepest_block(g)));
    return cpu_parts(each, VEC_LANES) * VEC_LANES;
}

/* Whether C holds what chains are added to. */
static bool adds(const struct gemm *g)
{
    return g->accumulate && !g->begins;
}

/* Whether chains wait beside C, which is not theirs yet. */
static bool sums_wait(const struct gemm *g)
{
    return adds(g) && g->k > deepest_block(g);
}

/* Whether tiles read B where it lies: packing it for few rows of A costs more
 * than reading a page per row of it, if these are read in whole pairs of lines
 * and BLOCK of them do not fall into a few sets of the second cache. */
static bool reads_b(const struct gemm *g, int64_t panels)
{
    return g->form != GEMM_NT && panels <= READS &&
           GEMM_COLUMNS * 4 >= 2 * LINE && g->n % 2048 != 0;
}

/* What a thread does with these cuts, in multiply-adds per step of k. */
static double cuts_cost(const struct gemm *g, int threads,
                        struct gemm_cuts cuts)
{
    int64_t height = cpu_parts(g->m, cuts.rows);
    int64_t units = cpu_parts(cpu_parts(g->n, GEMM_COLUMNS), cuts.columns);
    double rows = (double)height, columns = (double)(units * GEMM_COLUMNS);
    double macro_tiles = (double)cpu_parts(cuts.rows * cuts.columns, threads);
    double packed = g->k > DEPTH
                        ? macro_tiles
                        : (double)cpu_parts((int64_t)macro_tiles, cuts.columns);
    double taken = reads_b(g, cpu_parts(height, GEMM_ROWS)) ? READING : PACKING;
    if (g->form != GEMM_NT)
        taken += RUN / columns * RUN / columns;
    double cost =
        macro_tiles * columns * (rows + taken) + packed * rows * PACKING;
    /* who is interrupted leaves macro tiles to others, if there are several */
    return cost * (1 + UNEVEN / macro_tiles);
}

struct gemm_cuts CPU_SYMBOL(gemm_cuts)(const struct gemm *g, int threads)
{
    int64_t units = cpu_parts(g->n, GEMM_COLUMNS);
    int64_t least = cpu_parts(g->m, ROWS);
    int64_t most = cpu_min(cpu_parts(g->m, GEMM_ROWS), 2 * least + threads);
    int64_t narrow =
        sums_wait(g) ? cpu_parts(units, SUMS_COLUMNS / GEMM_COLUMNS) : 1;
    struct gemm_cuts best = { least, narrow };
    double cost = cuts_cost(g, threads, best);
    for (int64_t turns = 1; threads > 1 && turns <= TURNS; turns++)
        for (int64_t rows = least; rows <= most; rows++) {
            struct gemm_cuts cuts = { rows, turns * threads / rows };
            cuts.columns = cpu_min(units, cuts.columns);
            if (cuts.columns < narrow)
                cuts.columns = narrow;
            double one = cuts_cost(g, threads, cuts);
            if (one < cost) {
                best = cuts;
                cost = one;
            }
        }
    return best;
}

/* --- a macro tile --- */

/* A macro tile of C, and the panels that its rows are dealt to. */
struct macro_tile {
    const struct gemm *g;
    struct gemm_room *room;
    int64_t row, row_end, column, column_end;
    int64_t panels;
    int64_t block; /* of k */
};

/* Columns [j, j_end) of B, inner dimension [l, l_end): what is packed and
 * fetched from memory together. */
struct strip {
    int64_t j, j_end, l, l_end;
};

static int64_t panel_row(const struct macro_tile *p, int64_t panel)
{
    return p->row + (p->row_end - p->row) * panel / p->panels;
}

/* Element l of panel `panel`, of which `depth` are packed. */
static float *panel_at(const struct macro_tile *p, int64_t depth, int64_t panel,
                       int64_t l)
{
    return p->room->a + panel * (depth * GEMM_ROWS + VEC_LANES) + l * GEMM_ROWS;
}

/* Rows of A, inner dimension [l, l + depth). Where panels are neighbours in
 * memory a few rows of it are dealt to all of them at a time. */
static void pack_a(const struct macro_tile *p, int64_t l, int64_t depth)
{
    const struct gemm *g = p->g;
    bool along = g->form == GEMM_TN;
    const float *a = g->a;
    int64_t step = along ? FEW : depth;
    for (int64_t at = 0; at < depth; at += step) {
        int64_t k = cpu_min(step, depth - at);
        for (int64_t i = 0; i < p->panels; i++) {
            int64_t row = panel_row(p, i);
            int64_t count = panel_row(p, i + 1) - row;
            float *to = panel_at(p, depth, i, at);
            if (along)
                CPU_SYMBOL(gemm_pack_along)
            (count, g->m - row, k, GEMM_ROWS, a + (l + at) * g->m + row, g->m,
             to);
            else CPU_SYMBOL(gemm_pack_across)(
                count, k, GEMM_ROWS, a + row * g->k + l + at, g->k, to);
        }
    }
}

/* Panels [k][GEMM_COLUMNS] one after the other. */
static void pack_b(const struct gemm *g, struct strip s, float *to)
{
    bool along = g->form != GEMM_NT;
    const float *b = g->b;
    int64_t depth = s.l_end - s.l;
    int64_t step = along ? FEW : depth;
    for (int64_t at = 0; at < depth; at += step) {
        int64_t k = cpu_min(step, depth - at);
        float *panel = to + at * GEMM_COLUMNS;
        for (int64_t j = s.j; j < s.j_end; j += GEMM_COLUMNS) {
            int64_t count = cpu_min(GEMM_COLUMNS, s.j_end - j);
            if (along)
                CPU_SYMBOL(gemm_pack_along)
            (count, g->n - j, k, GEMM_COLUMNS, b + (s.l + at) * g->n + j, g->n,
             panel);
            else CPU_SYMBOL(gemm_pack_across)(
                count, k, GEMM_COLUMNS, b + j * g->k + s.l + at, g->k, panel);
            panel += depth * GEMM_COLUMNS;
        }
    }
}

/* Columns that are packed together: where rows of B are the memory's, as many
 * as there is room for, so that whole runs of lines are read of each page. */
static int64_t strip_columns(const struct macro_tile *p)
{
    if (p->g->form == GEMM_NT)
        return GEMM_COLUMNS;
    return STRIP * BLOCK / p->block / GEMM_COLUMNS * GEMM_COLUMNS;
}

/* Strip number `at` of inner dimension [l, l_end). Either form's strip takes
 * whole runs of lines out of rows of B in memory, and their memory pages are
 * used up soon. */
static struct strip strip_at(const struct macro_tile *p, int64_t l,
                             int64_t l_end, int64_t at)
{
    bool across = p->g->form == GEMM_NT;
    int64_t columns = strip_columns(p);
    int64_t strips = cpu_parts(p->column_end - p->column, columns);
    int64_t blocks = cpu_parts(l_end - l, p->block);
    struct strip s;
    s.j = p->column + (across ? at / blocks : at % strips) * columns;
    s.l = l + (across ? at % blocks : at / strips) * p->block;
    s.j_end = cpu_min(p->column_end, s.j + columns);
    s.l_end = cpu_min(l_end, s.l + p->block);
    return s;
}

/* Prefetching the same few lines over and over costs nothing. */
static struct gemm_ahead nothing_ahead(const struct gemm *g)
{
    return (struct gemm_ahead){ (uintptr_t)g->b, 0, BLOCK / 4 };
}

/* Strip s, which is `runs` rows of memory. */
static struct gemm_ahead strip_ahead(const struct gemm *g, struct strip s,
                                     int64_t *runs)
{
    const float *b = g->b;
    bool across = g->form == GEMM_NT;
    int64_t ld = across ? g->k : g->n;
    int64_t row = across ? s.j : s.l;
    int64_t column = across ? s.l : s.j;
    int64_t columns = across ? s.l_end - s.l : s.j_end - s.j;
    *runs = across ? s.j_end - s.j : s.l_end - s.l;
    return (struct gemm_ahead){ (uintptr_t)(b + row * ld + column),
                                (uintptr_t)(ld * 4),
                                cpu_parts(columns * 4, LINE) };
}

/* All rows of the macro tile meet strip s, along the rows of C, while `next` comes
 * from memory; [l, l + depth) is packed of A. Nothing is copied here: a copy
 * would wait until the stores of the tile before it are done. */
static void strip_run(const struct macro_tile *p, struct strip s, int64_t l,
                      int64_t depth, const struct strip *next)
{
    const struct gemm *g = p->g;
    const bool wait = sums_wait(g);
    const int64_t first = wait ? p->column : 0;
    int64_t runs = 0;
    struct gemm_ahead ahead = nothing_ahead(g);
    struct gemm_tile tile = {
        .k = s.l_end - s.l,
        .begin = s.l == 0,
        .end = s.l_end == g->k,
        .sums_stride = wait ? SUMS_COLUMNS : g->n,
        .c_stride = g->n,
        .add = adds(g),
        .plus_zero = g->begins,
    };
    if (next != NULL)
        ahead = strip_ahead(g, *next, &runs);
    const float *b = p->room->b;
    int64_t panel = tile.k * GEMM_COLUMNS;
    tile.b_stride = GEMM_COLUMNS;
    if (reads_b(g, p->panels)) {
        b = (const float *)g->b + s.l * g->n + s.j;
        panel = GEMM_COLUMNS;
        tile.b_stride = g->n;
    }
    for (int64_t i = 0; i < p->panels; i++) {
        int64_t row = panel_row(p, i);
        int rows = (int)(panel_row(p, i + 1) - row);
        float *c = (float *)g->c + row * g->n;
        float *sums = wait ? p->room->sums + (row - p->row) * SUMS_COLUMNS : c;
        tile.a = panel_at(p, depth, i, s.l - l);
        tile.b = b;
        for (int64_t j = s.j; j < s.j_end; j += GEMM_COLUMNS) {
            tile.width = cpu_min(GEMM_COLUMNS, s.j_end - j);
            tile.c = c + j;
            tile.sums = sums + j - first;
            if (g->bias != NULL)
                tile.bias = (const float *)g->bias + j;
            CPU_SYMBOL(gemm_tile)(rows, &tile, &ahead);
            tile.b += panel;
            if (runs > 0 && (runs -= cpu_parts(tile.k, ahead.lines)) <= 0)
                ahead = nothing_ahead(g);
        }
    }
}

/* Inner dimension [l, l_end), whose rows of A are packed. */
static void macro_tile_deep(const struct macro_tile *p, int64_t l,
                            int64_t l_end)
{
    struct strip s = strip_at(p, l, l_end, 0);
    for (int64_t at = 1; s.j < p->column_end && s.l < l_end; at++) {
        struct strip next = strip_at(p, l, l_end, at);
        bool last = next.j >= p->column_end || next.l >= l_end;
        if (!reads_b(p->g, p->panels))
            pack_b(p->g, s, p->room->b);
        strip_run(p, s, l, l_end - l, last ? NULL : &next);
        s = next;
    }
}

/* Without an inner dimension. */
static void macro_tile_empty(const struct macro_tile *p)
{
    const struct gemm *g = p->g;
    for (int64_t i = p->row; i < p->row_end && !adds(g); i++)
        for (int64_t j = p->column; j < p->column_end; j++)
            ((float *)g->c)[i * g->n + j] =
                g->bias == NULL ? 0 : ((const float *)g->bias)[j];
}

void CPU_SYMBOL(gemm_macro_tile)(const struct gemm *g, struct gemm_cuts cuts,
                                 int64_t index, struct gemm_room *room)
{
    int64_t i = index / cuts.columns, j = index % cuts.columns;
    int64_t units = cpu_parts(g->n, GEMM_COLUMNS);
    struct macro_tile p = {
        .g = g,
        .room = room,
        .row = g->m * i / cuts.rows,
        .row_end = g->m * (i + 1) / cuts.rows,
        .column = units * j / cuts.columns * GEMM_COLUMNS,
        .column_end =
            cpu_min(g->n, units * (j + 1) / cuts.columns * GEMM_COLUMNS),
    };
    assert(index >= 0 && index < cuts.rows * cuts.columns);
    /* what the room has place for */
    assert(p.row_end - p.row <= ROWS);
    assert(!sums_wait(g) || p.column_end - p.column <= SUMS_COLUMNS);
    if (g->k == 0) {
        macro_tile_empty(&p);
        return;
    }
    p.panels = cpu_parts(p.row_end - p.row, GEMM_ROWS);
    p.block = block_of(g);
    int64_t depth = DEPTH / p.block * p.block;
    for (int64_t l = 0; l < g->k; l += depth) {
        int64_t l_end = cpu_min(g->k, l + depth);
        bool packed = room->packed == g->a && room->row == p.row &&
                      room->row_end == p.row_end;
        if (!packed)
            pack_a(&p, l, l_end - l);
        macro_tile_deep(&p, l, l_end);
    }
    room->packed = g->k <= depth ? g->a : NULL;
    room->row = p.row;
    room->row_end = p.row_end;
}

enum err CPU_SYMBOL(gemm) KERNEL_LIKE(gemm)
{
    assert(gemm->m > 0 && gemm->n > 0 && gemm->k > 0);
    assert(gemm->bias == NULL || !gemm->accumulate);
    assert(gemm->accumulate || !gemm->begins);
    TRY(cpu_require_f32(dtype, "gemm"));
    struct gemm_cuts cuts = CPU_SYMBOL(gemm_cuts)(gemm, ctx->threads);
    int64_t macro_tiles = cuts.rows * cuts.columns;
    int threads = (int)cpu_min(ctx->threads, macro_tiles);
#pragma omp parallel num_threads(threads)
    {
        struct gemm_room room = CPU_SYMBOL(gemm_room)(ctx);
#pragma omp for schedule(dynamic, 1)
        for (int64_t t = 0; t < macro_tiles; t++)
            CPU_SYMBOL(gemm_macro_tile)(gemm, cuts, t, &room);
    }
    return ERR_OK;
}
