/* One GEMM per expert: the macro tiles of all of them in one loop, so that threads
 * share the work however unevenly the rows are spread. */
#include "kernels/cpu/cpu_gemm.h"

#include <limits.h>

static struct gemm group_gemm(const struct grouped_gemm *g, int64_t group)
{
    int64_t first = g->offsets[group];
    int64_t rows = g->offsets[group + 1] - first;
    const float *a = g->a;
    const float *b = g->b;
    float *c = g->c;
    assert(rows >= 0 && rows <= INT_MAX);
    struct gemm one = { .form = g->form,
                        .n = g->n,
                        .accumulate = g->accumulate,
                        .begins = g->begins };
    if (g->form == GEMM_TN) {
        one.m = g->m;
        one.k = rows;
        one.a = a + first * g->m;
        one.b = b + first * g->n;
        one.c = c + group * g->m * g->n;
    } else {
        one.m = rows;
        one.k = g->k;
        one.a = a + first * g->k;
        one.b = b + group * g->n * g->k;
        one.c = c + first * g->n;
    }
    return one;
}

/* Macro tiles per thread: groups differ. */
#define MACRO_TILES 8

/* The group at work and the number of its first macro tile. */
struct cursor {
    int64_t group, first, macro_tiles;
    struct gemm gemm;
    struct gemm_cuts cuts;
};

static void cursor_set(struct cursor *at, const struct grouped_gemm *g,
                       double grain)
{
    assert(at->group >= 0 && at->group < g->groups);
    at->gemm = group_gemm(g, at->group);
    at->cuts = (struct gemm_cuts){ 0 };
    double flop =
        2.0 * (double)at->gemm.m * (double)at->gemm.n * (double)at->gemm.k;
    if (at->gemm.m > 0)
        at->cuts = CPU_SYMBOL(gemm_cuts)(&at->gemm, 1 + (int)(flop / grain));
    at->macro_tiles = at->cuts.rows * at->cuts.columns;
}

static void cursor_next(struct cursor *at, const struct grouped_gemm *g,
                        double grain)
{
    at->first += at->macro_tiles;
    at->group++;
    cursor_set(at, g, grain);
}

enum err CPU_SYMBOL(grouped_gemm) KERNEL_LIKE(grouped_gemm)
{
    assert(gemm->groups > 0 && gemm->offsets[0] == 0);
    assert(gemm->n > 0 && (gemm->form == GEMM_TN ? gemm->m : gemm->k) > 0);
    TRY(cpu_require_f32(dtype, "grouped_gemm"));
    assert(gemm->accumulate || !gemm->begins);
    double flop = 2.0 * (double)gemm->offsets[gemm->groups] * (double)gemm->n *
                  (double)(gemm->form == GEMM_TN ? gemm->m : gemm->k);
    double grain = flop / (ctx->threads * MACRO_TILES) + 1;
    struct cursor start = { 0 };
    cursor_set(&start, gemm, grain);
    struct cursor end = start;
    while (end.group < gemm->groups - 1)
        cursor_next(&end, gemm, grain);
    int64_t macro_tiles = end.first + end.macro_tiles;
#pragma omp parallel num_threads(ctx->threads)
    {
        struct gemm_room room = CPU_SYMBOL(gemm_room)(ctx);
        struct cursor at = start;
        /* a thread's macro tiles come in order */
#pragma omp for schedule(monotonic : dynamic, 1)
        for (int64_t t = 0; t < macro_tiles; t++) {
            while (t >= at.first + at.macro_tiles)
                cursor_next(&at, gemm, grain);
            CPU_SYMBOL(gemm_macro_tile)(&at.gemm, at.cuts, t - at.first, &room);
        }
    }
    return ERR_OK;
}
