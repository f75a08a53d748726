/* Dropless top-k routing: which experts a token goes to, with which weights,
 * and the order in which experts find their tokens.
 *
 * With a capacity per expert (GShard, Switch) tokens beyond it are dropped, and
 * which ones depends on the batch around them. Dropless (MegaBlocks, Gale et
 * al. 2022): every choice counts, rows are sorted by expert, and one grouped
 * product takes groups of any size. The sort is a counting sort: tokens are cut
 * into chunks, each counts its choices by expert, sums of these counts over
 * chunks say where each chunk writes. Its result is that of a stable sort
 * whatever the threads, so an expert's rows stand in the order of the tokens.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_math.h"
#include "src/base/real.h"

#include <math.h>
#include <string.h>

/* Sums over tokens and the sort cut the tokens into at most this many chunks,
 * each with its own row of scratch, which are then combined in order. */
#define CHUNKS_MAX 64
#define CHUNK_MIN 64

static int64_t chunk_tokens(int64_t n)
{
    int64_t tokens = cpu_parts(n, CHUNKS_MAX);
    return tokens < CHUNK_MIN ? CHUNK_MIN : tokens;
}

/* Not by the tokens: with expert parallelism a rank may sort any number. */
size_t CPU_SYMBOL(route_scratch)(const struct kernel_limits *limits)
{
    return CHUNKS_MAX * (size_t)limits->experts * sizeof(double);
}

static void row_softmax(float *x, int experts)
{
    const vec lowest = vec_splat(-INFINITY);
    vec top = lowest;
    struct wide total = { 0 };
    for (int64_t e = 0; e < experts; e += VEC_LANES)
        top = vec_max(vec_load_or(x + e, experts - e, lowest), top);
    float peak = vec_peak(top);
    for (int64_t at = 0; at < experts; at += WIDE_LANES)
        for (int i = 0; i < WIDE_VECS; i++) {
            int64_t e = at + i * VEC_LANES;
            vec y = vec_exp(vec_load_or(x + e, experts - e, lowest) - peak);
            vec_store(x + e, experts - e, y);
            total.part[i] += y; /* lanes past the end are 0 */
        }
    float scale = 1.0f / wide_sum(total);
    for (int64_t e = 0; e < experts; e += VEC_LANES)
        vec_store(x + e, experts - e, vec_load(x + e, experts - e) * scale);
}

/* Keeps the best so far in falling order. A NaN beats nothing and is beaten by
 * nothing, so whatever stands in probs, experts are distinct and in range. */
static void row_choose(const float *probs, int experts, int top_k,
                       int32_t *chosen, float *weights)
{
    int have = 0;
    for (int e = 0; e < experts; e++) {
        if (have == top_k && !(probs[e] > weights[top_k - 1]))
            continue;
        int at = have < top_k ? have++ : top_k - 1;
        for (; at > 0 && probs[e] > weights[at - 1]; at--) {
            weights[at] = weights[at - 1];
            chosen[at] = chosen[at - 1];
        }
        weights[at] = probs[e];
        chosen[at] = e;
    }
}

/* x^p, the usual exponents at less cost. */
static float power(float x, float p)
{
    if (p == 0.0f)
        return 1.0f;
    if (p == 1.0f)
        return x;
    return p == 2.0f ? x * x : (float)real_pow((double)x, (double)p);
}

/* The L_p norm; powers of the parts of the largest (the first, at least 1 /
 * experts) neither overflow nor all vanish. */
static float norm_lp(const float *x, int count, float p)
{
    float sum = 0;
    for (int j = 0; j < count; j++)
        sum += power(x[j] / x[0], p);
    if (p == 2.0f)
        return x[0] * sqrtf(sum);
    return x[0] * power(sum, 1.0f / p);
}

static void assert_route(const struct route *route)
{
    assert(route->n >= 0 && route->n * route->top_k <= INT32_MAX);
    assert(route->top_k > 0 && route->top_k <= route->experts);
    assert(route->top_k <= KERNEL_TOP_K_MAX);
    assert(route->normalize == 0.0f || route->normalize >= 1.0f);
    (void)route;
}

enum err CPU_SYMBOL(route_forward) KERNEL_LIKE(route_forward)
{
    int k = route->top_k;
    assert_route(route);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t t = 0; t < route->n; t++) {
        float *row = probs + t * route->experts;
        float *weight = weights + t * k;
        row_softmax(row, route->experts);
        row_choose(row, route->experts, k, chosen + t * k, weight);
        if (route->normalize == 0.0f)
            continue;
        float norm = norm_lp(weight, k, route->normalize);
        for (int j = 0; j < k; j++)
            weight[j] /= norm;
    }
    return ERR_OK;
}

/* dprobs += the gradient through the chosen probabilities q and their norm N:
 * with w = q / N, dN/dq_j = w_j^(p - 1), so
 * dq_j = (dw_j - w_j^(p - 1) sum_i dw_i w_i) / N. */
