/* LayerNorm and RMSNorm. A RMSNorm is a LayerNorm whose mean is zero: its mean,
 * beta and their gradients are left out, the rest is one code. */
#include "kernels/cpu.h"
#include "kernels/cpu_bf16.h"

#include <math.h>
#include <string.h>

/* Registers that a sum along a row goes into in turn: one would wait for each
 * addition. */
#define SUMS 4

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

/* Elements of gamma and beta. */
static int64_t norm_width(const struct norm *norm)
{
    return norm->shared ? norm->d : norm->groups * norm->d;
}

static void norm_assert(const struct norm *norm)
{
    assert(norm->d > 0 && norm->groups > 0);
    assert(norm->stride >= norm->groups * norm->d);
    assert(norm->shared || norm->groups > 1);
    (void)norm;
}

static inline vec load(const struct norm *norm, const float *p, int64_t left)
{
    vec v = vec_load(p, left);
    return norm->low_precision ? vec_bf16(v) : v;
}

static float group_mean(const struct norm *norm, const float *x)
{
    int64_t d = norm->d, j = 0;
    vec sum[SUMS] = { 0 };
    for (; j + SUMS * VEC_LANES <= d; j += SUMS * VEC_LANES)
        for (int64_t k = 0; k < SUMS; k++)
            sum[k] += load(norm, x + j + k * VEC_LANES, VEC_LANES);
    for (; j < d; j += VEC_LANES)
        sum[0] += load(norm, x + j, d - j);
    return vec_sum((sum[0] + sum[1]) + (sum[2] + sum[3])) / (float)d;
}

static float group_variance(const struct norm *norm, const float *x, float mean)
{
    int64_t d = norm->d, j = 0;
    vec sum[SUMS] = { 0 };
    for (; j + SUMS * VEC_LANES <= d; j += SUMS * VEC_LANES)
        for (int64_t k = 0; k < SUMS; k++) {
            vec off = load(norm, x + j + k * VEC_LANES, VEC_LANES) - mean;
            sum[k] = vec_fma(off, off, sum[k]);
        }
    for (; j < d; j += VEC_LANES) {
        vec off = vec_keep(load(norm, x + j, d - j) - mean, d - j);
        sum[0] = vec_fma(off, off, sum[0]);
    }
    return vec_sum((sum[0] + sum[1]) + (sum[2] + sum[3])) / (float)d;
}

static void group_scale(const struct norm *norm, const float *x,
                        const float *gamma, const float *beta, float mean,
                        float rstd, float *y)
{
    for (int64_t j = 0; j < norm->d; j += VEC_LANES) {
        int64_t left = norm->d - j;
        vec v = (vec_load(x + j, left) - mean) * rstd;
        vec shift = { 0 };
        if (beta != NULL)
            shift = vec_load(beta + j, left);
        vec_store(y + j, left, vec_fma(v, vec_load(gamma + j, left), shift));
    }
}

/* The same with its roundings. */
static void group_scale_low(const struct norm *norm, const float *x,
                            const float *gamma, const float *beta, float mean,
                            float rstd, float *y)
{
    for (int64_t j = 0; j < norm->d; j += VEC_LANES) {
        int64_t left = norm->d - j;
        vec v = (vec_bf16(vec_load(x + j, left)) - mean) * rstd;
        vec shift = { 0 };
        if (beta != NULL)
            shift = vec_bf16(vec_load(beta + j, left));
        v = vec_fma(v, vec_bf16(vec_load(gamma + j, left)), shift);
        vec_store(y + j, left, vec_bf16(v));
    }
}

/* Row i, which starts at x and y. */
static void row_forward(const struct norm *norm, int64_t i, const float *x,
                        const float *gamma, const float *beta, float *y,
                        float *mean, float *rstd)
{
    const bool centred = norm->kind == NORM_LAYER;
    if (!centred)
        beta = NULL;
    for (int64_t g = 0; g < norm->groups; g++) {
        int64_t at = g * norm->d, place = i * norm->groups + g;
        int64_t weight = norm->shared ? 0 : at;
        float centre = 0;
        if (centred)
            mean[place] = centre = group_mean(norm, x + at);
        rstd[place] =
            1.0f / sqrtf(group_variance(norm, x + at, centre) + norm->eps);
        (norm->low_precision ? group_scale_low : group_scale)(
            norm, x + at, gamma + weight, beta == NULL ? NULL : beta + weight,
            centre, rstd[place], y + at);
    }
}

enum err CPU_SYMBOL(norm_forward)(const struct kernel_ctx *ctx,
                                  enum dtype dtype, const struct norm *norm,
                                  const void *x, const void *gamma,
                                  const void *beta, void *y, float *mean,
                                  float *rstd)
{
    enum err rc = cpu_require_f32(dtype, "norm_forward");
    if (rc != ERR_OK)
        return rc;
    norm_assert(norm);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t i = 0; i < norm->n; i++)
        row_forward(norm, i, (const float *)x + i * norm->stride, gamma, beta,
                    (float *)y + i * norm->stride, mean, rstd);
    return ERR_OK;
}

/* x = a + scale * b, as the add op rounds it. */
static void row_add(int64_t d, const float *a, float scale, const float *b,
                    float *x)
{
    for (int64_t j = 0; j < d; j += VEC_LANES)
        vec_store(x + j, d - j,
                  vec_fma(vec_load(b + j, d - j), vec_splat(scale),
                          vec_load(a + j, d - j)));
}

