/* One pass over weights and moments: every element is read once and written
 * once, so an update's time is its bytes over the memory's bandwidth, whatever
 * it computes in between. An optimizer is a structure with its coefficients and
 *
 *     static const int moments;   1 or 2
 *     operator()(gradient, weight, first moment, second moment) const
 *
 * which changes the last three; with one moment the second is the first. */
#pragma once

#include "kernels/cuda/cuda_vec.h"

#define CUDA_UPDATE_LANES 4

template <class T, class F>
static __global__ void cuda_update_step(int64_t n, F f, float *p, const T *g,
                                        float *first, float *second,
                                        struct cuda_bf16 *copy)
{
    const int lanes = CUDA_UPDATE_LANES, last = F::moments - 1;
    float weight[lanes], gradient[lanes], moment[F::moments][lanes];
    int64_t at = cuda_index() * lanes, left = n - at;
    if (left <= 0)
        return;
    cuda_load<lanes>(p + at, left, 0, weight);
    cuda_load<lanes>(first + at, left, 0, moment[0]);
    if (last > 0)
        cuda_load<lanes>(second + at, left, 0, moment[last]);
    /* last, as bf16 becomes fp32 at once, which waits for it */
    cuda_load<lanes>(g + at, left, 0, gradient);
    for (int i = 0; i < lanes; i++)
        f(gradient[i], weight[i], moment[0][i], moment[last][i]);
    cuda_store<lanes>(first + at, left, moment[0]);
    if (last > 0)
        cuda_store<lanes>(second + at, left, moment[last]);
    cuda_store<lanes>(p + at, left, weight);
    if (copy != NULL)
        cuda_store<lanes>(copy + at, left, weight);
}

template <class F>
static enum err cuda_update(const struct kernel_ctx *ctx, enum dtype dtype,
                            const char *op, int64_t n, F f, float *p,
                            const void *g, float *const m[UPDATE_MOMENTS],
                            void *copy)
{
    int64_t vectors = cuda_parts(n, CUDA_UPDATE_LANES);
    unsigned threads = cuda_threads(vectors);
    if (n == 0)
        return ERR_OK;
    return cuda_by_dtype(dtype, op, [&](auto element) {
        typedef decltype(element) T;
        auto kernel = cuda_update_step<T, F>;
        assert(n > 0 && p != m[0] && (F::moments == 1 || m[0] != m[1]));
        CUDA_LAUNCH(kernel, cuda_blocks(cuda_parts(vectors, threads)), threads,
                    0, cuda_stream(ctx), n, f, p, (const T *)g, m[0], m[1],
                    (struct cuda_bf16 *)copy);
        return cuda_launched(op);
    });
}
