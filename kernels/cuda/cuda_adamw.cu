/* DecoupledAdamW: 28 bytes per parameter with gradients in fp32, 26 in bf16, 2
 * more with a copy. What is the same for all elements, the corrections of
 * moments that began at zero, is computed once on the host. */
#include "kernels/cuda/cuda_update.h"

struct adamw_update {
    static const int moments = 2;
    float keep; /* 1 - decay */
    float beta1, rest1, beta2, rest2;
    float scale;   /* of the gradient */
    float rate;    /* lr / correction1 */
    float stretch; /* 1 / sqrt(correction2) */
    float eps;

    __device__ void operator()(float gradient, float &weight, float &first,
                               float &second) const
    {
        float slope = gradient * scale;
        first = fmaf(rest1, slope, first * beta1);
        second = fmaf(rest2, slope * slope, second * beta2);
        float divisor = fmaf(sqrtf(second), stretch, eps);
        weight = weight * keep - rate * first / divisor;
    }
};

enum err CUDA_SYMBOL(adamw) KERNEL_UPDATE_LIKE(adamw)
{
    assert(step->correction1 > 0 && step->correction2 > 0);
    const struct adamw_update f = { 1.0f - step->decay,
                                    step->beta1,
                                    1.0f - step->beta1,
                                    step->beta2,
                                    1.0f - step->beta2,
                                    step->grad_scale,
                                    step->lr / step->correction1,
                                    1.0f / sqrtf(step->correction2),
                                    step->eps };
    return cuda_update(ctx, dtype, "adamw", n, f, p, g, m, step->copy);
}