static void row_unchoose(const struct route *route, const float *probs,
                         const int32_t *chosen, const float *dweights,
                         float *dprobs)
{
    float w[KERNEL_TOP_K_MAX];
    float p = route->normalize;
    float norm = 1;
    float dot = 0;
    for (int j = 0; j < route->top_k; j++) {
        assert(chosen[j] >= 0 && chosen[j] < route->experts);
        w[j] = probs[chosen[j]];
    }
    if (p != 0.0f) {
        norm = norm_lp(w, route->top_k, p);
        for (int j = 0; j < route->top_k; j++) {
            w[j] /= norm;
            dot += dweights[j] * w[j];
        }
    }
    for (int j = 0; j < route->top_k; j++) {
        float dq = dweights[j];
        if (p != 0.0f)
            dq = (dq - power(w[j], p - 1.0f) * dot) / norm;
        dprobs[chosen[j]] += dq;
    }
}

/* dlogits holds dprobs: dlogits = probs (dprobs - sum of probs dprobs). */
static void row_unsoftmax(const float *probs, int experts, float *dlogits)
{
    float dot = vec_dot(probs, dlogits, experts);
    for (int64_t e = 0; e < experts; e += VEC_LANES) {
        vec off = vec_load(dlogits + e, experts - e) - dot;
        vec_store(dlogits + e, experts - e,
                  vec_load(probs + e, experts - e) * off);
    }
}

enum err CPU_SYMBOL(route_backward) KERNEL_LIKE(route_backward)
{
    int64_t k = route->top_k;
    assert_route(route);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t t = 0; t < route->n; t++) {
        const float *row = probs + t * route->experts;
        float *drow = dlogits + t * route->experts;
        memcpy(drow, dprobs, (size_t)route->experts * sizeof(*drow));
        row_unchoose(route, row, chosen + t * k, dweights + t * k, drow);
        row_unsoftmax(row, route->experts, drow);
    }
    return ERR_OK;
}

/* Counting sort: each chunk counts its choices of each expert, the counts
 * become first places, and each chunk puts its choices there in order. */
enum err CPU_SYMBOL(route_sort) KERNEL_LIKE(route_sort)
{
    int64_t experts = route->experts;
    int64_t choices = chunk_tokens(route->n) * route->top_k;
    int64_t total = route->n * route->top_k;
    int64_t chunks = cpu_parts(total, choices);
    int32_t *counts = ctx->scratch;
    int32_t at = 0;
    assert_route(route);
    assert(ctx->scratch_bytes >= (size_t)(chunks * experts) * sizeof(*counts));
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        int32_t *count = counts + chunk * experts;
        memset(count, 0, (size_t)experts * sizeof(*count));
        int64_t end = cpu_min(total, (chunk + 1) * choices);
        for (int64_t i = chunk * choices; i < end; i++) {
            assert(chosen[i] >= 0 && chosen[i] < experts);
            count[chosen[i]]++;
        }
    }
    for (int64_t e = 0; e < experts; e++) {
        offsets[e] = at;
        for (int64_t chunk = 0; chunk < chunks; chunk++) {
            int32_t count = counts[chunk * experts + e];
            counts[chunk * experts + e] = at;
            at += count;
        }
    }
    assert(at == total);
    offsets[experts] = at;
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        int32_t *next = counts + chunk * experts;
        int64_t end = cpu_min(total, (chunk + 1) * choices);
        for (int64_t i = chunk * choices; i < end; i++) {
            place[i] = next[chosen[i]]++;
            source[place[i]] = (int32_t)i;
        }
    }
    return ERR_OK;
}

enum err CPU_SYMBOL(route_sums) KERNEL_LIKE(route_sums)
{
    int64_t experts = route->experts;
    int64_t tokens = chunk_tokens(route->n);
    int64_t chunks = cpu_parts(route->n, tokens);
    double *sums = ctx->scratch;
    assert_route(route);
    assert(ctx->scratch_bytes >= (size_t)(chunks * experts) * sizeof(*sums));
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        double *sum = sums + chunk * experts;
        int64_t end = cpu_min(route->n, (chunk + 1) * tokens);
        memset(sum, 0, (size_t)experts * sizeof(*sum));
        for (int64_t t = chunk * tokens; t < end; t++)
            for (int64_t e = 0; e < experts; e++)
                sum[e] += (double)probs[t * experts + e];
    }
    memset(out, 0, (size_t)experts * sizeof(*out));
    for (int64_t chunk = 0; chunk < chunks; chunk++)
        for (int64_t e = 0; e < experts; e++)
            out[e] += sums[chunk * experts + e];
    return ERR_OK;
}

enum err CPU_SYMBOL(balance_forward) KERNEL_LIKE(balance_forward)
{
    double sum = 0.0;
    (void)ctx;
    assert(route->n >= 0 && route->experts > 0);
    if (route->n == 0)
        return ERR_OK;
    for (int e = 0; e < route->experts; e++) {
        int64_t count = offsets[e + 1] - offsets[e];
        counts[e] += count;
        sum += (double)count * sums[e] / (double)route->n;
    }
    *loss += scale * sum;
    return ERR_OK;
}

enum err CPU_SYMBOL(balance_backward) KERNEL_LIKE(balance_backward)
{
    double n = route->n > 0 ? (double)route->n : 1.0;
    (void)ctx;
    for (int e = 0; e < route->experts; e++)
        dprobs[e] = (float)(scale * (double)(offsets[e + 1] - offsets[e]) / n);
    return ERR_OK;
}
