/* The product of two matrices by CUDA cores alone, for where cuBLASLt is not:
 * in the emulator, on machines without the library, and for shapes that it has
 * no algorithm for. */
#include "kernels/cuda_gemm.h"

template <class T, class C> static __global__ void gemm_tiles(struct gemm g)
{
    CUDA_SHARED(float, shared);
    int64_t columns = cuda_parts(g.n, CUDA_TILE);
    int64_t row = blockIdx.x / columns, column = blockIdx.x % columns;
    cuda_tile<T, C>(&g, row * CUDA_TILE, column * CUDA_TILE, shared);
}

template <class T, class C>
static enum err gemm_launch(const struct kernel_ctx *ctx, const struct gemm *g)
{
    auto kernel = gemm_tiles<T, C>;
    int64_t tiles = cuda_parts(g->m, CUDA_TILE) * cuda_parts(g->n, CUDA_TILE);
    CUDA_LAUNCH(kernel, cuda_blocks(tiles), CUDA_TILE_THREADS, CUDA_TILE_BYTES,
                cuda_stream(ctx), *g);
    return cuda_launched("gemm");
}

template <class T>
static enum err gemm_run(const struct kernel_ctx *ctx, const struct gemm *g)
{
    return g->form == GEMM_TN ? gemm_launch<T, float>(ctx, g)
                              : gemm_launch<T, T>(ctx, g);
}

enum err CUDA_SYMBOL(gemm_tiled)(const struct kernel_ctx *ctx, enum dtype dtype,
                                 const struct gemm *g)
{
    assert(g->m > 0 && g->n > 0 && g->k > 0);
    assert(g->bias == NULL || !g->accumulate);
    return CUDA_BY_DTYPE(dtype, "gemm", gemm_run, ctx, g);
}
