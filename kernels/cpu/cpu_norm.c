/* LayerNorm and RMSNorm. A RMSNorm is a LayerNorm whose mean is zero: its mean,
 * beta and their gradients are left out, the rest is one code. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_bf16.h"

#include <math.h>
#include <string.h>

/* Sums that a row's mean and variance run over in turn, of sixteen lanes each:
 * one would wait for each addition. */
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

/* dgamma and dbeta of each chunk, then gamma as it is multiplied by. */
static size_t scratch_rows_bytes(int64_t chunks, int64_t width)
{
    return (size_t)((chunks * 2 + 1) * row_stride(width)) * sizeof(float);
}

size_t CPU_SYMBOL(norm_scratch)(const struct kernel_limits *limits)
{
    int64_t chunks =
        cpu_min(ROW_CHUNKS_MAX, cpu_parts(limits->tokens, ROW_CHUNK_MIN));
    return scratch_rows_bytes(chunks, limits->width);
}

static void norm_assert(const struct norm *norm)
{
    assert(norm->n >= 0);
    assert(norm->d > 0 && norm->groups > 0);
    assert(norm->stride >= norm->groups * norm->d);
    assert(norm->shared || norm->groups > 1);
    (void)norm;
}

static inline vec load(bool low, const float *p, int64_t left)
{
    vec v = vec_load(p, left);
    return low ? vec_bf16(v) : v;
}

static inline vec add_term(bool squares, vec off, vec sum)
{
    return squares ? vec_fma(off, off, sum) : sum + off;
}

/* The mean of a group's distances from `centre`, or of their squares. Inline,
 * so that `squares` is a constant in each copy of the loops. */
static inline float group_mean(bool squares, int64_t d, const float *x,
                               float centre)
{
    int64_t j = 0;
    struct wide sum[SUMS] = { 0 };
    for (; j + SUMS * WIDE_LANES <= d; j += SUMS * WIDE_LANES)
        for (int k = 0; k < SUMS; k++)
            for (int i = 0; i < WIDE_VECS; i++) {
                const float *at = x + j + k * WIDE_LANES + i * VEC_LANES;
                sum[k].part[i] = add_term(
                    squares, vec_load(at, VEC_LANES) - centre, sum[k].part[i]);
            }
    for (; j < d; j += WIDE_LANES)
        for (int i = 0; i < WIDE_VECS; i++) {
            int64_t left = d - j - i * VEC_LANES;
            vec off = vec_load(x + j + i * VEC_LANES, left) - centre;
            sum[0].part[i] =
                add_term(squares, vec_keep(off, left), sum[0].part[i]);
        }
    return wide_sum(
               wide_add(wide_add(sum[0], sum[1]), wide_add(sum[2], sum[3]))) /
           (float)d;
}

/* y = (x - mean) rstd gamma + beta; `low` with its roundings but x's. */
static inline void group_scale(bool low, bool plus_one, int64_t d,
                               const float *x, const float *gamma,
                               const float *beta, float mean, float rstd,
                               float *y)
{
    for (int64_t j = 0; j < d; j += VEC_LANES) {
        int64_t left = d - j;
        vec v = (vec_load(x + j, left) - mean) * rstd;
        vec shift = { 0 };
        if (beta != NULL)
            shift = load(low, beta + j, left);
        vec by = load(low, gamma + j, left);
        if (plus_one)
            by += vec_splat(1);
        v = vec_fma(v, by, shift);
        vec_store(y + j, left, low ? vec_bf16(v) : v);
    }
}

static void group_round(int64_t d, const float *x, float *y)
{
    for (int64_t j = 0; j < d; j += VEC_LANES)
        vec_store(y + j, d - j, vec_bf16(vec_load(x + j, d - j)));
}

static void group_plus_one(int64_t d, float *x)
{
    for (int64_t j = 0; j < d; j += VEC_LANES)
        vec_store(x + j, d - j, vec_load(x + j, d - j) + vec_splat(1));
}

/* Row i, which starts at x and y. Where x is rounded, that is kept in y until y
 * itself is there. */
static void row_forward(const struct norm *norm, int64_t i, const float *x,
                        const float *gamma, const float *beta, float *y,
                        float *mean, float *rstd)
{
    const bool centred = norm->kind == NORM_LAYER;
    int64_t d = norm->d;
    for (int64_t g = 0; g < norm->groups; g++) {
        int64_t at = g * d, place = i * norm->groups + g;
        const float *scale = gamma + (norm->shared ? 0 : at);
        const float *shift = NULL;
        const float *in = x + at;
        float *out = y + at;
        float centre = 0;
        if (centred && beta != NULL)
            shift = beta + (norm->shared ? 0 : at);
        if (norm->low_precision) {
            group_round(d, in, out);
            in = out;
        }
        if (centred)
            mean[place] = centre = group_mean(false, d, in, 0.0f);
        float variance = group_mean(true, d, in, centre);
        rstd[place] = 1.0f / sqrtf(variance + norm->eps);
        if (norm->low_precision)
            group_scale(true, norm->plus_one, d, in, scale, shift, centre,
                        rstd[place], out);
        else if (norm->plus_one)
            group_scale(false, true, d, in, scale, shift, centre, rstd[place],
                        out);
        else
            group_scale(false, false, d, in, scale, shift, centre, rstd[place],
                        out);
    }
}

