/* Cross entropy: a block per row, which reads it once for maximum and sum and,
 * where the gradient is wanted, once more from the L2 cache. Blocks are as
 * large as they may be, so that few rows are under way and stay there.
 *
 * The gradient softmax - target overwrites the logits: they are the largest
 * tensor of a model with a wide vocabulary, and nobody needs them after. Maximum
 * and sum are found in one pass, the sum rescaled whenever the maximum rises
 * (Milakov and Gimelshein 2018). */
#include "kernels/cuda/cuda_reduce.h"
#include "kernels/cuda/cuda_vec.h"

#define THREADS_MAX (CUDA_WARPS_MAX * CUDA_WARP)

struct row_sum {
    float peak;  /* largest logit so far */
    float total; /* sum of exp(scale * (logit - peak)) */
};

/* What a logit is compared to: 0 as long as all were -Inf. */
CUDA_DEVICE float base_of(float peak)
{
    return peak == -INFINITY ? 0.0f : peak;
}

/* Maximum and sum of this thread's logits. A NaN is passed over by the maximum
 * but not by the sum, which is rescaled once per vector at most. */
template <class T>
CUDA_DEVICE struct row_sum thread_sum(int64_t vocab, float scale, const T *x)
{
    const int lanes = cuda_lanes<T>::count;
    struct row_sum sum = { -INFINITY, 0 };
    float v[lanes];
    CUDA_FOR_COLUMNS(at, vocab, lanes)
    {
        cuda_load<lanes>(x + at, vocab - at, -INFINITY, v);
        float peak = sum.peak;
        for (int i = 0; i < lanes; i++)
            peak = v[i] > peak ? v[i] : peak;
        if (peak > sum.peak) {
            if (sum.peak > -INFINITY)
                sum.total *= expf((sum.peak - peak) * scale);
            sum.peak = peak;
        }
        for (int i = 0; i < lanes; i++)
            sum.total += expf((v[i] - base_of(sum.peak)) * scale);
    }
    return sum;
}

CUDA_DEVICE struct row_sum block_sum(struct row_sum mine, float scale)
{
    const int warps = (int)blockDim.x / CUDA_WARP;
    struct row_sum sum;
    sum.peak = cuda_team_reduce(warps, mine.peak, cuda_most());
    if (mine.peak > -INFINITY)
        mine.total *= expf((mine.peak - sum.peak) * scale);
    sum.total = cuda_team_sum(warps, mine.total);
    sum.peak = base_of(sum.peak);
    return sum;
}

/* The mean of peak - x, in every thread of the block. */
template <class T>
CUDA_DEVICE float block_distance(int64_t vocab, float peak, const T *x)
{
    const int lanes = cuda_lanes<T>::count;
    const int warps = (int)blockDim.x / CUDA_WARP;
    float v[lanes], sum = 0;
    CUDA_FOR_COLUMNS(at, vocab, lanes)
    {
        cuda_load<lanes>(x + at, vocab - at, peak, v);
        for (int i = 0; i < lanes; i++)
            sum += peak - v[i];
    }
    return cuda_team_sum(warps, sum) / (float)vocab;
}

/* The gradient by a logit is scale * (softmax (1 + 2 z lse) - target). */
template <class T>
CUDA_DEVICE void row_gradient(int64_t vocab, float scale, struct target target,
                              struct row_sum sum, int32_t label, T *x)
{
    const int lanes = cuda_lanes<T>::count;
    float lse = logf(sum.total) + scale * sum.peak;
    float v[lanes];
    float more = target.z > 0 ? 1.0f + 2.0f * target.z * lse : 1.0f;
    float share = scale * more / sum.total;
    float each = scale * target.smoothing / (float)vocab;
    CUDA_FOR_COLUMNS(at, vocab, lanes)
    {
        cuda_load<lanes>(x + at, vocab - at, 0, v);
        for (int i = 0; i < lanes; i++) {
            v[i] = expf((v[i] - sum.peak) * scale) * share - each;
            if (at + i == label)
                v[i] -= scale * (1.0f - target.smoothing);
        }
        cuda_store<lanes>(x + at, vocab - at, v);
    }
}

template <class T> CUDA_DEVICE void row_zero(int64_t vocab, T *x)
{
    const int lanes = cuda_lanes<T>::count;
    const float none[lanes] = { 0 };
    CUDA_FOR_COLUMNS(at, vocab, lanes)
    cuda_store<lanes>(x + at, vocab - at, none);
}

template <class T>
static __global__ void CUDA_RESIDENT(THREADS_MAX, 2)
    cross_entropy(int64_t vocab, float scale, struct target target, T *logits,
                  const int32_t *labels, bool gradient, float *losses)
{
    const int32_t label = labels[blockIdx.x];
    T *x = logits + blockIdx.x * vocab;
    if (label < 0) {
        if (gradient)
            row_zero(vocab, x);
        if (threadIdx.x == 0)
            losses[blockIdx.x] = 0;
        return;
    }
    float chosen = cuda_value(x[label]);
    struct row_sum sum = block_sum(thread_sum(vocab, scale, x), scale);
    /* Where the block is one warp the sum has no barrier, and what all lanes
     * have read the gradient overwrites. */
    __syncwarp();
    chosen = sum.peak - chosen;
    if (target.smoothing > 0) {
        chosen = (1.0f - target.smoothing) * chosen +
                 target.smoothing * block_distance(vocab, sum.peak, x);
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        float rest = logf(sum.total);
        float lse = rest + scale * sum.peak;
        losses[blockIdx.x] =
            rest + scale * chosen + (target.z > 0 ? target.z * lse * lse : 0);
    }
    if (gradient)
        row_gradient(vocab, scale, target, sum, label, x);
}

enum err CUDA_SYMBOL(cross_entropy) KERNEL_LIKE(cross_entropy)
{
    assert(vocab > 0 && scale > 0);
    assert(target->smoothing >= 0 && target->smoothing < 1 && target->z >= 0);
    if (n == 0)
        return ERR_OK;
    return cuda_by_dtype(dtype, "cross_entropy", [&](auto element) {
        typedef decltype(element) T;
        int64_t vectors = cuda_parts(vocab, cuda_lanes<T>::count);
        int64_t warps =
            cuda_min(CUDA_WARPS_MAX, cuda_parts(vectors, CUDA_WARP));
        CUDA_LAUNCH(cross_entropy<T>, cuda_blocks(n),
                    (unsigned)(warps * CUDA_WARP), 0, cuda_stream(ctx), vocab,
                    scale, *target, (T *)logits, labels, gradient, losses);
        return cuda_launched("cross_entropy");
    });
}
