/* Rows on their way to experts and back. All of it moves memory; a row is one
 * task, so rows keep their bits wherever they lie. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_vec.h"

#include <string.h>

enum err CPU_SYMBOL(expert_gather) KERNEL_LIKE(expert_gather)
{
    TRY(cpu_require_f32(dtype, "expert_gather"));
    int64_t rows = route->n * route->top_k;
    assert(rows >= 0 && d > 0 && x != out);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        assert(source[r] >= 0 && source[r] < rows);
        memcpy((float *)out + r * d,
               (const float *)x + source[r] / route->top_k * d,
               (size_t)d * sizeof(float));
    }
    return ERR_OK;
}

static void row_sum(int64_t d, int top_k, const int32_t *place,
                    const float *weights, const float *y, float *out)
{
    for (int64_t i = 0; i < d; i += VEC_LANES) {
        vec sum = { 0 };
        for (int j = 0; j < top_k; j++)
            sum = vec_fma(vec_splat(weights != NULL ? weights[j] : 1.0f),
                          vec_load(y + place[j] * d + i, d - i), sum);
        vec_store(out + i, d - i, sum);
    }
}

enum err CPU_SYMBOL(expert_combine) KERNEL_LIKE(expert_combine)
{
    int k = route->top_k;
    TRY(cpu_require_f32(dtype, "expert_combine"));
    assert(k > 0 && k <= KERNEL_TOP_K_MAX && y != out);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t t = 0; t < route->n; t++)
        row_sum(d, k, place + t * k, weights != NULL ? weights + t * k : NULL,
                y, (float *)out + t * d);
    return ERR_OK;
}

/* The row's next sixteen elements, or `left`: a constant but at its end. */
static inline void weigh_wide(int64_t left, float weight, float *h, float *dh,
                              struct wide *dot)
{
    for (int k = 0; k < WIDE_VECS; k++) {
        int64_t i = k * VEC_LANES;
        vec a = vec_load(h + i, left - i);
        vec b = vec_load(dh + i, left - i);
        dot->part[k] = vec_fma(a, b, dot->part[k]);
        vec_store(h + i, left - i, a * weight);
        vec_store(dh + i, left - i, b * weight);
    }
}

static float row_weigh(int64_t width, float weight, float *h, float *dh)
{
    struct wide dot = { 0 };
    int64_t i = 0;
    for (; i + WIDE_LANES <= width; i += WIDE_LANES)
        weigh_wide(WIDE_LANES, weight, h + i, dh + i, &dot);
    weigh_wide(width - i, weight, h + i, dh + i, &dot);
    return wide_sum(dot);
}

enum err CPU_SYMBOL(expert_weigh) KERNEL_LIKE(expert_weigh)
{
    TRY(cpu_require_f32(dtype, "expert_weigh"));
    int64_t rows = route->n * route->top_k;
    assert(rows >= 0 && width > 0 && h != dh);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        assert(source[r] >= 0 && source[r] < rows);
        dweights[source[r]] =
            row_weigh(width, weights[source[r]], (float *)h + r * width,
                      (float *)dh + r * width);
    }
    return ERR_OK;
}
