/* The product of two matrices in 8-bit floats for where cuBLASLt is not or has
 * no algorithm: bf16 holds all of their numbers, so codes become bf16 in shared
 * memory and pass for a product in bf16. That needs no tensor core of Hopper's,
 * and loses nothing: a product of two such numbers is exact in fp32. */
#include "kernels/cuda/cuda_fp8.h"
#include "kernels/cuda/cuda_gemm_mma.h"

typedef struct cuda_gemm_mma_side<false> side;

/* A thread's codes of a step of k. */
#define CODES 16
#define PARTS (CUDA_GEMM_MMA_K / CODES)

static_assert(CUDA_GEMM_MMA_THREADS == CUDA_GEMM_MMA_TILE * PARTS, "");

/* A thread's own place in an operand's tile. */
CUDA_DEVICE struct cuda_bf16 *own(struct cuda_bf16 *tile)
{
    return tile + (int)threadIdx.x / PARTS * side::stride +
           (int)threadIdx.x % PARTS * CODES;
}

/* Codes come to where their bf16 numbers will be; `lines` rows are there, from
 * p on, with `left` elements of k. */
CUDA_DEVICE void fetch(const uint8_t *p, int64_t pitch, int64_t lines,
                       int64_t left, struct cuda_bf16 *tile)
{
    const unsigned zeros[4] = { 0 };
    const int line = (int)threadIdx.x / PARTS;
    const int k = (int)threadIdx.x % PARTS * CODES;
    if (line < lines && k < left)
        cuda_mma_fetch(p + line * pitch + k, own(tile));
    else
        cuda_put_words(zeros, CODES, own(tile));
}

/* What this thread has fetched becomes bf16 in its place. */
CUDA_DEVICE void widen(struct cuda_fp8_kind kind, struct cuda_bf16 *tile)
{
    typedef struct cuda_piece<4, unsigned> piece;
    const piece codes = *(const piece *)own(tile);
    unsigned wide[8];
    CUDA_UNROLL
    for (int i = 0; i < 4; i++)
        cuda_fp8_widen(kind, codes.at[i], wide + 2 * i);
    cuda_put_words(wide, CODES, own(tile));
    cuda_put_words(wide + 4, CODES, own(tile) + CODES / 2);
}

/* A tile's product is as cuda_gemm_mma_tile's, but that one barrier per step
 * serves both stages: who fetches into a stage has passed the barrier that all
 * passed who multiplied from it. */
template <class C>
static __global__ void CUDA_RESIDENT(CUDA_GEMM_MMA_THREADS, 2)
    gemm_fp8_tiles(struct gemm_fp8 g, struct cuda_fp8_kind a_kind,
                   struct cuda_fp8_kind b_kind)
{
    typedef struct cuda_gemm_mma_shared<GEMM_NT> arrays;
    CUDA_SHARED(arrays, shared);
    const int64_t tiles = cuda_parts(g.n, CUDA_GEMM_MMA_TILE);
    const int64_t row = blockIdx.x / tiles * CUDA_GEMM_MMA_TILE;
    const int64_t column = blockIdx.x % tiles * CUDA_GEMM_MMA_TILE;
    const uint8_t *a = (const uint8_t *)g.a + row * g.k;
    const uint8_t *b = (const uint8_t *)g.b + column * g.k;
    float sum[CUDA_GEMM_MMA_HIGH][CUDA_GEMM_MMA_WIDE][4] = {};
    fetch(a, g.k, g.m - row, g.k, shared->stages[0].a);
    fetch(b, g.k, g.n - column, g.k, shared->stages[0].b);
    for (int64_t at = 0; at < g.k; at += CUDA_GEMM_MMA_K) {
        const int stage = (int)(at / CUDA_GEMM_MMA_K % 2);
        const int64_t next = at + CUDA_GEMM_MMA_K;
        cuda_mma_fetched();
        widen(a_kind, shared->stages[stage].a);
        widen(b_kind, shared->stages[stage].b);
        __syncthreads();
        if (next < g.k) {
            fetch(a + next, g.k, g.m - row, g.k - next,
                  shared->stages[1 - stage].a);
            fetch(b + next, g.k, g.n - column, g.k - next,
                  shared->stages[1 - stage].b);
        }
        cuda_gemm_mma_multiply<false, false>(shared->stages[stage].a,
                                             shared->stages[stage].b, sum);
    }
    const float unscale = *g.unscale_a * *g.unscale_b;
    CUDA_UNROLL
    for (int i = 0; i < CUDA_GEMM_MMA_HIGH; i++) {
        CUDA_UNROLL
        for (int j = 0; j < CUDA_GEMM_MMA_WIDE; j++) {
            CUDA_UNROLL
            for (int l = 0; l < 4; l++)
                sum[i][j][l] *= unscale;
        }
    }
    const struct gemm plain = { GEMM_NT, g.m, g.n,          g.k,    g.a,
                                g.b,     g.c, g.accumulate, g.bias, false };
    cuda_gemm_mma_store<C>(&plain, row, column, sum);
}

enum err CUDA_SYMBOL(gemm_fp8_tiled) KERNEL_LIKE(gemm_fp8)
{
    auto kernel = gemm->c_type == DTYPE_F32 ? gemm_fp8_tiles<float>
                                            : gemm_fp8_tiles<struct cuda_bf16>;
    assert(gemm->m > 0 && gemm->n > 0 && gemm->k > 0 && gemm->n % 16 == 0 &&
           gemm->k % 16 == 0);
    assert(gemm->a_type == FP8_E4M3 || gemm->b_type == FP8_E4M3);
    assert(gemm->c_type == DTYPE_BF16 || gemm->c_type == DTYPE_F32);
    assert(gemm->c_type == DTYPE_F32 ? gemm->bias == NULL : !gemm->accumulate);
    assert((uintptr_t)gemm->a % 16 == 0 && (uintptr_t)gemm->b % 16 == 0);
    CUDA_LAUNCH(kernel,
                cuda_blocks(cuda_parts(gemm->m, CUDA_GEMM_MMA_TILE) *
                            cuda_parts(gemm->n, CUDA_GEMM_MMA_TILE)),
                CUDA_GEMM_MMA_THREADS,
                sizeof(struct cuda_gemm_mma_shared<GEMM_NT>), cuda_stream(ctx),
                *gemm, cuda_fp8_kind_of(gemm->a_type),
                cuda_fp8_kind_of(gemm->b_type));
    return cuda_launched("gemm_fp8");
}
