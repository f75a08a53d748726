/* Causal attention by blocks of queries.
 *
 * The scores of one block of queries against all keys before its end are one
 * GEMM into a panel of scratch, so softmax sees whole rows and needs no running
 * maximum; a panel grows with seq, not with its square. Backward recomputes the
 * probabilities from lse (as in FlashAttention, Dao et al. 2022). The GEMMs are
 * single-threaded; tasks write disjoint outputs: (sequence, head, block)
 * forward, (sequence, head) backward, where dk and dv are summed from the last
 * block of queries to the first. */
#include "kernels/cpu.h"
#include "kernels/cpu_math.h"

#include <cblas.h>
#include <limits.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#define QUERIES 64 /* per block */

/* One sequence and head, or one block of its queries. */
struct part {
    const struct attention *shape;
    int64_t sequence, head;
    int64_t first, count; /* queries */
    int64_t keys;         /* that the last query sees: first + count */
    float *panel;         /* [QUERIES, panel_stride(seq)] */
};

/* Rows of panels start on cache lines, at a distance that is not a power of
 * two, which would map a column to few cache sets. */
static int64_t panel_stride(int64_t seq)
{
    return cpu_parts(seq, 16) * 16 + 16;
}

static int64_t panel_floats(int64_t seq)
{
    return QUERIES * panel_stride(seq);
}

size_t CPU_SYMBOL(attention_scratch)(const struct kernel_limits *limits)
{
    return (size_t)(2 * limits->threads * panel_floats(limits->seq)) *
           sizeof(float);
}

static float *thread_panels(const struct kernel_ctx *ctx, int64_t seq)
{
    return (float *)ctx->scratch + omp_get_thread_num() * 2 * panel_floats(seq);
}

static int64_t qkv_stride(const struct attention *shape)
{
    return 3 * shape->heads * shape->head_dim;
}

/* Row `token` of q (0), k (1) or v (2) in packed qkv. */
static int64_t qkv_at(const struct part *part, int which, int64_t token)
{
    const struct attention *shape = part->shape;
    return (part->sequence * shape->seq + token) * qkv_stride(shape) +
           (which * shape->heads + part->head) * shape->head_dim;
}

static int64_t out_at(const struct part *part, int64_t token)
{
    const struct attention *shape = part->shape;
    return ((part->sequence * shape->seq + token) * shape->heads + part->head) *
           shape->head_dim;
}

static int64_t lse_at(const struct part *part, int64_t token)
{
    const struct attention *shape = part->shape;
    return (part->sequence * shape->heads + part->head) * shape->seq + token;
}

static const int32_t *ids_of(const struct part *part)
{
    const struct attention *shape = part->shape;
    if (shape->sequence_ids == NULL)
        return NULL;
    return shape->sequence_ids + part->sequence * shape->seq;
}

/* panel[queries, keys] = scale * rows[queries, head_dim] others[keys, head_dim]
 * transposed. */
static void panel_products(const struct part *part, float scale,
                           const float *rows, int64_t rows_stride,
                           const float *others, float *panel)
{
    const struct attention *shape = part->shape;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)part->count,
                (int)part->keys, (int)shape->head_dim, scale, rows,
                (int)rows_stride, others, (int)qkv_stride(shape), 0.0f, panel,
                (int)panel_stride(shape->seq));
}

/* Scores that query `id` must not see become -Inf: 0 after exp. */
static inline vec row_masked(const float *row, int64_t left, const int32_t *ids,
                             int32_t id)
{
    const vec lowest = vec_splat(-INFINITY);
    vec s = vec_load_or(row, left, lowest);
    if (ids == NULL)
        return s;
    return vec_select(vec_load_i32(ids, left) == id, s, lowest);
}

/* row[0, seen) becomes exp(score - maximum), not normalized; row[seen, keys)
 * zero. Returns the sum and the maximum. */
