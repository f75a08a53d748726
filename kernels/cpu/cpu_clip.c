/* Clipping to +-limit. A NaN fails every comparison and stays. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_vec.h"

/* Elements of one task. */
#define BLOCK 4096

static void block_forward(int64_t n, vec limit, float *x)
{
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        vec v = vec_load(x + i, n - i);
        v = vec_select(v > limit, limit, v);
        vec_store(x + i, n - i, vec_select(v < -limit, -limit, v));
    }
}

static void block_backward(int64_t n, vec limit, const float *x, float *dx)
{
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        vec v = vec_load(x + i, n - i);
        vec_i32 clipped = (v >= limit) | (v <= -limit);
        vec_store(dx + i, n - i,
                  vec_select(clipped, (vec){ 0 }, vec_load(dx + i, n - i)));
    }
}

enum err CPU_SYMBOL(clip_forward) KERNEL_LIKE(clip_forward)
{
    assert(limit > 0);
    TRY(cpu_require_f32(dtype, "clip_forward"));
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t at = 0; at < n; at += BLOCK)
        block_forward(cpu_min(BLOCK, n - at), vec_splat(limit),
                      (float *)x + at);
    return ERR_OK;
}

enum err CPU_SYMBOL(clip_backward) KERNEL_LIKE(clip_backward)
{
    assert(limit > 0);
    TRY(cpu_require_f32(dtype, "clip_backward"));
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t at = 0; at < n; at += BLOCK)
        block_backward(cpu_min(BLOCK, n - at), vec_splat(limit),
                       (const float *)x + at, (float *)dx + at);
    return ERR_OK;
}
