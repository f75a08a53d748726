/* GEMM: fixed tiles of C, each one single-threaded OpenBLAS call.
 *
 * OpenBLAS gives other bits for other thread counts, so its own threads stay
 * off (kernels.c) and the tiles are computed by ours. Tile sizes follow from
 * the shape alone. The inner dimension is never split. */
#include "kernels/cpu.h"

#include <cblas.h>
#include <limits.h>
#include <string.h>

/* Tiles are halved until they are small enough to balance; counts are powers of
 * two, because 5 tiles on 2 threads waste a sixth of the time. */
#define TILES_MIN 4
#define TILES_FULL 16
#define TILE_FLOP_MIN 8e6   /* below TILES_MIN tiles, do not halve less */
#define TILE_FLOP_FULL 40e6 /* up to TILES_FULL tiles, do not halve less */
#define TILE_AREA_MAX                                                          \
    786432 /* elements of C: larger tiles fall out of cache                    \
            */
#define TILE_SIDE_MIN 32
#define TILE_UNIT 16 /* sides are multiples, but for the last one */

struct tiling {
    int64_t rows, columns; /* number of tiles in each direction */
};

static struct tiling tiling_choose(const struct gemm *g)
{
    struct tiling tiling = { 1, 1 };
    for (;;) {
        int64_t count = tiling.rows * tiling.columns;
        int64_t height = g->m / tiling.rows;
        int64_t width = g->n / tiling.columns;
        double flop = 2.0 * (double)height * (double)width * (double)g->k;
        bool halve = (count < TILES_MIN && flop > TILE_FLOP_MIN) ||
                     (count < TILES_FULL && flop > TILE_FLOP_FULL) ||
                     height * width > TILE_AREA_MAX;
        if (!halve || (height < 2 * TILE_SIDE_MIN && width < 2 * TILE_SIDE_MIN))
            return tiling;
        if (height > width)
            tiling.rows *= 2;
        else
            tiling.columns *= 2;
    }
}

/* Where part `index` of `parts` begins. */
static int64_t cut(int64_t extent, int64_t parts, int64_t index)
{
    int64_t units = cpu_parts(extent, TILE_UNIT);
    return cpu_min(extent, units * index / parts * TILE_UNIT);
}

static void tile_fill_bias(const struct gemm *g, int64_t row, int64_t row_end,
                           int64_t column, int64_t column_end)
{
    const float *bias = g->bias;
    float *c = g->c;
    for (int64_t i = row; i < row_end; i++)
        memcpy(c + i * g->n + column, bias + column,
               (size_t)(column_end - column) * sizeof(float));
}

static void tile_run(const struct gemm *g, int64_t row, int64_t row_end,
                     int64_t column, int64_t column_end)
{
    bool a_transposed = g->form == GEMM_TN;
    bool b_transposed = g->form == GEMM_NT;
    const float *a = g->a;
    const float *b = g->b;
    float *c = g->c;
    if (row == row_end || column == column_end)
        return;
    /* The bias takes the place of the zeros that beta = 0 would write. */
    if (g->bias != NULL)
        tile_fill_bias(g, row, row_end, column, column_end);
    cblas_sgemm(CblasRowMajor, a_transposed ? CblasTrans : CblasNoTrans,
                b_transposed ? CblasTrans : CblasNoTrans, (int)(row_end - row),
                (int)(column_end - column), (int)g->k, 1.0f,
                a_transposed ? a + row : a + row * g->k,
                (int)(a_transposed ? g->m : g->k),
                b_transposed ? b + column * g->k : b + column,
                (int)(b_transposed ? g->k : g->n),
                g->accumulate || g->bias != NULL ? 1.0f : 0.0f,
                c + row * g->n + column, (int)g->n);
}

enum err CPU_SYMBOL(gemm)(const struct kernel_ctx *ctx, enum dtype dtype,
                          const struct gemm *g)
{
    assert(g->m > 0 && g->m <= INT_MAX);
    assert(g->n > 0 && g->n <= INT_MAX);
    assert(g->k > 0 && g->k <= INT_MAX);
    assert(g->bias == NULL || !g->accumulate);
    enum err rc = cpu_require_f32(dtype, "gemm");
    if (rc != ERR_OK)
        return rc;
    struct tiling tiling = tiling_choose(g);
    int64_t count = tiling.rows * tiling.columns;
#pragma omp parallel for num_threads(ctx->threads) schedule(dynamic, 1)
    for (int64_t t = 0; t < count; t++) {
        int64_t i = t % tiling.rows;
        int64_t j = t / tiling.rows;
        tile_run(g, cut(g->m, tiling.rows, i), cut(g->m, tiling.rows, i + 1),
                 cut(g->n, tiling.columns, j),
                 cut(g->n, tiling.columns, j + 1));
    }
    return ERR_OK;
}