/* A row is still in the first cache when its statistics are taken, so memory is
 * read once. */
enum err CPU_SYMBOL(add_norm_forward)(const struct kernel_ctx *ctx,
                                      enum dtype dtype, const struct norm *norm,
                                      const void *a, float scale, const void *b,
                                      void *x, const void *gamma,
                                      const void *beta, void *y, float *mean,
                                      float *rstd)
{
    enum err rc = cpu_require_f32(dtype, "add_norm_forward");
    if (rc != ERR_OK)
        return rc;
    norm_assert(norm);
    assert(norm->groups == 1 && norm->stride == norm->d);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t i = 0; i < norm->n; i++) {
        int64_t at = i * norm->d;
        float *row = (float *)x + at;
        row_add(norm->d, (const float *)a + at, scale, (const float *)b + at,
                row);
        row_forward(norm, i, row, gamma, beta, (float *)y + at, mean, rstd);
    }
    return ERR_OK;
}

/* What a group's gradient needs: the means of g = dy gamma and of g h with h
 * the normed group. Adds dgamma += dy h; dbeta += dy (NULL: without). */
static void group_sums(const struct norm *norm, const float *dy, const float *x,
                       const float *gamma, float mean, float rstd,
                       float *dgamma, float *dbeta, float means[2])
{
    int64_t d = norm->d;
    vec sum = { 0 };
    vec sum_normed = { 0 };
    for (int64_t j = 0; j < d; j += VEC_LANES) {
        int64_t left = d - j;
        vec out = vec_load(dy + j, left);
        vec normed = (load(norm, x + j, left) - mean) * rstd;
        vec g = out * load(norm, gamma + j, left);
        sum += g;
        sum_normed = vec_fma(g, normed, sum_normed);
        vec_store(dgamma + j, left,
                  vec_fma(out, normed, vec_load(dgamma + j, left)));
        if (dbeta != NULL)
            vec_store(dbeta + j, left, vec_load(dbeta + j, left) + out);
    }
    means[0] = vec_sum(sum) / (float)d;
    means[1] = vec_sum(sum_normed) / (float)d;
}

/* dx (+)= rstd (g - mean(g) - h mean(g h)). */
static void group_gradient(const struct norm *norm, const float *dy,
                           const float *x, const float *gamma, float mean,
                           float rstd, const float means[2], bool accumulate,
                           float *dx)
{
    for (int64_t j = 0; j < norm->d; j += VEC_LANES) {
        int64_t left = norm->d - j;
        vec normed = (load(norm, x + j, left) - mean) * rstd;
        vec g = vec_load(dy + j, left) * load(norm, gamma + j, left) - means[0];
        g = vec_fma(normed, vec_splat(-means[1]), g);
        vec before = { 0 };
        if (accumulate)
            before = vec_load(dx + j, left);
        vec_store(dx + j, left, vec_fma(g, vec_splat(rstd), before));
    }
}

/* Row i, which starts at dy, x and dx; dbeta is NULL for NORM_RMS. */
static void row_backward(const struct norm *norm, int64_t i, const float *dy,
                         const float *x, const float *gamma, const float *mean,
                         const float *rstd, bool accumulate, float *dx,
                         float *dgamma, float *dbeta)
{
    const bool centred = norm->kind == NORM_LAYER;
    for (int64_t g = 0; g < norm->groups; g++) {
        int64_t at = g * norm->d, place = i * norm->groups + g;
        int64_t weight = norm->shared ? 0 : at;
        float centre = centred ? mean[place] : 0;
        float means[2];
        group_sums(norm, dy + at, x + at, gamma + weight, centre, rstd[place],
                   dgamma + weight, dbeta == NULL ? NULL : dbeta + weight,
                   means);
        if (!centred)
            means[0] = 0;
        group_gradient(norm, dy + at, x + at, gamma + weight, centre,
                       rstd[place], means, accumulate, dx + at);
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
    enum err rc = cpu_require_f32(dtype, "norm_backward");
    if (rc != ERR_OK)
        return rc;
    norm_assert(norm);
    assert(norm->n > 0);
    int64_t n = norm->n, width = norm_width(norm);
    int64_t rows = row_chunk(n), chunks = cpu_parts(n, rows);
    int64_t stride = row_stride(width);
    bool with_beta = dbeta != NULL && norm->kind == NORM_LAYER;
    float *partial = ctx->scratch;
    assert(ctx->scratch_bytes >= (size_t)(chunks * 2 * stride) * sizeof(float));
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        float *sums = partial + chunk * 2 * stride;
        memset(sums, 0, (size_t)(2 * stride) * sizeof(float));
        for (int64_t i = chunk * rows; i < cpu_min(n, (chunk + 1) * rows);
             i++) {
            int64_t at = i * norm->stride;
            row_backward(norm, i, (const float *)dy + at, (const float *)x + at,
                         gamma, mean, rstd, accumulate, (float *)dx + at, sums,
                         with_beta ? sums + stride : NULL);
        }
    }
    int64_t blocks = cpu_parts(width, CPU_COLUMNS);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t block = 0; block < blocks; block++) {
        int64_t first = block * CPU_COLUMNS;
        int64_t end = cpu_min(width, first + CPU_COLUMNS);
        columns_reduce(first, end, chunks, 2 * stride, partial, dgamma);
        if (with_beta)
            columns_reduce(first, end, chunks, 2 * stride, partial + stride,
                           dbeta);
    }
    return ERR_OK;
}
