/* DecoupledAdamW in one pass: 28 bytes per parameter with gradients in fp32, 26
 * in bf16, 2 more with a copy, so the speed is memory's. */
#include "kernels/cuda/cuda_vec.h"

#define LANES 4

struct coefficients {
    float keep; /* 1 - decay */
    float beta1, rest1, beta2, rest2;
    float scale;   /* of the gradient */
    float rate;    /* lr / correction1 */
    float stretch; /* 1 / sqrt(correction2) */
    float eps;
};

template <class T>
static __global__ void adamw_step(int64_t n, struct coefficients c, float *p,
                                  const T *g, float *m, float *v,
                                  struct cuda_bf16 *copy)
{
    float weight[LANES], gradient[LANES], first[LANES], second[LANES];
    int64_t at = cuda_index() * LANES, left = n - at;
    if (left <= 0)
        return;
    cuda_load<LANES>(p + at, left, 0, weight);
    cuda_load<LANES>(m + at, left, 0, first);
    cuda_load<LANES>(v + at, left, 0, second);
    /* last, as bf16 becomes fp32 at once, which waits for it */
    cuda_load<LANES>(g + at, left, 0, gradient);
    for (int i = 0; i < LANES; i++) {
        float slope = gradient[i] * c.scale;
        first[i] = fmaf(c.rest1, slope, first[i] * c.beta1);
        second[i] = fmaf(c.rest2, slope * slope, second[i] * c.beta2);
        float divisor = fmaf(sqrtf(second[i]), c.stretch, c.eps);
        weight[i] = weight[i] * c.keep - c.rate * first[i] / divisor;
    }
    cuda_store<LANES>(m + at, left, first);
    cuda_store<LANES>(v + at, left, second);
    cuda_store<LANES>(p + at, left, weight);
    if (copy != NULL)
        cuda_store<LANES>(copy + at, left, weight);
}

template <class T>
static enum err adamw_run(const struct kernel_ctx *ctx, int64_t n,
                          struct coefficients c, float *p, const void *g,
                          float *m, float *v, void *copy)
{
    int64_t vectors = cuda_parts(n, LANES);
    unsigned threads = cuda_threads(vectors);
    CUDA_LAUNCH(adamw_step<T>, cuda_blocks(cuda_parts(vectors, threads)),
                threads, 0, cuda_stream(ctx), n, c, p, (const T *)g, m, v,
                (struct cuda_bf16 *)copy);
    return cuda_launched("adamw");
}

enum err CUDA_SYMBOL(adamw)(const struct kernel_ctx *ctx, enum dtype dtype,
                            int64_t n, const struct adamw *step, float *p,
                            const void *g, float *const m[UPDATE_MOMENTS])
{
    assert(step->correction1 > 0 && step->correction2 > 0);
    const struct coefficients c = { 1.0f - step->decay,
                                    step->beta1,
                                    1.0f - step->beta1,
                                    step->beta2,
                                    1.0f - step->beta2,
                                    step->grad_scale,
                                    step->lr / step->correction1,
                                    1.0f / sqrtf(step->correction2),
                                    step->eps };
    if (n == 0)
        return ERR_OK;
    return CUDA_BY_DTYPE(dtype, "adamw", adamw_run, ctx, n, c, p, g, m[0], m[1],
                         step->copy);
}
