/* Rows on their way to experts and back: a block per row. Nobody adds to a row
 * that another writes: tokens are gathered by who reads them, and a token's
 * results are combined by the token, over its top_k choices in their order. */
#include "kernels/cuda/cuda_held.h"
#include "kernels/cuda/cuda_reduce.h"

template <class T>
static __global__ void gather(int top_k, int64_t d, const int32_t *source,
                              const T *x, T *out)
{
    const int lanes = cuda_lanes<T>::count;
    float v[lanes];
    x += source[blockIdx.x] / top_k * d;
    out += blockIdx.x * d;
    CUDA_FOR_COLUMNS(at, d, lanes)
    {
        cuda_load<lanes>(x + at, d - at, 0, v);
        cuda_store<lanes>(out + at, d - at, v);
    }
}

template <class T>
static __global__ void combine(int top_k, int64_t d, const int32_t *place,
                               const float *weights, const T *y, T *out)
{
    const int lanes = cuda_lanes<T>::count;
    float v[lanes];
    place += (int64_t)blockIdx.x * top_k;
    if (weights != NULL)
        weights += (int64_t)blockIdx.x * top_k;
    out += blockIdx.x * d;
    CUDA_FOR_COLUMNS(at, d, lanes)
    {
        float sum[lanes] = { 0 };
        for (int j = 0; j < top_k; j++) {
            float weight = weights == NULL ? 1.0f : weights[j];
            cuda_load<lanes>(y + place[j] * d + at, d - at, 0, v);
            for (int i = 0; i < lanes; i++)
                sum[i] = fmaf(weight, v[i], sum[i]);
        }
        cuda_store<lanes>(out + at, d - at, sum);
    }
}

template <class T>
static __global__ void weigh(int64_t width, const int32_t *source,
                             const float *weights, T *h, T *dh, float *dweights)
{
    const int lanes = cuda_lanes<T>::count;
    int32_t choice = source[blockIdx.x];
    float weight = weights[choice], dot = 0;
    struct cuda_held<T, 1> held_h, held_dh;
    float a[lanes], b[lanes];
    h += blockIdx.x * width;
    dh += blockIdx.x * width;
    CUDA_FOR_COLUMNS(at, width, lanes)
    {
        cuda_hold_one(h + at, width - at, &held_h);
        cuda_hold_one(dh + at, width - at, &held_dh);
        cuda_held_values(held_h, 0, a);
        cuda_held_values(held_dh, 0, b);
        for (int i = 0; i < lanes; i++) {
            dot = fmaf(a[i], b[i], dot);
            a[i] *= weight;
            b[i] *= weight;
        }
        cuda_store<lanes>(h + at, width - at, a);
        cuda_store<lanes>(dh + at, width - at, b);
    }
    dot = cuda_team_sum((int)(blockDim.x / CUDA_WARP), dot);
    if (threadIdx.x == 0)
        dweights[choice] = dot;
}

template <class T> static unsigned row_threads(int64_t d)
{
    return cuda_threads(cuda_parts(d, cuda_lanes<T>::count));
}

enum err CUDA_SYMBOL(expert_gather) KERNEL_LIKE(expert_gather)
{
    if (route->n == 0)
        return ERR_OK;
    return cuda_by_dtype(dtype, "expert_gather", [&](auto element) {
        typedef decltype(element) T;
        CUDA_LAUNCH(gather<T>, cuda_blocks(route->n * route->top_k),
                    row_threads<T>(d), 0, cuda_stream(ctx), route->top_k, d,
                    source, (const T *)x, (T *)out);
        return cuda_launched("expert_gather");
    });
}

enum err CUDA_SYMBOL(expert_combine) KERNEL_LIKE(expert_combine)
{
    if (route->n == 0)
        return ERR_OK;
    return cuda_by_dtype(dtype, "expert_combine", [&](auto element) {
        typedef decltype(element) T;
        CUDA_LAUNCH(combine<T>, cuda_blocks(route->n), row_threads<T>(d), 0,
                    cuda_stream(ctx), route->top_k, d, place, weights,
                    (const T *)y, (T *)out);
        return cuda_launched("expert_combine");
    });
}

enum err CUDA_SYMBOL(expert_weigh) KERNEL_LIKE(expert_weigh)
{
    if (route->n == 0)
        return ERR_OK;
    return cuda_by_dtype(dtype, "expert_weigh", [&](auto element) {
        typedef decltype(element) T;
        CUDA_LAUNCH(weigh<T>, cuda_blocks(route->n * route->top_k),
                    row_threads<T>(width), 0, cuda_stream(ctx), width, source,
                    weights, (T *)h, (T *)dh, dweights);
        return cuda_launched("expert_weigh");
    });
}
