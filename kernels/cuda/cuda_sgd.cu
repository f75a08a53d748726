/* DecoupledSGDW in one pass: 20 bytes per parameter with gradients in fp32, 18
 * in bf16, 2 more with a copy, so the speed is memory's. */
#include "kernels/cuda/cuda_vec.h"

#define LANES 4

struct coefficients {
    float keep; /* 1 - decay */
    float momentum, fresh;
    float scale; /* of the gradient */
    float rate;
    bool nesterov;
};

template <class T>
static __global__ void sgd_step(int64_t n, struct coefficients c, float *p,
                                const T *g, float *m, struct cuda_bf16 *copy)
{
    float weight[LANES], gradient[LANES], sum[LANES];
    int64_t at = cuda_index() * LANES, left = n - at;
    if (left <= 0)
        return;
    cuda_load<LANES>(p + at, left, 0, weight);
    cuda_load<LANES>(m + at, left, 0, sum);
    /* last, as bf16 becomes fp32 at once, which waits for it */
    cuda_load<LANES>(g + at, left, 0, gradient);
    for (int i = 0; i < LANES; i++) {
        float slope = gradient[i] * c.scale;
        sum[i] = fmaf(c.momentum, sum[i], slope * c.fresh);
        float toward = c.nesterov ? fmaf(c.momentum, sum[i], slope) : sum[i];
        weight[i] = weight[i] * c.keep - c.rate * toward;
    }
    cuda_store<LANES>(m + at, left, sum);
    cuda_store<LANES>(p + at, left, weight);
    if (copy != NULL)
        cuda_store<LANES>(copy + at, left, weight);
}

template <class T>
static enum err sgd_run(const struct kernel_ctx *ctx, int64_t n,
                        struct coefficients c, float *p, const void *g,
                        float *m, void *copy)
{
    int64_t vectors = cuda_parts(n, LANES);
    unsigned threads = cuda_threads(vectors);
    CUDA_LAUNCH(sgd_step<T>, cuda_blocks(cuda_parts(vectors, threads)), threads,
                0, cuda_stream(ctx), n, c, p, (const T *)g, m,
                (struct cuda_bf16 *)copy);
    return cuda_launched("sgd");
}

enum err CUDA_SYMBOL(sgd)(const struct kernel_ctx *ctx, enum dtype dtype,
                          int64_t n, const struct sgd *step, float *p,
                          const void *g, float *const m[UPDATE_MOMENTS])
{
    const struct coefficients c = { 1.0f - step->decay, step->momentum,
                                    step->fresh,        step->grad_scale,
                                    step->lr,           step->nesterov };
    if (n == 0)
        return ERR_OK;
    return CUDA_BY_DTYPE(dtype, "sgd", sgd_run, ctx, n, c, p, g, m[0],
                         step->copy);
}
