/* DecoupledSGDW: 20 bytes per parameter with gradients in fp32, 18 in bf16, 2
 * more with a copy. */
#include "kernels/cuda/cuda_update.h"

struct sgd_update {
    static const int moments = 1;
    float keep; /* 1 - decay */
    float momentum, fresh;
    float scale; /* of the gradient */
    float rate;
    bool nesterov;

    __device__ void operator()(float gradient, float &weight, float &sum,
                               float &) const
    {
        float slope = gradient * scale;
        sum = fmaf(momentum, sum, slope * fresh);
        float toward = nesterov ? fmaf(momentum, sum, slope) : sum;
        weight = weight * keep - rate * toward;
    }
};

enum err CUDA_SYMBOL(sgd) KERNEL_UPDATE_LIKE(sgd)
{
    const struct sgd_update f = { 1.0f - step->decay, step->momentum,
                                  step->fresh,        step->grad_scale,
                                  step->lr,           step->nesterov };
    return cuda_update(ctx, dtype, "sgd", n, f, p, g, m, step->copy);
}