static float row_softmax(float *row, int64_t seen, int64_t keys,
                         const int32_t *ids, float *peak)
{
    vec top = vec_splat(-INFINITY);
    vec sum = { 0 };
    int32_t id = ids == NULL ? 0 : ids[seen - 1];
    for (int64_t j = 0; j < seen; j += VEC_LANES)
        top = vec_max(row_masked(row + j, seen - j, ids ? ids + j : NULL, id),
                      top);
    *peak = vec_peak(top);
    for (int64_t j = 0; j < seen; j += VEC_LANES) {
        vec s = row_masked(row + j, seen - j, ids ? ids + j : NULL, id);
        vec e = vec_exp(s - *peak);
        sum += e;
        vec_store(row + j, seen - j, e);
    }
    memset(row + seen, 0, (size_t)(keys - seen) * sizeof(float));
    return vec_sum(sum);
}

static void part_forward(const struct part *part, const float *qkv, float *out,
                         float *lse)
{
    const struct attention *shape = part->shape;
    int64_t stride = panel_stride(shape->seq);
    float sum[QUERIES] = { 0 };
    panel_products(part, shape->scale, qkv + qkv_at(part, 0, part->first),
                   qkv_stride(shape), qkv + qkv_at(part, 1, 0), part->panel);
    for (int64_t i = 0; i < part->count; i++) {
        float peak;
        sum[i] = row_softmax(part->panel + i * stride, part->first + i + 1,
                             part->keys, ids_of(part), &peak);
        lse[lse_at(part, part->first + i)] = peak + logf(sum[i]);
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)part->count,
                (int)shape->head_dim, (int)part->keys, 1.0f, part->panel,
                (int)stride, qkv + qkv_at(part, 2, 0), (int)qkv_stride(shape),
                0.0f, out + out_at(part, part->first),
                (int)(shape->heads * shape->head_dim));
    for (int64_t i = 0; i < part->count; i++) {
        float *row = out + out_at(part, part->first + i);
        float scale = 1.0f / sum[i];
#pragma omp simd
        for (int64_t j = 0; j < shape->head_dim; j++)
            row[j] *= scale;
    }
}

static enum err attention_check(const struct kernel_ctx *ctx, enum dtype dtype,
                                const struct attention *shape, const char *op)
{
    assert(shape->batch > 0 && shape->seq > 0);
    assert(shape->heads > 0 && shape->head_dim > 0);
    assert(qkv_stride(shape) <= INT_MAX && shape->seq < INT_MAX - 32);
    assert(ctx->scratch_bytes >=
           (size_t)(2 * ctx->threads * panel_floats(shape->seq)) *
               sizeof(float));
    (void)ctx;
    (void)shape;
    return cpu_require_f32(dtype, op);
}

enum err CPU_SYMBOL(attention_forward)(const struct kernel_ctx *ctx,
                                       enum dtype dtype,
                                       const struct attention *shape,
                                       const void *qkv, void *out, float *lse)
{
    enum err rc = attention_check(ctx, dtype, shape, "attention_forward");
    if (rc != ERR_OK)
        return rc;
    int64_t blocks = cpu_parts(shape->seq, QUERIES);
    int64_t heads = shape->batch * shape->heads;
    /* Long tasks, the last blocks, come first: they balance better. */
#pragma omp parallel for num_threads(ctx->threads) schedule(dynamic, 1)
    for (int64_t task = 0; task < blocks * heads; task++) {
        int64_t first = (blocks - 1 - task / heads) * QUERIES;
        int64_t count = cpu_min(QUERIES, shape->seq - first);
        struct part part = { .shape = shape,
                             .sequence = task % heads / shape->heads,
                             .head = task % shape->heads,
                             .first = first,
                             .count = count,
                             .keys = first + count,
                             .panel = thread_panels(ctx, shape->seq) };
        part_forward(&part, qkv, out, lse);
    }
    return ERR_OK;
}

/* p[j] becomes the probability exp(p[j] - lse), dp[j] the score's gradient
 * p (dp - delta); zero from `seen` on. */
