/* GELU with the exact erf (Hendrycks and Gimpel 2016). */
#include "kernels/cpu.h"
#include "kernels/cpu_math.h"

/* The standard normal distribution function. */
static inline vec vec_phi(vec x)
{
    return vec_fma(vec_erf(x * 0.70710678f), vec_splat(0.5f), vec_splat(0.5f));
}

static inline vec vec_gelu_slope(vec x)
{
    vec density = vec_exp(x * x * -0.5f) * 0.39894228f;
    return vec_fma(x, density, vec_phi(x));
}

enum err CPU_SYMBOL(activation_forward)(const struct kernel_ctx *ctx,
                                        enum dtype dtype, enum activation act,
                                        int64_t n, const void *in, void *out)
{
    const float *x = in;
    float *y = out;
    enum err rc = cpu_require_f32(dtype, "activation_forward");
    assert(act == ACTIVATION_GELU);
    (void)act;
    if (rc != ERR_OK)
        return rc;
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        vec v = vec_load(x + i, n - i);
        vec_store(y + i, n - i, v * vec_phi(v));
    }
    return ERR_OK;
}

enum err CPU_SYMBOL(activation_backward)(const struct kernel_ctx *ctx,
                                         enum dtype dtype, enum activation act,
                                         int64_t n, const void *in,
                                         const void *dout, void *din)
{
    const float *x = in;
    const float *dy = dout;
    float *dx = din;
    enum err rc = cpu_require_f32(dtype, "activation_backward");
    assert(act == ACTIVATION_GELU);
    (void)act;
    if (rc != ERR_OK)
        return rc;
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        vec slope = vec_gelu_slope(vec_load(x + i, n - i));
        vec_store(dx + i, n - i, vec_load(dy + i, n - i) * slope);
    }
    return ERR_OK;
}
