/* Elementwise kernels. */
#pragma once

#include "kernels/cuda/cuda_held.h"

/* Vectors of a thread. */
#define CUDA_MAP_VECTORS 2

/* out = f(a, b) for n elements; `b` NULL: f(a, 0). Out may be a or b. F has
 * float operator()(float, float) on the device. */
template <class T, class F>
static __global__ void cuda_map_kernel(int64_t n, F f, const T *a, const T *b,
                                       T *out)
{
    const int lanes = cuda_lanes<T>::count;
    int64_t first = (int64_t)blockIdx.x * CUDA_MAP_VECTORS * blockDim.x;
    int64_t at = (first + threadIdx.x) * lanes, step = blockDim.x * lanes;
    struct cuda_held<T, CUDA_MAP_VECTORS> held, other;
    float x[lanes], y[lanes] = { 0 };
    cuda_hold(a + at, step, n - at, &held);
    if (b != NULL)
        cuda_hold(b + at, step, n - at, &other);
    CUDA_UNROLL
    for (int k = 0; k < CUDA_MAP_VECTORS; k++, at += step) {
        if (at >= n)
            return;
        cuda_held_values(held, k, x);
        if (b != NULL)
            cuda_held_values(other, k, y);
        for (int i = 0; i < lanes; i++)
            x[i] = f(x[i], y[i]);
        cuda_store<lanes>(out + at, n - at, x);
    }
}

template <class F>
static enum err cuda_map(const struct kernel_ctx *ctx, enum dtype dtype,
                         const char *op, int64_t n, F f, const void *a,
                         const void *b, void *out)
{
    if (n == 0)
        return ERR_OK;
    return cuda_by_dtype(dtype, op, [&](auto element) {
        typedef decltype(element) T;
        int64_t vectors = cuda_parts(n, cuda_lanes<T>::count);
        unsigned threads = cuda_threads(vectors);
        int64_t blocks = cuda_parts(vectors, CUDA_MAP_VECTORS * threads);
        auto map_kernel = cuda_map_kernel<T, F>;
        CUDA_LAUNCH(map_kernel, cuda_blocks(blocks), threads, 0,
                    cuda_stream(ctx), n, f, (const T *)a, (const T *)b,
                    (T *)out);
        return cuda_launched(op);
    });
}
