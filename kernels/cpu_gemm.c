/* GEMM: fixed tiles of C, each one single-threaded OpenBLAS call.
 *
 * OpenBLAS gives other bits for other thread counts, so its own threads stay
 * off (kernels.c) and the tiles are computed by ours. Tile sizes follow from
 * the shape alone. The inner dimension is never split. */
#include "kernels/cpu_gemm.h"

#include <cblas.h>
#include <limits.h>
#include <string.h>

/* Every tile packs its own share of A and B, so small tiles waste time and few
 * tiles leave threads idle. Counts are powers of two: 5 tiles on 2 threads
 * waste a sixth of the time. Rows are rather kept whole: OpenBLAS is fastest
 * with some 256 of them. The measurements stand in DESIGN.md. */
#define TILES_FEW 4
#define TILES_SOME 8
#define TILES_MANY GEMM_TILES_MAX
#define HALVE_FLOP_FEW 8e6 /* halve a tile of more than this ... */
#define HALVE_FLOP_SOME 80e6
#define HALVE_AREA_SOME 32768 /* ... and elements of C */
#define HALVE_FLOP_MANY 160e6
#define HALVE_AREA_MANY 98304 /* ... and elements of C */
#define HALVE_ROWS 512        /* taller tiles are cut into rows if not wide */
#define HALVE_COLUMNS 96      /* narrower tiles are not cut into columns */
#define HALVE_ROWS_MIN 64
#define TILE_UNIT 16 /* sides are multiples, but for the last one */

static bool tile_halves(int64_t count, int64_t height, int64_t width, int64_t k)
{
    double flop = 2.0 * (double)height * (double)width * (double)k;
    if (height < HALVE_ROWS_MIN && width < HALVE_COLUMNS)
        return false;
    return (count < TILES_FEW && flop > HALVE_FLOP_FEW) ||
           (count < TILES_SOME && flop > HALVE_FLOP_SOME &&
            height * width >= HALVE_AREA_SOME) ||
           (count < TILES_MANY && flop > HALVE_FLOP_MANY &&
            height * width >= HALVE_AREA_MANY);
}

struct gemm_tiling CPU_SYMBOL(gemm_tiling)(const struct gemm *g)
{
    struct gemm_tiling tiling = { 1, 1 };
    for (;;) {
        int64_t height = g->m / tiling.rows;
        int64_t width = g->n / tiling.columns;
        if (!tile_halves(tiling.rows * tiling.columns, height, width, g->k))
            return tiling;
        if ((height >= HALVE_ROWS && height > width) || width < HALVE_COLUMNS)
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

void CPU_SYMBOL(gemm_tile)(const struct gemm *g, struct gemm_tiling tiling,
                           int64_t index)
{
    int64_t i = index % tiling.rows;
    int64_t j = index / tiling.rows;
    tile_run(g, cut(g->m, tiling.rows, i), cut(g->m, tiling.rows, i + 1),
             cut(g->n, tiling.columns, j), cut(g->n, tiling.columns, j + 1));
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
    struct gemm_tiling tiling = CPU_SYMBOL(gemm_tiling)(g);
    int64_t count = tiling.rows * tiling.columns;
#pragma omp parallel for num_threads(ctx->threads) schedule(dynamic, 1)
    for (int64_t t = 0; t < count; t++)
        CPU_SYMBOL(gemm_tile)(g, tiling, t);
    return ERR_OK;
}
