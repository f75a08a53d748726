/* Gated linear units, forward and backward. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_activation.h"

/* Columns of one task: a single row must feed all threads too. */
#define BLOCK 1024

/* Inline, so that `act` is a constant in each copy of the loop. */
static inline void block_forward(enum activation act, int64_t n,
                                 const float *gate, const float *up, float *y)
{
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        vec v = vec_load(gate + i, n - i);
        vec slope;
        vec active = v * vec_gate(act, v, &slope);
        vec_store(y + i, n - i, active * vec_load(up + i, n - i));
    }
}

/* Everything is loaded before the stores: dgate and dup may be gate and up. */
static inline void block_backward(enum activation act, int64_t n,
                                  const float *gate, const float *up,
                                  const float *dy, float *dgate, float *dup)
{
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        int64_t left = n - i;
        vec v = vec_load(gate + i, left);
        vec u = vec_load(up + i, left);
        vec out = vec_load(dy + i, left);
        vec slope;
        vec g = vec_gate(act, v, &slope);
        vec_store(dgate + i, left, out * u * vec_fma(v, slope, g));
        vec_store(dup + i, left, out * (v * g));
    }
}

enum err CPU_SYMBOL(glu_forward) KERNEL_LIKE(glu_forward)
{
    assert(width > 0 && stride >= width);
    TRY(cpu_require_f32(dtype, "glu_forward"));
    int64_t blocks = cpu_parts(width, BLOCK);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t task = 0; task < n * blocks; task++) {
        int64_t row = task / blocks, at = task % blocks * BLOCK;
        int64_t count = cpu_min(BLOCK, width - at);
        const float *g = (const float *)gate + row * stride + at;
        const float *u = (const float *)up + row * stride + at;
        float *out = (float *)y + row * width + at;
#define FORWARD(act) block_forward(act, count, g, u, out)
        VEC_BY_ACTIVATION(act, FORWARD)
    }
    return ERR_OK;
}

enum err CPU_SYMBOL(glu_backward) KERNEL_LIKE(glu_backward)
{
    assert(width > 0 && stride >= width);
    TRY(cpu_require_f32(dtype, "glu_backward"));
    int64_t blocks = cpu_parts(width, BLOCK);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t task = 0; task < n * blocks; task++) {
        int64_t row = task / blocks, at = task % blocks * BLOCK;
        int64_t count = cpu_min(BLOCK, width - at);
        const float *g = (const float *)gate + row * stride + at;
        const float *u = (const float *)up + row * stride + at;
        const float *out = (const float *)dy + row * width + at;
        float *dg = (float *)dgate + row * stride + at;
        float *du = (float *)dup + row * stride + at;
#define BACKWARD(act) block_backward(act, count, g, u, out, dg, du)
        VEC_BY_ACTIVATION(act, BACKWARD)
    }
    return ERR_OK;
}
