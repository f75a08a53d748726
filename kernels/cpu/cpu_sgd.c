/* DecoupledSGDW in one pass: 12 bytes read and 8 written per parameter. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_bf16.h"

struct coefficients {
    vec keep; /* 1 - decay */
    vec momentum, fresh;
    vec scale; /* of the gradient */
    vec rate;
    bool nesterov;
};

static void sgd_block(const struct coefficients *c, int64_t at, int64_t end,
                      float *p, const float *g, float *m, uint16_t *copy)
{
    for (int64_t i = at; i < end; i += VEC_LANES) {
        int64_t left = end - i;
        vec gradient = vec_load(g + i, left) * c->scale;
        vec sum =
            vec_fma(c->momentum, vec_load(m + i, left), gradient * c->fresh);
        vec toward = c->nesterov ? vec_fma(c->momentum, sum, gradient) : sum;
        vec fresh = vec_load(p + i, left) * c->keep - c->rate * toward;
        vec_store(m + i, left, sum);
        vec_store(p + i, left, fresh);
        if (copy != NULL)
            vec_store_bf16(copy + i, left, fresh);
    }
}

enum err CPU_SYMBOL(sgd) KERNEL_UPDATE_LIKE(sgd)
{
    TRY(cpu_require_f32(dtype, "sgd"));
    const struct coefficients c = {
        .keep = vec_splat(1.0f - step->decay),
        .momentum = vec_splat(step->momentum),
        .fresh = vec_splat(step->fresh),
        .scale = vec_splat(step->grad_scale),
        .rate = vec_splat(step->lr),
        .nesterov = step->nesterov,
    };
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t at = 0; at < n; at += KERNEL_CHUNK)
        sgd_block(&c, at, cpu_min(n, at + KERNEL_CHUNK), p, g, m[0],
                  step->copy);
    return ERR_OK;
}
