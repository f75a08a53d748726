/* LayerNorm (Ba, Kiros and Hinton 2016), two-pass variance. */
#include "kernels/cpu.h"
#include "kernels/cpu_vec.h"

#include <math.h>
#include <string.h>

/* dgamma and dbeta are sums over rows: rows are cut into at most this many
 * chunks, each is summed in order into its own rows of scratch, then the chunks
 * in order. */
#define ROW_CHUNKS_MAX 64
#define ROW_CHUNK_MIN 8

static int64_t row_chunk(int64_t n)
{
    int64_t rows = cpu_parts(n, ROW_CHUNKS_MAX);
    return rows < ROW_CHUNK_MIN ? ROW_CHUNK_MIN : rows;
}

/* Rows of scratch start on cache lines. */
static int64_t row_stride(int64_t d)
{
    return cpu_parts(d, 16) * 16;
}

size_t CPU_SYMBOL(norm_scratch)(const struct kernel_limits *limits)
{
    int64_t chunks =
        cpu_min(ROW_CHUNKS_MAX, cpu_parts(limits->tokens, ROW_CHUNK_MIN));
    return (size_t)(chunks * 2 * row_stride(limits->width)) * sizeof(float);
}

static float row_mean(const float *x, int64_t d)
{
    vec sum = { 0 };
    for (int64_t j = 0; j < d; j += VEC_LANES)
        sum += vec_load(x + j, d - j);
    return vec_sum(sum) / (float)d;
}

static float row_variance(const float *x, int64_t d, float mean)
{
    vec sum = { 0 };
    for (int64_t j = 0; j < d; j += VEC_LANES) {
        vec off = vec_keep(vec_load(x + j, d - j) - mean, d - j);
        sum = vec_fma(off, off, sum);
    }
    return vec_sum(sum) / (float)d;
}

static void row_forward(int64_t d, const float *x, const float *gamma,
                        const float *beta, float mean, float rstd, float *y)
{
    for (int64_t j = 0; j < d; j += VEC_LANES) {
        int64_t left = d - j;
        vec normed = (vec_load(x + j, left) - mean) * rstd;
        vec shift = { 0 };
        if (beta != NULL)
            shift = vec_load(beta + j, left);
        vec_store(y + j, left,
                  vec_fma(normed, vec_load(gamma + j, left), shift));
    }
}

enum err CPU_SYMBOL(norm_forward)(const struct kernel_ctx *ctx,
                                  enum dtype dtype, const struct norm *norm,
                                  const void *x, const void *gamma,
                                  const void *beta, void *y, float *mean,
                                  float *rstd)
{
    int64_t n = norm->n, d = norm->d;
    float eps = norm->eps;
    assert(d > 0 && norm->kind == NORM_LAYER && norm->groups == 1);
    enum err rc = cpu_require_f32(dtype, "norm_forward");
    if (rc != ERR_OK)
        return rc;
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        const float *row = (const float *)x + i * d;
        mean[i] = row_mean(row, d);
        rstd[i] = 1.0f / sqrtf(row_variance(row, d, mean[i]) + eps);
        row_forward(d, row, gamma, beta, mean[i], rstd[i], (float *)y + i * d);
    }
    return ERR_OK;
}

/* With g = dy gamma and h the normed row:
 * dx += rstd (g - mean(g) - h mean(g h)); dgamma += dy h; dbeta += dy. */
static void row_backward(int64_t d, const float *dy, const float *x,
                         const float *gamma, float mean, float rstd, float *dx,
                         float *dgamma, float *dbeta)
{
    vec sum = { 0 };
    vec sum_normed = { 0 };
    for (int64_t j = 0; j < d; j += VEC_LANES) {
        int64_t left = d - j;
        vec out = vec_load(dy + j, left);
        vec normed = (vec_load(x + j, left) - mean) * rstd;
        vec g = out * vec_load(gamma + j, left);
        sum += g;
        sum_normed = vec_fma(g, normed, sum_normed);
        vec_store(dgamma + j, left,
                  vec_fma(out, normed, vec_load(dgamma + j, left)));
        vec_store(dbeta + j, left, vec_load(dbeta + j, left) + out);
    }
    float g_mean = vec_sum(sum) / (float)d;
    float g_normed_mean = vec_sum(sum_normed) / (float)d;
    for (int64_t j = 0; j < d; j += VEC_LANES) {
        int64_t left = d - j;
        vec normed = (vec_load(x + j, left) - mean) * rstd;
        vec g = vec_load(dy + j, left) * vec_load(gamma + j, left) - g_mean;
        g = vec_fma(normed, vec_splat(-g_normed_mean), g);
        vec_store(dx + j, left,
                  vec_fma(g, vec_splat(rstd), vec_load(dx + j, left)));
    }
}

/* out[j] += the chunks' partial sums in order; `step` floats lie between. */
static void columns_reduce(int64_t first, int64_t end, int64_t chunks,
                           int64_t step, const float *partial, float *out)
{
    for (int64_t j = first; j < end; j += VEC_LANES) {
        vec sum = vec_load(partial + j, end - j);
        for (int64_t chunk = 1; chunk < chunks; chunk++)
            sum += vec_load(partial + chunk * step + j, end - j);
        vec_store(out + j, end - j, vec_load(out + j, end - j) + sum);
    }
}

enum err CPU_SYMBOL(norm_backward)(const struct kernel_ctx *ctx,
                                   enum dtype dtype, const struct norm *norm,
                                   const void *dy, const void *x,
                                   const void *gamma, const float *mean,
                                   const float *rstd, bool accumulate, void *dx,
                                   void *dgamma, void *dbeta)
{
    int64_t n = norm->n, d = norm->d;
    assert(n > 0 && d > 0 && accumulate && norm->kind == NORM_LAYER);
    (void)accumulate;
    enum err rc = cpu_require_f32(dtype, "norm_backward");
    if (rc != ERR_OK)
        return rc;
    int64_t rows = row_chunk(n);
    int64_t chunks = cpu_parts(n, rows);
    int64_t stride = row_stride(d);
    float *partial = ctx->scratch;
    assert(ctx->scratch_bytes >= (size_t)(chunks * 2 * stride) * sizeof(float));
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        float *sums = partial + chunk * 2 * stride;
        memset(sums, 0, (size_t)(2 * stride) * sizeof(float));
        for (int64_t i = chunk * rows; i < cpu_min(n, (chunk + 1) * rows); i++)
            row_backward(d, (const float *)dy + i * d, (const float *)x + i * d,
                         gamma, mean[i], rstd[i], (float *)dx + i * d, sums,
                         sums + stride);
    }
    int64_t blocks = cpu_parts(d, CPU_COLUMNS);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t block = 0; block < blocks; block++) {
        int64_t first = block * CPU_COLUMNS;
        int64_t end = cpu_min(d, first + CPU_COLUMNS);
        columns_reduce(first, end, chunks, 2 * stride, partial, dgamma);
        if (dbeta != NULL)
            columns_reduce(first, end, chunks, 2 * stride, partial + stride,
                           dbeta);
    }
    return ERR_OK;
}
