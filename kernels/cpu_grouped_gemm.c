/* One GEMM per expert: the tiles of all of them in one loop, so that threads
 * share the work however unevenly the rows are spread. A group's tiles follow
 * from its own rows alone, so its bits do not depend on the other groups. */
#include "kernels/cpu_skinny.h"

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
                        .accumulate = g->accumulate };
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

/* Every group has GEMM_TILES_MAX places for tiles, most of which stay empty: an
 * empty one costs nothing, a list of tiles would have to be stored. */
enum err CPU_SYMBOL(grouped_gemm)(const struct kernel_ctx *ctx,
                                  enum dtype dtype,
                                  const struct grouped_gemm *g)
{
    assert(g->groups > 0 && g->offsets[0] == 0);
    assert(g->n > 0 && g->n <= INT_MAX);
    assert(g->form != GEMM_TN || (g->m > 0 && g->m <= INT_MAX));
    assert(g->form == GEMM_TN || (g->k > 0 && g->k <= INT_MAX));
    enum err rc = cpu_require_f32(dtype, "grouped_gemm");
    if (rc != ERR_OK)
        return rc;
    int64_t places = (int64_t)g->groups * GEMM_TILES_MAX;
#pragma omp parallel for num_threads(ctx->threads) schedule(dynamic, 1)
    for (int64_t t = 0; t < places; t++) {
        struct gemm one = group_gemm(g, t / GEMM_TILES_MAX);
        int64_t tile = t % GEMM_TILES_MAX;
        if (one.m == 0)
            continue;
        if (CPU_SYMBOL(skinny_fits)(&one)) {
            int64_t tiles = CPU_SYMBOL(skinny_tiles)(&one);
            if (tile < tiles)
                CPU_SYMBOL(skinny_tile)(&one, tiles, tile);
            continue;
        }
        struct gemm_tiling tiling = CPU_SYMBOL(gemm_tiling)(&one);
        if (tile < tiling.rows * tiling.columns)
            CPU_SYMBOL(gemm_tile)(&one, tiling, tile);
    }
    return ERR_OK;
}
