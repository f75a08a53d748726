/* Attention over whole sequences in fp64, query by query, and the inputs that
 * its tests share. */
#pragma once

#include "src/base/rng.h"
#include "tests/kernel_check.h"

enum documents { ONE, PACKED, INTERLEAVED, LONGER };
static const char *const reference_documents[] = { "", " packed",
                                                   " interleaved", " longer" };

static const struct random_place reference_place = { 17, 0x123456789abcdefu,
                                                     3000000000 };

/* NULL for one document. The fourth of the longer documents begins with the
 * last key of a tile. */
static inline int32_t *reference_ids(enum documents documents, int64_t batch,
                                     int64_t seq)
{
    if (documents == ONE)
        return NULL;
    int32_t *ids = check_alloc((size_t)(batch * seq) * sizeof(*ids));
    for (int64_t i = 0; i < batch * seq; i++) {
        int64_t t = i % seq;
        ids[i] = documents == PACKED   ? (int32_t)(t / 13)
                 : documents == LONGER ? (int32_t)(t / 85) - 2
                                       : (int32_t)(i % 3);
    }
    return ids;
}

/* ALiBi's slopes of 12 heads: of the 16 powers of 2^-0.5 every other one, then
 * the ones between (Press, Smith and Lewis 2021). */
static inline float *reference_slopes(int64_t heads)
{
    float *slopes = check_alloc((size_t)heads * sizeof(*slopes));
    for (int64_t h = 0; h < heads; h++) {
        int64_t power = h < 8 ? 2 * (h + 1) : 2 * (h - 8) + 1;
        slopes[h] = (float)exp2(-0.5 * (double)power);
    }
    return slopes;
}

static inline int64_t reference_slots(const struct attention *s)
{
    return s->heads + 2 * s->kv_heads;
}

/* Elements of lse, out and qkv. */
static inline int64_t reference_rows(const struct attention *s)
{
    return s->batch * s->seq * s->heads;
}

static inline int64_t reference_out(const struct attention *s)
{
    return reference_rows(s) * s->head_dim;
}

static inline int64_t reference_qkv(const struct attention *s)
{
    return s->batch * s->seq * reference_slots(s) * s->head_dim;
}

/* The packed row of token t: of query head h, or of its key or value. */
enum role { QUERY, KEY, VALUE };

static inline int64_t reference_at(const struct attention *s, int64_t b,
                                   int64_t t, enum role role, int64_t h)
{
    int64_t kv = h / (s->heads / s->kv_heads);
    int64_t slot = role == QUERY ? h
                   : role == KEY ? s->heads + kv
                                 : s->heads + s->kv_heads + kv;
    return ((b * s->seq + t) * reference_slots(s) + slot) * s->head_dim;
}

static inline double reference_dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static inline void reference_axpy(double scale, const double *x, double *y,
                                  int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += scale * x[i];
}

/* The stream of a pair of chunks, numbered from 0 on. */
static inline uint64_t reference_stream(const struct attention *s,
                                        int64_t chunks, int64_t queries,
                                        int64_t keys)
{
    return s->random.stream + (uint64_t)(queries * chunks + keys);
}

/* 0 if dropout drops the probability, otherwise what it is multiplied by: word
 * by word, from the generator itself. Each pair of chunks of `length` tokens
 * has its own numbers. */
static inline double reference_kept(const struct attention *s, int64_t length,
                                    int64_t b, int64_t h, int64_t t, int64_t j)
{
    if (s->dropout <= 0)
        return 1;
    uint64_t key =
        rng_u64(s->random.seed,
                reference_stream(s, s->seq / length, t / length, j / length),
                (uint64_t)(s->random.first_sample + b));
    uint64_t element =
        (uint64_t)((h * length + t % length) * ((length + 3) / 4 * 4) +
                   j % length);
    uint64_t block = element / 4;
    const uint32_t halves[2] = { (uint32_t)key, (uint32_t)(key >> 32) };
    const uint32_t counter[4] = { (uint32_t)block, (uint32_t)(block >> 32) };
    uint32_t words[4];
    rng_philox(halves, counter, words);
    bool dropped = words[element % 4] < (double)s->dropout * 0x1p32;
    return dropped ? 0 : 1 / (1 - (double)s->dropout);
}

