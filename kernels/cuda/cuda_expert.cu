/* Rows on their way to experts and back: a block per row. Nobody adds to a row
 * that another writes: tokens are gathered by who reads them, and a token's
 * results are combined by the token, over its top_k choices in their order. */
#include "kernels/cuda/cuda_held.h"
#include "kernels/cuda/cuda_reduce.h"

/* Columns of this thread: the first, and the step to the next. */
#define FOR_COLUMNS(at, d, lanes)                                              \
    for (int64_t at = (int64_t)threadIdx.x * (lanes); at < (d);                \
         at += (int64_t)blockDim.x * (lanes))

template <class T>
static __global__ void gather(int top_k, int64_t d, const int32_t *source,
                              const T *x, T *out)
{
    const int lanes = cuda_lanes<T>::count;
    float v[lanes];
    x += source[blockIdx.x] / top_k * d;
    out += blockIdx.x * d;
    FOR_COLUMNS(at, d, lanes)
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
    FOR_COLUMNS(at, d, lanes)
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
    FOR_COLUMNS(at, width, lanes)
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

template <class T>
static enum err gather_run(const struct kernel_ctx *ctx,
                           const struct route *route, int64_t d,
                           const int32_t *source, const void *x, void *out)
{
    CUDA_LAUNCH(gather<T>, cuda_blocks(route->n * route->top_k),
                row_threads<T>(d), 0, cuda_stream(ctx), route->top_k, d, source,
                (const T *)x, (T *)out);
    return cuda_launched("expert_gather");
}

template <class T>
static enum err combine_run(const struct kernel_ctx *ctx,
                            const struct route *route, int64_t d,
                            const int32_t *place, const float *weights,
                            const void *y, void *out)
{
    CUDA_LAUNCH(combine<T>, cuda_blocks(route->n), row_threads<T>(d), 0,
                cuda_stream(ctx), route->top_k, d, place, weights, (const T *)y,
                (T *)out);
    return cuda_launched("expert_combine");
}

template <class T>
static enum err weigh_run(const struct kernel_ctx *ctx,
                          const struct route *route, int64_t width,
                          const int32_t *source, const float *weights, void *h,
                          void *dh, float *dweights)
{
    CUDA_LAUNCH(weigh<T>, cuda_blocks(route->n * route->top_k),
                row_threads<T>(width), 0, cuda_stream(ctx), width, source,
                weights, (T *)h, (T *)dh, dweights);
    return cuda_launched("expert_weigh");
}

enum err CUDA_SYMBOL(expert_gather)(const struct kernel_ctx *ctx,
                                    enum dtype dtype, const struct route *route,
                                    int64_t d, const int32_t *source,
                                    const void *x, void *out)
{
    if (route->n == 0)
        return ERR_OK;
    return CUDA_BY_DTYPE(dtype, "expert_gather", gather_run, ctx, route, d,
                         source, x, out);
}

enum err CUDA_SYMBOL(expert_combine)(const struct kernel_ctx *ctx,
                                     enum dtype dtype,
                                     const struct route *route, int64_t d,
                                     const int32_t *place, const float *weights,
                                     const void *y, void *out)
{
    if (route->n == 0)
        return ERR_OK;
    return CUDA_BY_DTYPE(dtype, "expert_combine", combine_run, ctx, route, d,
                         place, weights, y, out);
}

enum err CUDA_SYMBOL(expert_weigh)(const struct kernel_ctx *ctx,
                                   enum dtype dtype, const struct route *route,
                                   int64_t width, const int32_t *source,
                                   const float *weights, void *h, void *dh,
                                   float *dweights)
{
    if (route->n == 0)
        return ERR_OK;
    return CUDA_BY_DTYPE(dtype, "expert_weigh", weigh_run, ctx, route, width,
                         source, weights, h, dh, dweights);
}
