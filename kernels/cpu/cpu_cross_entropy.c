/* Cross entropy: one pass over the logits for maximum and sum, a second one
 * where the gradient is wanted.
 *
 * loss = log sum exp(x_j) - x_label, computed from the largest logit down so
 * that no exp overflows; maximum and sum come in one pass as in attention, the
 * sum rescaled when a block of logits has a new maximum. The gradient exp(x_j -
 * lse) - [j = label] overwrites the logits: the row of a vocabulary is the
 * largest thing in a step, and there is only one of it. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_math.h"

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

/* The mean of peak - x. */
static float row_distance(const float *x, int64_t n, float peak)
{
    double sum = 0.0;
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t end = cpu_min(at + BLOCK, n);
        struct wide total = { 0 };
        for (int64_t i = at; i < end; i += WIDE_LANES)
            for (int k = 0; k < WIDE_VECS; k++)
                total.part[k] += peak - vec_load_or(x + i + k * VEC_LANES,
                                                    end - i - k * VEC_LANES,
                                                    vec_splat(peak));
        sum += (double)wide_sum(total);
    }
    return (float)(sum / (double)n);
}

static float row_loss(const float *x, int64_t n, float scale,
                      const struct target *target, struct row_sum sum,
                      int32_t label)
{
    float rest = cpu_log(sum.total);
    float chosen = sum.peak - x[label];
    float lse = rest + scale * sum.peak;
    float loss;
    if (target->smoothing > 0)
        chosen = (1.0f - target->smoothing) * chosen +
                 target->smoothing * row_distance(x, n, sum.peak);
    loss = rest + scale * chosen;
    return target->z > 0 ? loss + target->z * lse * lse : loss;
}

/* The gradient by a logit is scale * (softmax (1 + 2 z lse) - target). */
static void row_gradient(float *x, int64_t n, float scale,
                         const struct target *target, struct row_sum sum,
                         int32_t label)
{
    float lse = cpu_log(sum.total) + scale * sum.peak;
    float more = target->z > 0 ? 1.0f + 2.0f * target->z * lse : 1.0f;
    float share = scale * more / sum.total;
    const vec each = vec_splat(-scale * target->smoothing / (float)n);
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        vec e = vec_exp((vec_load(x + i, n - i) - sum.peak) * scale);
        vec_store(x + i, n - i, vec_fma(e, vec_splat(share), each));
    }
    x[label] -= scale * (1.0f - target->smoothing);
}

enum err CPU_SYMBOL(cross_entropy) KERNEL_LIKE(cross_entropy)
{
    assert(vocab > 0 && scale > 0);
    assert(target->smoothing >= 0 && target->smoothing < 1 && target->z >= 0);
    TRY(cpu_require_f32(dtype, "cross_entropy"));
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
        losses[i] = row_loss(row, vocab, scale, target, sum, labels[i]);
        if (gradient)
            row_gradient(row, vocab, scale, target, sum, labels[i]);
    }
    return ERR_OK;
}