/* Probabilities of query t before dropout; returns its log sum exp. */
static inline double reference_query(const struct attention *s,
                                     const double *qkv, int64_t b, int64_t h,
                                     int64_t t, double *p)
{
    const int32_t *ids = s->sequence_ids;
    double slope = s->alibi_slopes == NULL ? 0 : (double)s->alibi_slopes[h];
    double sum = 0;
    for (int64_t j = 0; j <= t; j++) {
        double score = (double)s->scale *
                           reference_dot(qkv + reference_at(s, b, t, QUERY, h),
                                         qkv + reference_at(s, b, j, KEY, h),
                                         s->head_dim) +
                       slope * (double)(j - t);
        bool seen =
            (ids == NULL || ids[b * s->seq + j] == ids[b * s->seq + t]) &&
            (s->window == 0 || t - j < s->window);
        p[j] = seen ? exp(score) : 0;
        sum += p[j];
    }
    for (int64_t j = 0; j <= t; j++)
        p[j] /= sum;
    return log(sum);
}

static inline void reference_query_backward(const struct attention *s,
                                            int64_t length, const double *qkv,
                                            const double *out,
                                            const double *dout, int64_t b,
                                            int64_t h, int64_t t,
                                            const double *p, double *dqkv)
{
    int64_t d = s->head_dim, q = reference_at(s, b, t, QUERY, h);
    double delta = reference_dot(out, dout, d);
    for (int64_t j = 0; j <= t; j++) {
        int64_t k = reference_at(s, b, j, KEY, h);
        int64_t v = reference_at(s, b, j, VALUE, h);
        double keep = reference_kept(s, length, b, h, t, j);
        double dp = keep * reference_dot(dout, qkv + v, d);
        double ds = p[j] * (dp - delta) * (double)s->scale;
        reference_axpy(p[j] * keep, dout, dqkv + v, d);
        reference_axpy(ds, qkv + q, dqkv + k, d);
        reference_axpy(ds, qkv + k, dqkv + q, d);
    }
}

/* out and lse must be zero before, dqkv +=. `length`: of chunks, which decide
 * dropout; s->seq if there are none. Returns sum(out dout). */
static inline double reference_run(const struct attention *s, int64_t length,
                                   const double *qkv, const double *dout,
                                   double *out, double *lse, double *dqkv)
{
    double *p = check_f64(s->seq);
    double loss = 0;
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t h = 0; h < s->heads; h++)
            for (int64_t t = 0; t < s->seq; t++) {
                int64_t row = ((b * s->seq + t) * s->heads + h) * s->head_dim;
                lse[(b * s->heads + h) * s->seq + t] =
                    reference_query(s, qkv, b, h, t, p);
                for (int64_t j = 0; j <= t; j++)
                    reference_axpy(p[j] * reference_kept(s, length, b, h, t, j),
                                   qkv + reference_at(s, b, j, VALUE, h),
                                   out + row, s->head_dim);
                loss += reference_dot(out + row, dout + row, s->head_dim);
                reference_query_backward(s, length, qkv, out + row, dout + row,
                                         b, h, t, p, dqkv);
            }
    return loss;
}

/* The largest difference between the gradient of sum(out dout), at random
 * inputs, and finite differences. */
static inline double reference_slope_error(const struct attention *s,
                                           int64_t length)
{
    int64_t n = reference_out(s), m = reference_qkv(s);
    double *qkv = check_f64(m), *dout = check_f64(n), *out = check_f64(n);
    double *lse = check_f64(reference_rows(s)), *grad = check_f64(m);
    double *unused = check_f64(m);
    double worst = 0;
    for (int64_t i = 0; i < m; i++)
        qkv[i] = check_uniform(1, i);
    for (int64_t i = 0; i < n; i++)
        dout[i] = check_uniform(2, i);
    reference_run(s, length, qkv, dout, out, lse, grad);
    for (int64_t i = 0; i < m; i++) {
        double loss[2], whole = qkv[i];
        for (int side = 0; side < 2; side++) {
            memset(out, 0, (size_t)n * sizeof(*out));
            qkv[i] = whole + (side == 0 ? 1e-5 : -1e-5);
            loss[side] = reference_run(s, length, qkv, dout, out, lse, unused);
        }
        qkv[i] = whole;
        worst = fmax(worst, fabs((loss[0] - loss[1]) / 2e-5 - grad[i]));
    }
    return worst;
}

static inline struct kernel_ctx ctx_of(const struct kernels *table,
                                       const struct attention *s, int threads)
{
    struct kernel_limits limits = { .tokens = s->batch * s->seq,
                                    .batch = s->batch,
                                    .seq = s->seq,
                                    .heads = s->heads,
                                    .head_dim = s->head_dim };
    return check_ctx(table, limits, threads);
}
