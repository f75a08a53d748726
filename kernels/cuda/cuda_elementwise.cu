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

enum err CUDA_SYMBOL(add)(const struct kernel_ctx *ctx, enum dtype dtype,
                          int64_t n, const void *a, float scale, const void *b,
                          void *out)
{
    const struct scaled_sum f = { scale };
    return CUDA_BY_DTYPE(dtype, "add", cuda_map, ctx, "add", n, f, a, b, out);
}

enum err CUDA_SYMBOL(accumulate)(const struct kernel_ctx *ctx, enum dtype dtype,
                                 int64_t n, const void *x, void *y)
{
    const struct scaled_sum f = { 1 };
    return CUDA_BY_DTYPE(dtype, "accumulate", cuda_map, ctx, "accumulate", n, f,
                         y, x, y);
}

enum err CUDA_SYMBOL(zero)(const struct kernel_ctx *ctx, enum dtype dtype,
                           int64_t n, void *x)
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
    bits &= 0xffff0000u;
    memcpy(&limit, &bits, sizeof(bits));
    return limit;
}

enum err CUDA_SYMBOL(clip_forward)(const struct kernel_ctx *ctx,
                                   enum dtype dtype, int64_t n, float limit,
                                   void *x)
{
    assert(limit > 0);
    const struct clip f = { limit_of(dtype, limit) };
    return CUDA_BY_DTYPE(dtype, "clip_forward", cuda_map, ctx, "clip_forward",
                         n, f, x, NULL, x);
}

enum err CUDA_SYMBOL(clip_backward)(const struct kernel_ctx *ctx,
                                    enum dtype dtype, int64_t n, float limit,
                                    const void *x, void *dx)
{
    assert(limit > 0);
    const struct clip_slope f = { limit_of(dtype, limit) };
    return CUDA_BY_DTYPE(dtype, "clip_backward", cuda_map, ctx, "clip_backward",
                         n, f, x, dx, dx);
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

enum err CUDA_SYMBOL(activation_forward)(const struct kernel_ctx *ctx,
                                         enum dtype dtype, enum activation act,
                                         int64_t n, const void *x, void *y)
{
    const struct activate f = { act };
    return CUDA_BY_DTYPE(dtype, "activation_forward", cuda_map, ctx,
                         "activation_forward", n, f, x, NULL, y);
}

enum err CUDA_SYMBOL(activation_backward)(const struct kernel_ctx *ctx,
                                          enum dtype dtype, enum activation act,
                                          int64_t n, const void *x,
                                          const void *dy, void *dx)
{
    const struct activate_slope f = { act };
    return CUDA_BY_DTYPE(dtype, "activation_backward", cuda_map, ctx,
                         "activation_backward", n, f, x, dy, dx);
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
    for (int64_t at = (int64_t)threadIdx.x * lanes; at < width;
         at += (int64_t)blockDim.x * lanes) {
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
    for (int64_t at = (int64_t)threadIdx.x * lanes; at < width;
         at += (int64_t)blockDim.x * lanes) {
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

template <class T>
static enum err glu_forward_run(const struct kernel_ctx *ctx,
                                enum activation act, int64_t n, int64_t width,
                                int64_t stride, const void *gate,
                                const void *up, void *y)
{
    unsigned threads = cuda_threads(cuda_parts(width, cuda_lanes<T>::count));
    CUDA_LAUNCH(glu_forward<T>, cuda_blocks(n), threads, 0, cuda_stream(ctx),
                act, width, stride, (const T *)gate, (const T *)up, (T *)y);
    return cuda_launched("glu_forward");
}

template <class T>
static enum err
glu_backward_run(const struct kernel_ctx *ctx, enum activation act, int64_t n,
                 int64_t width, int64_t stride, const void *gate,
                 const void *up, const void *dy, void *dgate, void *dup)
{
    unsigned threads = cuda_threads(cuda_parts(width, cuda_lanes<T>::count));
    CUDA_LAUNCH(glu_backward<T>, cuda_blocks(n), threads, 0, cuda_stream(ctx),
                act, width, stride, (const T *)gate, (const T *)up,
                (const T *)dy, (T *)dgate, (T *)dup);
    return cuda_launched("glu_backward");
}

enum err CUDA_SYMBOL(glu_forward)(const struct kernel_ctx *ctx,
                                  enum dtype dtype, enum activation act,
                                  int64_t n, int64_t width, int64_t stride,
                                  const void *gate, const void *up, void *y)
{
    assert(width > 0 && stride >= width);
    if (n == 0)
        return ERR_OK;
    return CUDA_BY_DTYPE(dtype, "glu_forward", glu_forward_run, ctx, act, n,
                         width, stride, gate, up, y);
}

enum err CUDA_SYMBOL(glu_backward)(const struct kernel_ctx *ctx,
                                   enum dtype dtype, enum activation act,
                                   int64_t n, int64_t width, int64_t stride,
                                   const void *gate, const void *up,
                                   const void *dy, void *dgate, void *dup)
{
    assert(width > 0 && stride >= width);
    if (n == 0)
        return ERR_OK;
    return CUDA_BY_DTYPE(dtype, "glu_backward", glu_backward_run, ctx, act, n,
                         width, stride, gate, up, dy, dgate, dup);
}
