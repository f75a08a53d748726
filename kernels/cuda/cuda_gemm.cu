/* The product of two matrices for where cuBLASLt is not: in the emulator, on
 * machines without the library, and for shapes that it has no algorithm for. A
 * block has a tile of C and all of k, which is not cut: an element of C is one
 * chain of additions in order of k, in fp32 on the cores, in bf16 on tensor
 * cores, whose own order within 16 of k is the device's. */
#include "kernels/cuda/cuda_gemm.h"
#include "kernels/cuda/cuda_gemm_mma.h"

static __global__ void gemm_tiles(struct gemm g)
{
    CUDA_SHARED(float, shared);
    int64_t columns = cuda_parts(g.n, CUDA_TILE);
    int64_t row = blockIdx.x / columns, column = blockIdx.x % columns;
    cuda_tile(&g, row * CUDA_TILE, column * CUDA_TILE, shared);
}

template <enum gemm_form FORM, class C>
static __global__ void CUDA_RESIDENT(CUDA_GEMM_MMA_THREADS, 2)
    gemm_mma_tiles(struct gemm g)
{
    typedef struct cuda_gemm_mma_shared<FORM> arrays;
    CUDA_SHARED(arrays, shared);
    int64_t columns = cuda_parts(g.n, CUDA_GEMM_MMA_TILE);
    int64_t row = blockIdx.x / columns, column = blockIdx.x % columns;
    cuda_gemm_mma_tile<FORM, C>(&g, row * CUDA_GEMM_MMA_TILE,
                                column * CUDA_GEMM_MMA_TILE, shared);
}

static unsigned tiles_of(const struct gemm *g, int64_t side)
{
    return cuda_blocks(cuda_parts(g->m, side) * cuda_parts(g->n, side));
}

template <enum gemm_form FORM, class C>
static enum err gemm_mma_run(const struct kernel_ctx *ctx, const struct gemm *g)
{
    auto kernel = gemm_mma_tiles<FORM, C>;
    CUDA_LAUNCH(kernel, tiles_of(g, CUDA_GEMM_MMA_TILE), CUDA_GEMM_MMA_THREADS,
                sizeof(struct cuda_gemm_mma_shared<FORM>), cuda_stream(ctx),
                *g);
    return cuda_launched("gemm");
}

enum err CUDA_SYMBOL(gemm_tiled) KERNEL_LIKE(gemm)
{
    assert(gemm->m > 0 && gemm->n > 0 && gemm->k > 0);
    assert(gemm->bias == NULL || !gemm->accumulate);
    struct gemm g = *gemm;
    g.accumulate = gemm->accumulate && !gemm->begins;
    if (dtype == DTYPE_BF16)
        return CUDA_GEMM_MMA_BY_FORM(g.form, gemm_mma_run, ctx, &g);
    if (dtype != DTYPE_F32)
        return cuda_lacks_dtype("gemm", dtype);
    CUDA_LAUNCH(gemm_tiles, tiles_of(gemm, CUDA_TILE), CUDA_TILE_THREADS,
                CUDA_TILE_BYTES, cuda_stream(ctx), g);
    return cuda_launched("gemm");
}