static void row_gradient(float *p, float *dp, int64_t seen, int64_t keys,
                         const int32_t *ids, float lse, float delta)
{
    int32_t id = ids == NULL ? 0 : ids[seen - 1];
    for (int64_t j = 0; j < seen; j += VEC_LANES) {
        int64_t left = seen - j;
        vec s = row_masked(p + j, left, ids ? ids + j : NULL, id);
        vec probability = vec_exp(s - lse);
        vec_store(p + j, left, probability);
        vec_store(dp + j, left, probability * (vec_load(dp + j, left) - delta));
    }
    memset(p + seen, 0, (size_t)(keys - seen) * sizeof(float));
    memset(dp + seen, 0, (size_t)(keys - seen) * sizeof(float));
}

static float row_dot(const float *a, const float *b, int64_t n)
{
    vec sum = { 0 };
    for (int64_t j = 0; j < n; j += VEC_LANES)
        sum = vec_fma(vec_load(a + j, n - j), vec_load(b + j, n - j), sum);
    return vec_sum(sum);
}

/* Keys' side: [keys, head_dim] of dk or dv, += unless this is the first block.
 * panel[queries, keys] transposed times rows[queries, head_dim]. */
static void keys_gradient(const struct part *part, float scale, bool first,
                          const float *panel, const float *rows,
                          int64_t rows_stride, float *dkeys)
{
    const struct attention *shape = part->shape;
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)part->keys,
                (int)shape->head_dim, (int)part->count, scale, panel,
                (int)panel_stride(shape->seq), rows, (int)rows_stride,
                first ? 0.0f : 1.0f, dkeys, (int)qkv_stride(shape));
}

static void part_backward(const struct part *part, const float *qkv,
                          const float *out, const float *lse, const float *dout,
                          float *dqkv)
{
    const struct attention *shape = part->shape;
    bool last = part->keys == shape->seq;
    int64_t stride = panel_stride(shape->seq);
    int64_t width = shape->heads * shape->head_dim;
    float *p = part->panel;
    float *ds = part->panel + panel_floats(shape->seq);
    const float *q = qkv + qkv_at(part, 0, part->first);
    const float *k = qkv + qkv_at(part, 1, 0);
    const float *block_dout = dout + out_at(part, part->first);
    panel_products(part, shape->scale, q, qkv_stride(shape), k, p);
    panel_products(part, 1.0f, block_dout, width, qkv + qkv_at(part, 2, 0), ds);
    for (int64_t i = 0; i < part->count; i++) {
        int64_t at = out_at(part, part->first + i);
        row_gradient(p + i * stride, ds + i * stride, part->first + i + 1,
                     part->keys, ids_of(part),
                     lse[lse_at(part, part->first + i)],
                     row_dot(dout + at, out + at, shape->head_dim));
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)part->count,
                (int)shape->head_dim, (int)part->keys, shape->scale, ds,
                (int)stride, k, (int)qkv_stride(shape), 0.0f,
                dqkv + qkv_at(part, 0, part->first), (int)qkv_stride(shape));
    /* The last block sees all keys and overwrites, the others add. */
    keys_gradient(part, shape->scale, last, ds, q, qkv_stride(shape),
                  dqkv + qkv_at(part, 1, 0));
    keys_gradient(part, 1.0f, last, p, block_dout, width,
                  dqkv + qkv_at(part, 2, 0));
}

enum err CPU_SYMBOL(attention_backward)(const struct kernel_ctx *ctx,
                                        enum dtype dtype,
                                        const struct attention *shape,
                                        const void *qkv, const void *out,
                                        const float *lse, const void *dout,
                                        void *dqkv)
{
    enum err rc = attention_check(ctx, dtype, shape, "attention_backward");
    if (rc != ERR_OK)
        return rc;
    int64_t heads = shape->batch * shape->heads;
#pragma omp parallel for num_threads(ctx->threads) schedule(dynamic, 1)
    for (int64_t task = 0; task < heads; task++) {
        struct part part = { .shape = shape,
                             .sequence = task / shape->heads,
                             .head = task % shape->heads,
                             .panel = thread_panels(ctx, shape->seq) };
        for (int64_t block = cpu_parts(shape->seq, QUERIES); block > 0;
             block--) {
            part.first = (block - 1) * QUERIES;
            part.count = cpu_min(QUERIES, shape->seq - part.first);
            part.keys = part.first + part.count;
            part_backward(&part, qkv, out, lse, dout, dqkv);
        }
    }
    return ERR_OK;
}
