/* One product per expert, in bf16 on tensor cores. How many rows each has is
 * known on the device alone, so a fixed grid of blocks walks over the tiles of
 * all groups: which block computes a tile follows from the offsets, what it
 * computes does not. */
#include "kernels/cuda/cuda_gemm.h"
#include "kernels/cuda/cuda_gemm_mma.h"

/* Blocks of the grid: for each of 132 multiprocessors as many as its registers
 * hold, three in fp32 and two in bf16. */
#ifdef CUDA_EMULATED
#define BLOCKS 5
#define MMA_BLOCKS 5
#else
#define BLOCKS 396
#define MMA_BLOCKS 264
#endif

template <class T, class C>
CUDA_DEVICE struct gemm group_of(const struct grouped_gemm *g, int group)
{
    int64_t first = g->offsets[group];
    int64_t rows = g->offsets[group + 1] - first;
    const T *a = (const T *)g->a, *b = (const T *)g->b;
    C *c = (C *)g->c;
    struct gemm one = {};
    one.form = g->form;
    one.n = g->n;
    one.accumulate = g->accumulate && !g->begins;
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

/* Calls tile(product, row, column) for this block's tiles of `side` elements
 * square; none of a product that adds nothing. */
template <class T, class C, class F>
CUDA_DEVICE void for_tiles(const struct grouped_gemm *g, int64_t side, F tile)
{
    int64_t columns = cuda_parts(g->n, side), at = blockIdx.x;
    for (int group = 0; group < g->groups; group++) {
        struct gemm one = group_of<T, C>(g, group);
        int64_t tiles = cuda_parts(one.m, side) * columns;
        if (one.k == 0 && one.accumulate)
            continue;
        for (; at < tiles; at += gridDim.x)
            tile(&one, at / columns * side, at % columns * side);
        at -= tiles;
    }
}

struct tile_cores {
    float *shared;
    __device__ void operator()(const struct gemm *g, int64_t row,
                               int64_t column) const
    {
        cuda_tile(g, row, column, shared);
    }
};

static __global__ void CUDA_RESIDENT(CUDA_TILE_THREADS, 3)
    grouped_tiles(struct grouped_gemm g)
{
    CUDA_SHARED(float, shared);
    const struct tile_cores tile = { shared };
    for_tiles<float, float>(&g, CUDA_TILE, tile);
}

template <enum gemm_form FORM, class C> struct tile_mma {
    struct cuda_gemm_mma_shared<FORM> *shared;
    __device__ void operator()(const struct gemm *g, int64_t row,
                               int64_t column) const
    {
        cuda_gemm_mma_tile<FORM, C>(g, row, column, shared);
    }
};

template <enum gemm_form FORM, class C>
static __global__ void CUDA_RESIDENT(CUDA_GEMM_MMA_THREADS, 2)
    grouped_mma_tiles(struct grouped_gemm g)
{
    typedef struct cuda_gemm_mma_shared<FORM> arrays;
    CUDA_SHARED(arrays, shared);
    const struct tile_mma<FORM, C> tile = {
        shared
    };
    g.form = FORM;
    for_tiles<struct cuda_bf16, C>(&g, CUDA_GEMM_MMA_TILE, tile);
}

template <enum gemm_form FORM, class C>
static enum err grouped_mma_run(const struct kernel_ctx *ctx,
                                const struct grouped_gemm *g)
{
    auto kernel = grouped_mma_tiles<FORM, C>;
    CUDA_LAUNCH(kernel, MMA_BLOCKS, CUDA_GEMM_MMA_THREADS,
                sizeof(struct cuda_gemm_mma_shared<FORM>), cuda_stream(ctx),
                *g);
    return cuda_launched("grouped_gemm");
}

enum err CUDA_SYMBOL(grouped_gemm) KERNEL_LIKE(grouped_gemm)
{
    assert(gemm->groups > 0 && gemm->n > 0);
    assert(gemm->form == GEMM_TN ? gemm->m > 0 : gemm->k > 0);
    if (dtype == DTYPE_BF16)
        return CUDA_GEMM_MMA_BY_FORM(gemm->form, grouped_mma_run, ctx, gemm);
    if (dtype != DTYPE_F32)
        return cuda_lacks_dtype("grouped_gemm", dtype);
    CUDA_LAUNCH(grouped_tiles, BLOCKS, CUDA_TILE_THREADS, CUDA_TILE_BYTES,
                cuda_stream(ctx), *gemm);
    return cuda_launched("grouped_gemm");
}
