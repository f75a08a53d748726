/* Rotary position embeddings (RoPE): turns pairs of elements of queries and
 * keys. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_vec.h"

/* One head; direction is 1 or -1. */
static void head_turn(int64_t half, const float *cosines, const float *sines,
                      float direction, float *x)
{
    for (int64_t j = 0; j < half; j += VEC_LANES) {
        int64_t left = half - j;
        vec c = vec_load(cosines + j, left);
        vec s = vec_load(sines + j, left) * direction;
        vec a = vec_load(x + j, left);
        vec b = vec_load(x + half + j, left);
        vec_store(x + j, left, vec_fma(a, c, -(b * s)));
        vec_store(x + half + j, left, vec_fma(b, c, a * s));
    }
}

enum err CPU_SYMBOL(rope) KERNEL_LIKE(rope)
{
    assert(n > 0 && seq > 0 && head_dim > 0 && head_dim % 2 == 0);
    assert(rotated >= 0 && rotated <= heads);
    TRY(cpu_require_f32(dtype, "rope"));
    int64_t half = head_dim / 2;
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        const float *cosines = table + i % seq * head_dim;
        float *row = (float *)x + i * heads * head_dim;
        for (int64_t h = 0; h < rotated; h++)
            head_turn(half, cosines, cosines + half, inverse ? -1.0f : 1.0f,
                      row + h * head_dim);
    }
    return ERR_OK;
}
