/* Patterns, numbers and counts of health checks. A thread takes every so
 * many'th word, so that a grid of fixed size covers any length.
 *
 * What is written is a function of place and seed, so it is checked where it
 * lies, against the same function, and nothing but counts goes to the host. Numbers that are added are small whole ones, whose sums are exact
 * in any order: a sum that is off by one is a fault. */
#include "kernels/cuda/cuda_probe.h"

#include "kernels/cuda/cuda_reduce.h"
#include "kernels/cuda/cuda_vec.h"

#define WARPS (CUDA_THREADS / CUDA_WARP)
#define WORDS_PER_THREAD 16

static unsigned probe_blocks(int64_t n)
{
    int64_t blocks = cuda_parts(n, CUDA_THREADS * WORDS_PER_THREAD);
    return cuda_blocks(cuda_min(cuda_max(blocks, 1), CUDA_PROBE_COUNTS));
}

/* x[i] = f(i) */
template <class T, class F>
static __global__ void probe_set(int64_t n, F f, T *x)
{
    for (int64_t i = (int64_t)blockIdx.x * CUDA_THREADS + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * CUDA_THREADS)
        f(i, x + i);
}

/* counts += f(i) over all i */
template <class F>
static __global__ void probe_count(int64_t n, F f, uint64_t *counts)
{
    long long sum = 0;
    for (int64_t i = (int64_t)blockIdx.x * CUDA_THREADS + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * CUDA_THREADS)
        sum += (long long)f(i);
    sum = cuda_team_sum(WARPS, sum);
    if (threadIdx.x == 0)
        counts[blockIdx.x] += (uint64_t)sum;
}

template <class T, class F>
static enum err set_run(const struct kernel_ctx *ctx, const char *op, int64_t n,
                        F f, T *x)
{
    auto kernel = probe_set<T, F>;
    CUDA_LAUNCH(kernel, probe_blocks(n), CUDA_THREADS, 0, cuda_stream(ctx), n,
                f, x);
    return cuda_launched(op);
}

template <class F>
static enum err count_run(const struct kernel_ctx *ctx, const char *op,
                          int64_t n, F f, uint64_t *counts)
{
    auto kernel = probe_count<F>;
    CUDA_LAUNCH(kernel, probe_blocks(n), CUDA_THREADS, 0, cuda_stream(ctx), n,
                f, counts);
    return cuda_launched(op);
}

struct pattern {
    uint32_t seed;
    __device__ void operator()(int64_t i, uint32_t *x) const
    {
        *x = cuda_probe_word(seed, i);
    }
};

struct pattern_wrong {
    uint32_t seed;
    const uint32_t *x;
    __device__ uint64_t operator()(int64_t i) const
    {
        return x[i] != cuda_probe_word(seed, i);
    }
};

struct words_differ {
    const uint32_t *a, *b;
    __device__ uint64_t operator()(int64_t i) const
    {
        return a[i] != b[i];
    }
};

struct words_mixed {
    const uint32_t *x;
    __device__ uint64_t operator()(int64_t i) const
    {
        return cuda_probe_word(x[i], i);
    }
};

template <class T> struct numbers_put {
    uint32_t seed;
    __device__ void operator()(int64_t i, T *x) const
    {
        cuda_put((float)cuda_probe_number(seed, i), x);
    }
};

struct sum_wrong {
    uint32_t seed;
    int terms;
    const float *x;
    __device__ uint64_t operator()(int64_t i) const
    {
        int sum = 0;
        for (int term = 0; term < terms; term++)
            sum += cuda_probe_number(seed + (uint32_t)term, i);
        return !(x[i] == (float)sum);
    }
};

enum err CUDA_SYMBOL(probe_fill)(const struct kernel_ctx *ctx, int64_t n,
                                 uint32_t seed, uint32_t *x)
{
    struct pattern f = { seed };
    return set_run(ctx, "probe_fill", n, f, x);
}

enum err CUDA_SYMBOL(probe_wrong)(const struct kernel_ctx *ctx, int64_t n,
                                  uint32_t seed, const uint32_t *x,
                                  uint64_t *counts)
{
    struct pattern_wrong f = { seed, x };
    return count_run(ctx, "probe_wrong", n, f, counts);
}

enum err CUDA_SYMBOL(probe_differ)(const struct kernel_ctx *ctx, int64_t n,
                                   const uint32_t *a, const uint32_t *b,
                                   uint64_t *counts)
{
    struct words_differ f = { a, b };
    return count_run(ctx, "probe_differ", n, f, counts);
}

enum err CUDA_SYMBOL(probe_checksum)(const struct kernel_ctx *ctx, int64_t n,
                                     const uint32_t *x, uint64_t *counts)
{
    struct words_mixed f = { x };
    return count_run(ctx, "probe_checksum", n, f, counts);
}

enum err CUDA_SYMBOL(probe_numbers)(const struct kernel_ctx *ctx,
                                    enum dtype dtype, int64_t n, uint32_t seed,
                                    void *x)
{
    return cuda_by_dtype(dtype, "probe_numbers", [&](auto element) {
        typedef decltype(element) T;
        const struct numbers_put<T> f = {
            seed
        };
        return set_run(ctx, "probe_numbers", n, f, (T *)x);
    });
}

enum err CUDA_SYMBOL(probe_wrong_sum)(const struct kernel_ctx *ctx, int64_t n,
                                      uint32_t seed, int terms, const float *x,
                                      uint64_t *counts)
{
    struct sum_wrong f = { seed, terms, x };
    return count_run(ctx, "probe_wrong_sum", n, f, counts);
}
