/* Sums in fp64 over chunks of KERNEL_CHUNK: a block per chunk, whose threads
 * add every CUDA_THREADS'th vector. Sums over whole tensors are made of these
 * (norms of gradients, losses): the cuts are at fixed places of the flat space,
 * so whoever owns a chunk computes the same number, and the numbers are added in
 * order of chunks. */
#include "kernels/cuda/cuda_reduce.h"
#include "kernels/cuda/cuda_vec.h"

#define WARPS (CUDA_THREADS / CUDA_WARP)

/* Sums of losses, one per token. */
size_t CUDA_SYMBOL(sum_scratch)(const struct kernel_limits *limits)
{
    return (size_t)cuda_parts(limits->tokens, KERNEL_CHUNK) * sizeof(double);
}

struct itself {
    __device__ double operator()(double x) const
    {
        return x;
    }
};

struct square {
    __device__ double operator()(double x) const
    {
        return x * x;
    }
};

template <class T, class F>
static __global__ void chunks_sum(int64_t n, F f, const T *x, double *out)
{
    const int lanes = cuda_lanes<T>::count;
    int64_t first = (int64_t)blockIdx.x * KERNEL_CHUNK;
    int64_t end = cuda_min(n, first + KERNEL_CHUNK);
    float v[lanes];
    double sum = 0;
    for (int64_t at = first + threadIdx.x * lanes; at < end;
         at += CUDA_THREADS * lanes) {
        cuda_load<lanes>(x + at, end - at, 0, v);
        for (int i = 0; i < lanes; i++)
            sum += f((double)v[i]);
    }
    sum = cuda_team_sum(WARPS, sum);
    if (threadIdx.x == 0)
        out[blockIdx.x] = sum;
}

static __global__ void doubles_sum(int64_t n, const double *x, double *out)
{
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += CUDA_THREADS)
        sum += x[i];
    sum = cuda_team_sum(WARPS, sum);
    if (threadIdx.x == 0)
        *out = sum;
}

enum err CUDA_SYMBOL(sum) KERNEL_LIKE(sum)
{
    int64_t chunks = cuda_parts(n, KERNEL_CHUNK);
    double *sums = (double *)ctx->scratch;
    auto kernel = chunks_sum<float, struct itself>;
    assert(ctx->scratch_bytes >= (size_t)chunks * sizeof(*sums));
    if (chunks > 0)
        CUDA_LAUNCH(kernel, cuda_blocks(chunks), CUDA_THREADS, 0,
                    cuda_stream(ctx), n, itself(), x, sums);
    CUDA_LAUNCH(doubles_sum, 1, CUDA_THREADS, 0, cuda_stream(ctx), chunks, sums,
                out);
    return cuda_launched("sum");
}

enum err CUDA_SYMBOL(chunk_sum_squares) KERNEL_LIKE(chunk_sum_squares)
{
    assert(n % KERNEL_CHUNK == 0);
    if (n == 0)
        return ERR_OK;
    return cuda_by_dtype(dtype, "chunk_sum_squares", [&](auto element) {
        typedef decltype(element) T;
        auto kernel = chunks_sum<T, struct square>;
        CUDA_LAUNCH(kernel, cuda_blocks(n / KERNEL_CHUNK), CUDA_THREADS, 0,
                    cuda_stream(ctx), n, square(), (const T *)x, out);
        return cuda_launched("chunk_sum_squares");
    });
}
