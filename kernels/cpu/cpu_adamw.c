/* DecoupledAdamW in one pass: 16 bytes read and 12 written per parameter, so
 * the speed is memory's. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_bf16.h"

#include <math.h>

struct coefficients {
    vec keep; /* 1 - decay */
    vec beta1, rest1, beta2, rest2;
    vec scale;   /* of the gradient */
    vec rate;    /* lr / correction1 */
    vec stretch; /* 1 / sqrt(correction2) */
    vec eps;
};

static struct coefficients coefficients_of(const struct adamw *step)
{
    return (struct coefficients){
        .keep = vec_splat(1.0f - step->decay),
        .beta1 = vec_splat(step->beta1),
        .rest1 = vec_splat(1.0f - step->beta1),
        .beta2 = vec_splat(step->beta2),
        .rest2 = vec_splat(1.0f - step->beta2),
        .scale = vec_splat(step->grad_scale),
        .rate = vec_splat(step->lr / step->correction1),
        .stretch = vec_splat(1.0f / sqrtf(step->correction2)),
        .eps = vec_splat(step->eps),
    };
}

static void adamw_block(const struct coefficients *c, int64_t at, int64_t end,
                        float *p, const float *g, float *m, float *v,
                        uint16_t *copy)
{
    for (int64_t i = at; i < end; i += VEC_LANES) {
        int64_t left = end - i;
        vec gradient = vec_load(g + i, left) * c->scale;
        vec first =
            vec_fma(c->rest1, gradient, vec_load(m + i, left) * c->beta1);
        vec second = vec_fma(c->rest2, gradient * gradient,
                             vec_load(v + i, left) * c->beta2);
        vec divisor = vec_fma(vec_sqrt(second), c->stretch, c->eps);
        vec kept = vec_load(p + i, left) * c->keep;
        vec_store(m + i, left, first);
        vec_store(v + i, left, second);
        vec fresh = kept - c->rate * first / divisor;
        vec_store(p + i, left, fresh);
        if (copy != NULL)
            vec_store_bf16(copy + i, left, fresh);
    }
}

enum err CPU_SYMBOL(adamw) KERNEL_UPDATE_LIKE(adamw)
{
    assert(step->correction1 > 0 && step->correction2 > 0);
    TRY(cpu_require_f32(dtype, "adamw"));
    assert(n >= 0 && p != m[0] && p != m[1] && m[0] != m[1]);
    const struct coefficients c = coefficients_of(step);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t at = 0; at < n; at += KERNEL_CHUNK)
        adamw_block(&c, at, cpu_min(n, at + KERNEL_CHUNK), p, g, m[0], m[1],
                    step->copy);
    return ERR_OK;
}
