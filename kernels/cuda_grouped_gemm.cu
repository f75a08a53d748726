/* One product per expert. How many rows each has is known on the device alone,
 * so a fixed grid of blocks walks over the tiles of all groups: which block
 * computes a tile follows from the offsets, what it computes does not. */
#include "kernels/cuda_gemm.h"

/* Blocks of the grid: three for each of 132 multiprocessors, as many as their
 * registers hold. */
#ifdef CUDA_EMULATED
#define BLOCKS 5
#else
#define BLOCKS 396
#endif

template <class T, class C>
CUDA_DEVICE struct gemm group_of(const struct grouped_gemm *g, int64_t group)
{
    int64_t first = g->offsets[group];
    int64_t rows = g->offsets[group + 1] - first;
    const T *a = (const T *)g->a, *b = (const T *)g->b;
    C *c = (C *)g->c;
    struct gemm one = {};
    one.form = g->form;
    one.n = g->n;
    one.accumulate = g->accumulate;
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

/* `first` is the number of the group's first tile among those of all. */
template <class T, class C>
static __global__ void grouped_tiles(struct grouped_gemm g)
{
    CUDA_SHARED(float, shared);
    int64_t columns = cuda_parts(g.n, CUDA_TILE), tile = blockIdx.x, first = 0;
    for (int64_t group = 0; group < g.groups; group++) {
        struct gemm one = group_of<T, C>(&g, group);
        int64_t tiles = cuda_parts(one.m, CUDA_TILE) * columns;
        for (; tile < first + tiles; tile += gridDim.x) {
            int64_t row = (tile - first) / columns;
            int64_t column = (tile - first) % columns;
            cuda_tile<T, C>(&one, row * CUDA_TILE, column * CUDA_TILE, shared);
        }
        first += tiles;
    }
}

template <class T, class C>
static enum err grouped_launch(const struct kernel_ctx *ctx,
                               const struct grouped_gemm *g)
{
    auto kernel = grouped_tiles<T, C>;
    CUDA_LAUNCH(kernel, BLOCKS, CUDA_TILE_THREADS, CUDA_TILE_BYTES,
                cuda_stream(ctx), *g);
    return cuda_launched("grouped_gemm");
}

template <class T>
static enum err grouped_run(const struct kernel_ctx *ctx,
                            const struct grouped_gemm *g)
{
    return g->form == GEMM_TN ? grouped_launch<T, float>(ctx, g)
                              : grouped_launch<T, T>(ctx, g);
}

enum err CUDA_SYMBOL(grouped_gemm)(const struct kernel_ctx *ctx,
                                   enum dtype dtype,
                                   const struct grouped_gemm *g)
{
    assert(g->groups > 0 && g->n > 0);
    assert(g->form == GEMM_TN ? g->m > 0 : g->k > 0);
    return CUDA_BY_DTYPE(dtype, "grouped_gemm", grouped_run, ctx, g);
}
