/* GELU with the exact erf and with a tanh, and SiLU. */
#include "kernels/cpu/cpu_activation.h"
#include "kernels/cpu/cpu.h"

/* Elements of one task. */
#define BLOCK 1024

/* Inline, so that `act` is a constant in each copy of the loop. */
static inline void block_forward(enum activation act, int64_t n, const float *x,
                                 float *y)
{
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        vec v = vec_load(x + i, n - i);
        vec slope;
        vec_store(y + i, n - i, v * vec_gate(act, v, &slope));
    }
}

static inline void block_backward(enum activation act, int64_t n,
                                  const float *x, const float *dy, float *dx)
{
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        vec v = vec_load(x + i, n - i);
        vec slope;
        vec gate = vec_gate(act, v, &slope);
        vec_store(dx + i, n - i,
                  vec_load(dy + i, n - i) * vec_fma(v, slope, gate));
    }
}

enum err CPU_SYMBOL(activation_forward) KERNEL_LIKE(activation_forward)
{
    TRY(cpu_require_f32(dtype, "activation_forward"));
    assert(n >= 0);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t count = cpu_min(BLOCK, n - at);
#define FORWARD(act)                                                           \
    block_forward(act, count, (const float *)x + at, (float *)y + at)
        VEC_BY_ACTIVATION(act, FORWARD)
    }
    return ERR_OK;
}

enum err CPU_SYMBOL(activation_backward) KERNEL_LIKE(activation_backward)
{
    TRY(cpu_require_f32(dtype, "activation_backward"));
    assert(n >= 0);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t count = cpu_min(BLOCK, n - at);
#define BACKWARD(act)                                                          \
    block_backward(act, count, (const float *)x + at, (const float *)dy + at,  \
                   (float *)dx + at)
        VEC_BY_ACTIVATION(act, BACKWARD)
    }
    return ERR_OK;
}
