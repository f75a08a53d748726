/* DecoupledLionW: 20 bytes per parameter with gradients in fp32, 18 in bf16, 2
 * more with a copy. Every weight moves by the rate, up or down: only the sign of
 * what momentum and gradient make together counts. */
#include "kernels/cuda/cuda_update.h"

struct lion_update {
    static const int moments = 1;
    float keep; /* 1 - decay */
    float beta1, rest1, beta2, rest2;
    float scale; /* of the gradient */
    float rate;

    __device__ void operator()(float gradient, float &weight, float &mean,
                               float &) const
    {
        float slope = gradient * scale;
        float toward = fmaf(rest1, slope, mean * beta1);
        /* rate * sign(toward); 0 stays 0 and a NaN a NaN */
        float step = toward > 0 ? rate : toward < 0 ? -rate : toward;
        weight = weight * keep - step;
        mean = fmaf(rest2, slope, mean * beta2);
    }
};

enum err CUDA_SYMBOL(lion) KERNEL_UPDATE_LIKE(lion)
{
    const struct lion_update f = { 1.0f - step->decay,
                                   step->beta1,
                                   1.0f - step->beta1,
                                   step->beta2,
                                   1.0f - step->beta2,
                                   step->grad_scale,
                                   step->lr };
    return cuda_update(ctx, dtype, "lion", n, f, p, g, m, step->copy);
}