enum err CPU_SYMBOL(norm_forward) KERNEL_LIKE(norm_forward)
{
    TRY(cpu_require_f32(dtype, "norm_forward"));
    norm_assert(norm);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t i = 0; i < norm->n; i++)
        row_forward(norm, i, (const float *)x + i * norm->stride, gamma, beta,
                    (float *)y + i * norm->stride, mean, rstd);
    return ERR_OK;
}

/* A row is still in the first cache when its statistics are taken, so memory is
 * read once. */
enum err CPU_SYMBOL(add_norm_forward) KERNEL_LIKE(add_norm_forward)
{
    TRY(cpu_require_f32(dtype, "add_norm_forward"));
    norm_assert(norm);
    assert(norm->groups == 1 && norm->stride == norm->d);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t i = 0; i < norm->n; i++) {
        int64_t at = i * norm->d;
        float *row = (float *)x + at;
        vec_row_add(norm->d, (const float *)a + at, scale,
                    (const float *)b + at, row);
        row_forward(norm, i, row, gamma, beta, (float *)y + at, mean, rstd);
    }
    return ERR_OK;
}

/* One group, for backward; gamma is as it is multiplied by, x is not rounded. */
struct group {
    int64_t d;
    const float *dy, *x, *gamma;
    float mean, rstd;
    float g_mean,
        g_normed_mean; /* of g = dy gamma, and of g times the normed */
};

/* Sums over a group's elements, of g and of g times the normed. */
struct sums {
    struct wide g, g_normed;
};

/* The sums over the sixteen elements from j on, or `left`, a constant but at
 * the end. */
static inline void wide_sums(bool low, const struct group *in, int64_t j,
                             int64_t left, float *dgamma, float *dbeta,
                             struct sums *sums)
{
    for (int i = 0; i < WIDE_VECS; i++, j += VEC_LANES, left -= VEC_LANES) {
        vec out = vec_load(in->dy + j, left);
        vec normed = (load(low, in->x + j, left) - in->mean) * in->rstd;
        vec g = out * vec_load(in->gamma + j, left);
        sums->g.part[i] += g;
        sums->g_normed.part[i] = vec_fma(g, normed, sums->g_normed.part[i]);
        vec_store(dgamma + j, left,
                  vec_fma(out, normed, vec_load(dgamma + j, left)));
        if (dbeta != NULL)
            vec_store(dbeta + j, left, vec_load(dbeta + j, left) + out);
    }
}

/* Fills the means. dgamma += dy times the normed; dbeta += dy (NULL: without).
 * Inline, so that `low` is a constant in each copy of the loop. */
static inline void group_sums(bool low, struct group *group, float *dgamma,
                              float *dbeta)
{
    const struct group in = *group;
    struct sums sums = { 0 };
    int64_t j = 0;
    for (; j + WIDE_LANES <= in.d; j += WIDE_LANES)
        wide_sums(low, &in, j, WIDE_LANES, dgamma, dbeta, &sums);
    wide_sums(low, &in, j, in.d - j, dgamma, dbeta, &sums);
    group->g_mean = wide_sum(sums.g) / (float)in.d;
    group->g_normed_mean = wide_sum(sums.g_normed) / (float)in.d;
}

/* dx (+)= rstd (g - mean(g) - normed mean(g normed)). */
static inline void group_gradient(bool low, struct group in, bool accumulate,
                                  float *dx)
{
    for (int64_t j = 0; j < in.d; j += VEC_LANES) {
        int64_t left = in.d - j;
        vec normed = (load(low, in.x + j, left) - in.mean) * in.rstd;
        vec g = vec_load(in.dy + j, left) * vec_load(in.gamma + j, left);
        g = vec_fma(normed, vec_splat(-in.g_normed_mean), g - in.g_mean);
        vec before = { 0 };
        if (accumulate)
            before = vec_load(dx + j, left);
        vec_store(dx + j, left, vec_fma(g, vec_splat(in.rstd), before));
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
        float *dshift = dbeta == NULL ? NULL : dbeta + weight;
        struct group group = { .d = norm->d,
                               .dy = dy + at,
                               .x = x + at,
                               .gamma = gamma + weight,
                               .mean = centred ? mean[place] : 0,
                               .rstd = rstd[place] };
        if (norm->low_precision)
            group_sums(true, &group, dgamma + weight, dshift);
        else
            group_sums(false, &group, dgamma + weight, dshift);
        if (!centred)
            group.g_mean = 0;
        if (norm->low_precision)
            group_gradient(true, group, accumulate, dx + at);
        else
            group_gradient(false, group, accumulate, dx + at);
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

enum err CPU_SYMBOL(norm_backward) KERNEL_LIKE(norm_backward)
{
    TRY(cpu_require_f32(dtype, "norm_backward"));
    norm_assert(norm);
    assert(norm->n > 0);
    /* elements of gamma and beta */
    int64_t width = norm->shared ? norm->d : norm->groups * norm->d;
    int64_t n = norm->n;
    int64_t rows = row_chunk(n), chunks = cpu_parts(n, rows);
    int64_t stride = row_stride(width);
    bool with_beta = dbeta != NULL && norm->kind == NORM_LAYER;
    float *partial = ctx->scratch;
    assert(ctx->scratch_bytes >= scratch_rows_bytes(chunks, width));
    if (norm->low_precision || norm->plus_one) {
        float *by = partial + chunks * 2 * stride;
        memcpy(by, gamma, (size_t)width * sizeof(*by));
        if (norm->low_precision)
            group_round(width, by, by);
        if (norm->plus_one)
            group_plus_one(width, by);
        gamma = by;
    }
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
