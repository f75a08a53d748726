/* DecoupledLionW in one pass: 12 bytes read and 8 written per parameter. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_bf16.h"

struct coefficients {
    vec keep; /* 1 - decay */
    vec beta1, rest1, beta2, rest2;
    vec scale; /* of the gradient */
    vec rate;
};

/* rate * sign(x); 0 stays 0 and a NaN a NaN. */
static inline vec signed_rate(vec x, vec rate)
{
    vec down = vec_select(x < 0, -rate, x);
    return vec_select(x > 0, rate, down);
}

static void lion_block(const struct coefficients *c, int64_t at, int64_t end,
                       float *p, const float *g, float *m, uint16_t *copy)
{
    for (int64_t i = at; i < end; i += VEC_LANES) {
        int64_t left = end - i;
        vec gradient = vec_load(g + i, left) * c->scale;
        vec before = vec_load(m + i, left);
        vec mean = vec_fma(c->rest1, gradient, before * c->beta1);
        vec kept = vec_load(p + i, left) * c->keep;
        vec fresh = kept - signed_rate(mean, c->rate);
        vec_store(m + i, left, vec_fma(c->rest2, gradient, before * c->beta2));
        vec_store(p + i, left, fresh);
        if (copy != NULL)
            vec_store_bf16(copy + i, left, fresh);
    }
}

enum err CPU_SYMBOL(lion) KERNEL_UPDATE_LIKE(lion)
{
    TRY(cpu_require_f32(dtype, "lion"));
    assert(n >= 0 && p != m[0]);
    const struct coefficients c = {
        .keep = vec_splat(1.0f - step->decay),
        .beta1 = vec_splat(step->beta1),
        .rest1 = vec_splat(1.0f - step->beta1),
        .beta2 = vec_splat(step->beta2),
        .rest2 = vec_splat(1.0f - step->beta2),
        .scale = vec_splat(step->grad_scale),
        .rate = vec_splat(step->lr),
    };
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t at = 0; at < n; at += KERNEL_CHUNK)
        lion_block(&c, at, cpu_min(n, at + KERNEL_CHUNK), p, g, m[0],
                   step->copy);
    return ERR_OK;
}
