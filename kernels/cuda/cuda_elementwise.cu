/* Elementwise ops: sums, clipping, activations and gated units. */
#include "kernels/cuda/cuda_activation.h"
#include "kernels/cuda/cuda_map.h"

struct scaled_sum {
    float scale;
    __device__ float operator()(float a, float b) const
    {
        return fmaf(b, scale, a);
    }
};

enum err CUDA_SYMBOL(add) KERNEL_LIKE(add)
{
    const struct scaled_sum f = { scale };
    return cuda_map(ctx, dtype, "add", n, f, a, b, out);
}

enum err CUDA_SYMBOL(accumulate) KERNEL_LIKE(accumulate)
{
    const struct scaled_sum f = { 1 };
    return cuda_map(ctx, dtype, "accumulate", n, f, y, x, y);
}

enum err CUDA_SYMBOL(zero) KERNEL_LIKE(zero)
{
    cudaError_t code =
        cudaMemsetAsync(x, 0, (size_t)n * dtype_bytes(dtype), cuda_stream(ctx));
    if (code == cudaSuccess)
        return ERR_OK;
    (void)cudaGetLastError(); /* told here, so not by the next launch */
    return err_set(ERR_INTERNAL, "op zero: CUDA refused it: %s",
                   cudaGetErrorString(code));
}

/* A NaN fails every comparison and stays. */
struct clip {
    float limit;
    __device__ float operator()(float x, float) const
    {
        x = x > limit ? limit : x;
        return x < -limit ? -limit : x;
    }
};

struct clip_slope {
    float limit;
    __device__ float operator()(float x, float dx) const
    {
        return x >= limit || x <= -limit ? 0 : dx;
    }
};

/* A limit between two bf16 numbers becomes the lower one: clipped elements must
 * be found again by backward. */
static float limit_of(enum dtype dtype, float limit)
{
    uint32_t bits;
    if (dtype != DTYPE_BF16)
        return limit;
    memcpy(&bits, &limit, sizeof(bits));
    __asm__("" : "+r"(bits)); /* a fault of GCC 12.2: DESIGN.md */
    bits &= 0xffff0000u;
    memcpy(&limit, &bits, sizeof(bits));
    return limit;
}

enum err CUDA_SYMBOL(clip_forward) KERNEL_LIKE(clip_forward)
{
    assert(limit > 0);
    const struct clip f = { limit_of(dtype, limit) };
    return cuda_map(ctx, dtype, "clip_forward", n, f, x, NULL, x);
}

enum err CUDA_SYMBOL(clip_backward) KERNEL_LIKE(clip_backward)
{
    assert(limit > 0);
    const struct clip_slope f = { limit_of(dtype, limit) };
    return cuda_map(ctx, dtype, "clip_backward", n, f, x, dx, dx);
}

struct activate {
    enum activation act;
    __device__ float operator()(float x, float) const
    {
        float slope;
        return x * cuda_gate(act, x, &slope);
    }
};

struct activate_slope {
    enum activation act;
    __device__ float operator()(float x, float dy) const
    {
        float slope, gate = cuda_gate(act, x, &slope);
        return dy * fmaf(x, slope, gate);
    }
};

enum err CUDA_SYMBOL(activation_forward) KERNEL_LIKE(activation_forward)
{
    const struct activate f = { act };
    return cuda_map(ctx, dtype, "activation_forward", n, f, x, NULL, y);
}

enum err CUDA_SYMBOL(activation_backward) KERNEL_LIKE(activation_backward)
{
    const struct activate_slope f = { act };
    return cuda_map(ctx, dtype, "activation_backward", n, f, x, dy, dx);
}

/* --- gated units: a block per row --- */

template <class T>
static __global__ void glu_forward(enum activation act, int64_t width,
                                   int64_t stride, const T *gate, const T *up,
                                   T *y)
{
    const int lanes = cuda_lanes<T>::count;
    struct cuda_held<T, 1> held_gate, held_up;
    float g[lanes], u[lanes], slope;
    gate += blockIdx.x * stride;
    up += blockIdx.x * stride;
    y += blockIdx.x * width;
    CUDA_FOR_COLUMNS(at, width, lanes)
    {
        cuda_hold_one(gate + at, width - at, &held_gate);
        cuda_hold_one(up + at, width - at, &held_up);
        cuda_held_values(held_gate, 0, g);
        cuda_held_values(held_up, 0, u);
        for (int i = 0; i < lanes; i++)
            g[i] = g[i] * cuda_gate(act, g[i], &slope) * u[i];
        cuda_store<lanes>(y + at, width - at, g);
    }
}

/* Everything is loaded before the stores: dgate and dup may be gate and up. */
template <class T>
static __global__ void glu_backward(enum activation act, int64_t width,
                                    int64_t stride, const T *gate, const T *up,
                                    const T *dy, T *dgate, T *dup)
{
    const int lanes = cuda_lanes<T>::count;
    struct cuda_held<T, 1> held_gate, held_up, held_dy;
    float g[lanes], u[lanes], out[lanes], slope;
    int64_t row = blockIdx.x * stride;
    dy += blockIdx.x * width;
    CUDA_FOR_COLUMNS(at, width, lanes)
    {
        int64_t left = width - at;
        cuda_hold_one(gate + row + at, left, &held_gate);
        cuda_hold_one(up + row + at, left, &held_up);
        cuda_hold_one(dy + at, left, &held_dy);
        cuda_held_values(held_gate, 0, g);
        cuda_held_values(held_up, 0, u);
        cuda_held_values(held_dy, 0, out);
        for (int i = 0; i < lanes; i++) {
            float x = g[i];
            float open = cuda_gate(act, x, &slope);
            g[i] = out[i] * u[i] * fmaf(x, slope, open);
            u[i] = out[i] * (x * open);
        }
        cuda_store<lanes>(dgate + row + at, left, g);
        cuda_store<lanes>(dup + row + at, left, u);
    }
}

enum err CUDA_SYMBOL(glu_forward) KERNEL_LIKE(glu_forward)
{
    assert(width > 0 && stride >= width);
    if (n == 0)
        return ERR_OK;
    return cuda_by_dtype(dtype, "glu_forward", [&](auto element) {
        typedef decltype(element) T;
        unsigned threads =
            cuda_threads(cuda_parts(width, cuda_lanes<T>::count));
        CUDA_LAUNCH(glu_forward<T>, cuda_blocks(n), threads, 0,
                    cuda_stream(ctx), act, width, stride, (const T *)gate,
                    (const T *)up, (T *)y);
        return cuda_launched("glu_forward");
    });
}

enum err CUDA_SYMBOL(glu_backward) KERNEL_LIKE(glu_backward)
{
    assert(width > 0 && stride >= width);
    if (n == 0)
        return ERR_OK;
    return cuda_by_dtype(dtype, "glu_backward", [&](auto element) {
        typedef decltype(element) T;
        unsigned threads =
            cuda_threads(cuda_parts(width, cuda_lanes<T>::count));
        CUDA_LAUNCH(glu_backward<T>, cuda_blocks(n), threads, 0,
                    cuda_stream(ctx), act, width, stride, (const T *)gate,
                    (const T *)up, (const T *)dy, (T *)dgate, (T *)dup);
        return cuda_launched("glu_backward");
    });
}
