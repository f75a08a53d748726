/* Cross entropy: one pass over the logits for maximum and sum, a second one
 * where the gradient is wanted. */
#include "kernels/cpu.h"
#include "kernels/cpu_math.h"

#include <math.h>
#include <string.h>

/* Logits whose maximum is found before they are summed: 4 KiB stay in L1, and
 * the sum is rescaled once per block at most. */
#define BLOCK 1024

struct row_sum {
    float peak;  /* largest logit so far */
    float total; /* sum of exp(scale * (logit - peak)) */
};

static float block_peak(const float *x, int64_t n)
{
    const vec lowest = vec_splat(-INFINITY);
    vec top = lowest;
    for (int64_t i = 0; i < n; i += VEC_LANES)
        top = vec_max(vec_load_or(x + i, n - i, lowest), top);
    return vec_peak(top);
}

/* Adds exp(scale * (x - base)) of sixteen elements, or `left`, a constant but
 * at the end: what is not there adds 0. */
static inline void exp_add(const float *x, int64_t left, float base,
                           float scale, struct wide *total)
{
    for (int i = 0; i < WIDE_VECS; i++) {
        vec logit = vec_load_or(x + i * VEC_LANES, left - i * VEC_LANES,
                                vec_splat(-INFINITY));
        total->part[i] += vec_exp((logit - base) * scale);
    }
}

/* A NaN is passed over by the maximum but not by the sum. */
static struct row_sum row_sum(const float *x, int64_t n, float scale)
{
    float peak = -INFINITY;
    float base = 0;
    struct wide total = { 0 };
    for (int64_t at = 0, end; at < n; at = end) {
        end = cpu_min(at + BLOCK, n);
        float top = block_peak(x + at, end - at);
        if (top > peak) {
            vec factor = vec_exp(vec_splat((peak - top) * scale));
            for (int k = 0; k < WIDE_VECS; k++)
                total.part[k] *= factor;
            peak = top;
            base = top;
        }
        for (; at + WIDE_LANES <= end; at += WIDE_LANES)
            exp_add(x + at, WIDE_LANES, base, scale, &total);
        exp_add(x + at, end - at, base, scale, &total);
    }
    return (struct row_sum){ base, wide_sum(total) };
}

static void row_gradient(float *x, int64_t n, float scale, struct row_sum sum,
                         int32_t label)
{
    float share = scale / sum.total;
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        vec e = vec_exp((vec_load(x + i, n - i) - sum.peak) * scale);
        vec_store(x + i, n - i, e * share);
    }
    x[label] -= scale;
}

enum err CPU_SYMBOL(cross_entropy)(const struct kernel_ctx *ctx,
                                   enum dtype dtype, int64_t n, int64_t vocab,
                                   float scale, void *logits,
                                   const int32_t *labels, bool gradient,
                                   float *losses)
{
    assert(vocab > 0 && scale > 0);
    enum err rc = cpu_require_f32(dtype, "cross_entropy");
    if (rc != ERR_OK)
        return rc;
    assert(n >= 0);
#pragma omp parallel for num_threads(ctx->threads) schedule(dynamic, 4)
    for (int64_t i = 0; i < n; i++) {
        float *row = (float *)logits + i * vocab;
        if (labels[i] < 0) {
            losses[i] = 0;
            if (gradient)
                memset(row, 0, (size_t)vocab * sizeof(float));
            continue;
        }
        assert(labels[i] < vocab);
        struct row_sum sum = row_sum(row, vocab, scale);
        losses[i] = cpu_log(sum.total) + scale * (sum.peak - row[labels[i]]);
        if (gradient)
            row_gradient(row, vocab, scale, sum, labels[i]);
    }
    return ERR_OK;
}
