/* Dropout and jitter: a product with a random factor per element. A block has
 * one sample's elements, so that the sample's key is computed once.
 *
 * The generator is Philox (Salmon et al. 2011), which has no state: the words of
 * an element follow from seed, stream, sample and its place. So backward draws
 * what forward drew instead of keeping a mask, and a sample is treated alike
 * whichever rank and microbatch has it. */
#include "kernels/cuda/cuda_map.h"
#include "kernels/cuda/cuda_random.h"

/* Words of one Philox block. */
#define WORDS 4
/* Elements of a thread, and of a block. */
#define THREAD_STRETCH 16
#define STRETCH (THREAD_STRETCH * CUDA_THREADS)

/* A word below `threshold` drops its element: a factor of 0, so that a NaN
 * stays one. */
struct drop {
    uint32_t threshold;
    float kept;
    __device__ float operator()(uint32_t word) const
    {
        return word >= threshold ? kept : 0.0f;
    }
};

/* The upper 24 bits of a word are the uniform number. */
struct shake {
    float least, step;
    __device__ float operator()(uint32_t word) const
    {
        return fmaf((float)(word >> 8), step, least);
    }
};

struct scale {
    float by;
    __device__ float operator()(float x, float) const
    {
        return x * by;
    }
};

template <class T, class F>
static __global__ void randomize(int64_t elements, int64_t stretches,
                                 struct random_place random, F f, const T *x,
                                 T *y)
{
    __shared__ uint64_t key;
    int64_t sample = blockIdx.x / stretches;
    int64_t first = blockIdx.x % stretches * STRETCH;
    int64_t end = cuda_min(elements, first + STRETCH);
    const int lanes = cuda_lanes<T>::count, vectors = THREAD_STRETCH / lanes;
    int64_t at = first + (int64_t)threadIdx.x * lanes;
    int64_t step = (int64_t)blockDim.x * lanes;
    struct cuda_held<T, vectors> held;
    uint32_t words[WORDS];
    float v[lanes];
    x += sample * elements;
    y += sample * elements;
    cuda_hold(x + at, step, end - at, &held);
    if (threadIdx.x == 0)
        key = cuda_random_key(random, sample);
    __syncthreads();
    CUDA_UNROLL
    for (int k = 0; k < vectors; k++, at += step) {
        if (at >= end)
            return;
        cuda_held_values(held, k, v);
        for (int i = 0; i < lanes; i++) {
            if (i % WORDS == 0)
                cuda_philox(key, (uint64_t)(at + i) / WORDS, 0, words);
            v[i] *= f(words[i % WORDS]);
        }
        cuda_store<lanes>(y + at, end - at, v);
    }
}

template <class F>
static enum err randomize_run(const struct kernel_ctx *ctx, enum dtype dtype,
                              const char *op, int64_t samples, int64_t elements,
                              const struct random_place *random, F f,
                              const void *x, void *y)
{
    int64_t stretches = cuda_parts(elements, STRETCH);
    unsigned threads =
        cuda_threads(cuda_parts(cuda_min(elements, STRETCH), THREAD_STRETCH));
    if (samples == 0)
        return ERR_OK;
    return cuda_by_dtype(dtype, op, [&](auto element) {
        typedef decltype(element) T;
        auto kernel = randomize<T, F>;
        CUDA_LAUNCH(kernel, cuda_blocks(samples * stretches), threads, 0,
                    cuda_stream(ctx), elements, stretches, *random, f,
                    (const T *)x, (T *)y);
        return cuda_launched(op);
    });
}

enum err CUDA_SYMBOL(dropout) KERNEL_LIKE(dropout)
{
    assert(p >= 0 && p < 1 && elements > 0);
    const struct scale all = { scale };
    const struct drop some = { (uint32_t)((double)p * 0x1p32),
                               scale / (1.0f - p) };
    if (p == 0)
        return cuda_map(ctx, dtype, "dropout", samples * elements, all, x, NULL,
                        y);
    return randomize_run(ctx, dtype, "dropout", samples, elements, random, some,
                         x, y);
}

enum err CUDA_SYMBOL(jitter) KERNEL_LIKE(jitter)
{
    assert(elements > 0);
    const struct shake f = { 1.0f - amount, 2.0f * amount * 0x1p-24f };
    return randomize_run(ctx, dtype, "jitter", samples, elements, random, f, x,
                         y);
}
