/* attention on every table against fp64, the fp64 gradient against finite
 * differences. */
#include "src/base/rng.h"
#include "tests/kernel_check.h"

#include <stdio.h>

enum documents { ONE, PACKED, INTERLEAVED, LONGER };

struct attention_case {
    int64_t batch, seq, heads, kv_heads, head_dim;
    enum documents documents;
    bool alibi;
    float dropout;
};

static const struct attention_case cases[] = {
    { 1, 1, 1, 1, 1, ONE, false, 0 },
    { 2, 5, 3, 3, 4, ONE, false, 0 },
    { 1, 17, 2, 2, 33, PACKED, false, 0 },
    { 2, 64, 2, 2, 32, ONE, false, 0 },
    { 2, 65, 1, 1, 64, ONE, false, 0 },
    { 1, 128, 2, 1, 16, ONE, false, 0 },
    { 1, 129, 1, 1, 16, ONE, true, 0 },
    { 1, 150, 2, 2, 24, PACKED, false, 0 },
    { 2, 131, 2, 2, 20, INTERLEAVED, false, 0 },
    { 1, 300, 1, 1, 128, ONE, false, 0 },
    /* a key head is shared by 3, by all */
    { 1, 40, 12, 4, 8, ONE, false, 0 },
    { 1, 270, 8, 1, 16, PACKED, false, 0 },
    { 1, 150, 12, 12, 8, ONE, true, 0 },
    { 2, 33, 12, 4, 8, PACKED, true, 0 },
    /* whole tiles of keys, and parts of tiles, that no query sees */
    { 1, 500, 1, 1, 8, LONGER, false, 0 },
    { 1, 700, 3, 1, 8, LONGER, true, 0.2f },
    { 1, 400, 1, 1, 8, PACKED, false, 0 },
    /* as many diagonals as it takes */
    { 1, 520, 1, 1, 8, INTERLEAVED, false, 0 },
    { 1, 3, 2, 2, 4, ONE, false, 0.5f },
    { 2, 37, 2, 2, 12, ONE, false, 0.1f },
    { 2, 202, 4, 2, 12, PACKED, true, 0.9f },
};

static const struct random_place place = { 17, 0x123456789abcdefu, 3000000000 };

/* The fourth of the longer documents begins with the last key of a tile. */
static int32_t *ids_create(const struct attention_case *c)
{
    int32_t *ids = check_alloc((size_t)(c->batch * c->seq) * sizeof(*ids));
    for (int64_t i = 0; i < c->batch * c->seq; i++) {
        int64_t t = i % c->seq;
        ids[i] = c->documents == PACKED   ? (int32_t)(t / 13)
                 : c->documents == LONGER ? (int32_t)(t / 85) - 2
                                          : (int32_t)(i % 3);
    }
    return ids;
}

/* ALiBi's slopes of 12 heads: of the 16 powers of 2^-0.5 every other one, then
 * the ones between (Press, Smith and Lewis 2021). */
static float *slopes_create(int64_t heads)
{
    float *slopes = check_alloc((size_t)heads * sizeof(*slopes));
    for (int64_t h = 0; h < heads; h++) {
        int64_t power = h < 8 ? 2 * (h + 1) : 2 * (h - 8) + 1;
        slopes[h] = (float)exp2(-0.5 * (double)power);
    }
    return slopes;
}

static struct attention shape_of(const struct attention_case *c,
                                 const int32_t *ids, const float *slopes)
{
    return (struct attention){ .batch = c->batch,
                               .seq = c->seq,
                               .heads = c->heads,
                               .kv_heads = c->kv_heads,
                               .head_dim = c->head_dim,
                               .scale = 1 / sqrtf((float)c->head_dim),
                               .alibi_slopes = slopes,
                               .sequence_ids = ids,
                               .dropout = c->dropout,
                               .random = place };
}

static int64_t slots(const struct attention *s)
{
    return s->heads + 2 * s->kv_heads;
}

/* The packed row of token t: of query head h, or of its key or value. */
enum role { QUERY, KEY, VALUE };

static int64_t at(const struct attention *s, int64_t b, int64_t t,
                  enum role role, int64_t h)
{
    int64_t kv = h / (s->heads / s->kv_heads);
    int64_t slot = role == QUERY ? h
                   : role == KEY ? s->heads + kv
                                 : s->heads + s->kv_heads + kv;
    return ((b * s->seq + t) * slots(s) + slot) * s->head_dim;
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void axpy(double scale, const double *x, double *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += scale * x[i];
}

/* 0 if dropout drops the probability, otherwise what it is multiplied by: word
 * by word, from the generator itself. */
static double kept(const struct attention *s, int64_t b, int64_t h, int64_t t,
                   int64_t j)
{
    if (s->dropout <= 0)
        return 1;
    uint64_t key = rng_u64(s->random.seed, s->random.stream,
                           (uint64_t)(s->random.first_sample + b));
    uint64_t element =
        (uint64_t)((h * s->seq + t) * ((s->seq + 3) / 4 * 4) + j);
    uint64_t block = element / 4;
    const uint32_t halves[2] = { (uint32_t)key, (uint32_t)(key >> 32) };
    const uint32_t counter[4] = { (uint32_t)block, (uint32_t)(block >> 32) };
    uint32_t words[4];
    rng_philox(halves, counter, words);
    bool dropped = words[element % 4] < (double)s->dropout * 0x1p32;
    return dropped ? 0 : 1 / (1 - (double)s->dropout);
}

/* Probabilities of query t before dropout; returns its log sum exp. */
static double query_forward(const struct attention *s, const double *qkv,
                            int64_t b, int64_t h, int64_t t, double *p)
{
    const int32_t *ids = s->sequence_ids;
    double slope = s->alibi_slopes == NULL ? 0 : (double)s->alibi_slopes[h];
    double sum = 0;
    for (int64_t j = 0; j <= t; j++) {
        double score =
            (double)s->scale * dot(qkv + at(s, b, t, QUERY, h),
                                   qkv + at(s, b, j, KEY, h), s->head_dim) +
            slope * (double)(j - t);
        bool seen = ids == NULL || ids[b * s->seq + j] == ids[b * s->seq + t];
        p[j] = seen ? exp(score) : 0;
        sum += p[j];
    }
    for (int64_t j = 0; j <= t; j++)
        p[j] /= sum;
    return log(sum);
}

static void query_backward(const struct attention *s, const double *qkv,
                           const double *out, const double *dout, int64_t b,
                           int64_t h, int64_t t, const double *p, double *dqkv)
{
    int64_t d = s->head_dim;
    double delta = dot(out, dout, d);
    for (int64_t j = 0; j <= t; j++) {
        double keep = kept(s, b, h, t, j);
        double dp = keep * dot(dout, qkv + at(s, b, j, VALUE, h), d);
        double ds = p[j] * (dp - delta) * (double)s->scale;
        axpy(p[j] * keep, dout, dqkv + at(s, b, j, VALUE, h), d);
        axpy(ds, qkv + at(s, b, t, QUERY, h), dqkv + at(s, b, j, KEY, h), d);
        axpy(ds, qkv + at(s, b, j, KEY, h), dqkv + at(s, b, t, QUERY, h), d);
    }
}

/* out, lse and dqkv must be zero before. Returns sum(out dout). */
static double reference(const struct attention *s, const double *qkv,
                        const double *dout, double *out, double *lse,
                        double *dqkv)
{
    double *p = check_f64(s->seq);
    double loss = 0;
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t h = 0; h < s->heads; h++)
            for (int64_t t = 0; t < s->seq; t++) {
                int64_t row = ((b * s->seq + t) * s->heads + h) * s->head_dim;
                lse[(b * s->heads + h) * s->seq + t] =
                    query_forward(s, qkv, b, h, t, p);
                for (int64_t j = 0; j <= t; j++)
                    axpy(p[j] * kept(s, b, h, t, j),
                         qkv + at(s, b, j, VALUE, h), out + row, s->head_dim);
                loss += dot(out + row, dout + row, s->head_dim);
                query_backward(s, qkv, out + row, dout + row, b, h, t, p, dqkv);
            }
    free(p);
    return loss;
}

/* Elements of the tensors. */
static int64_t rows_of(const struct attention *s)
{
    return s->batch * s->seq * s->heads;
}

static int64_t out_of(const struct attention *s)
{
    return rows_of(s) * s->head_dim;
}

static int64_t qkv_of(const struct attention *s)
{
    return s->batch * s->seq * slots(s) * s->head_dim;
}

/* out, dqkv and lse in one buffer. */
static int64_t outputs(const struct attention *s)
{
    return out_of(s) + qkv_of(s) + rows_of(s);
}

static struct kernel_ctx ctx_of(const struct kernels *table,
                                const struct attention *s, int threads)
{
    struct kernel_limits limits = { .tokens = s->batch * s->seq,
                                    .batch = s->batch,
                                    .seq = s->seq,
                                    .width = s->heads * s->head_dim,
                                    .heads = s->heads,
                                    .head_dim = s->head_dim };
    return check_ctx(table, limits, threads);
}

static float *run(const struct kernels *table, const struct attention *s,
                  const float *qkv, const float *dout, int threads)
{
    float *out = check_poisoned(outputs(s));
    float *dqkv = out + out_of(s);
    float *lse = dqkv + qkv_of(s);
    struct kernel_ctx ctx = ctx_of(table, s, threads);
    table->attention_forward(&ctx, DTYPE_F32, s, qkv, out, lse);
    memset(ctx.scratch, 0xff, ctx.scratch_bytes);
    table->attention_backward(&ctx, DTYPE_F32, s, qkv, out, lse, dout, dqkv);
    check_ctx_free(&ctx);
    return out;
}

static void describe(const struct attention_case *c, char what[128])
{
    static const char *const documents[] = { "", " packed", " interleaved",
                                             " longer" };
    snprintf(what, 128, "%lldx%lld heads %lld/%lld of %lld%s%s dropout %g",
             (long long)c->batch, (long long)c->seq, (long long)c->heads,
             (long long)c->kv_heads, (long long)c->head_dim,
             documents[c->documents], c->alibi ? " alibi" : "",
             (double)c->dropout);
}

static void check_case(const struct kernels *table,
                       const struct attention_case *c)
{
    int32_t *ids = c->documents == ONE ? NULL : ids_create(c);
    float *slopes = c->alibi ? slopes_create(c->heads) : NULL;
    struct attention s = shape_of(c, ids, slopes);
    int64_t rows = rows_of(&s), n = out_of(&s), m = qkv_of(&s);
    float *qkv = check_random(m, 1, 2);
    float *dout = check_random(n, 2, 1);
    double *wide = check_widened(qkv, m);
    double *wide_dout = check_widened(dout, n);
    double *want_out = check_f64(n), *want_lse = check_f64(rows);
    double *want_dqkv = check_f64(m);
    reference(&s, wide, wide_dout, want_out, want_lse, want_dqkv);
    float *out = run(table, &s, qkv, dout, 1);
    float *two = run(table, &s, qkv, dout, 2);
    float *three = run(table, &s, qkv, dout, 3);
    char what[128];
    describe(c, what);
    check_below(table, "attention_forward", what,
                fmax(check_error(out, want_out, n),
                     check_error(out + n + m, want_lse, rows)),
                5e-6);
    check_below(table, "attention_backward", what,
                check_error(out + n, want_dqkv, m), 5e-6);
    tap_ok(check_same(out, two, outputs(&s)) &&
               check_same(out, three, outputs(&s)),
           "%s/%s attention: %s, same bits on 1, 2, 3 threads", table->backend,
           table->kernel_set, what);
    void *all[] = { three, two,       out,  want_dqkv, want_lse, want_out,
                    wide,  wide_dout, dout, qkv,       slopes,   ids };
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        free(all[i]);
}

/* Scores of hundreds must not overflow. */
static void check_large_scores(const struct kernels *table)
{
    const struct attention_case c = { 1, 200, 1, 1, 16, ONE, false, 0 };
    struct attention s = shape_of(&c, NULL, NULL);
    float *qkv = check_random(qkv_of(&s), 1, 40);
    float *dout = check_random(out_of(&s), 2, 1);
    float *out = run(table, &s, qkv, dout, 1);
    tap_ok(check_no_nan(out, outputs(&s)),
           "%s/%s attention: scores of a thousand stay finite", table->backend,
           table->kernel_set);
    free(out);
    free(dout);
    free(qkv);
}

static void check_nan_query(const struct kernels *table)
{
    const struct attention_case c = { 1, 200, 2, 2, 8, ONE, false, 0 };
    struct attention s = shape_of(&c, NULL, NULL);
    int64_t n = out_of(&s), m = qkv_of(&s), t = 168;
    float *qkv = check_random(m, 1, 1);
    float *dout = check_random(n, 2, 1);
    qkv[at(&s, 0, t, QUERY, 1)] = check_nan();
    float *out = run(table, &s, qkv, dout, 2);
    const float *row = out + (t * 2 + 1) * 8;
    const float *dqkv = out + n;
    tap_ok(check_all_nan(row, 8) && check_no_nan(out, row - out) &&
               isnan(dqkv[at(&s, 0, t, QUERY, 1)]) &&
               isnan(dqkv[at(&s, 0, 0, KEY, 1)]) && isnan(out[n + m + 200 + t]),
           "%s/%s attention: a NaN reaches out, lse and gradients",
           table->backend, table->kernel_set);
    free(out);
    free(dout);
    free(qkv);
}

/* A token's outputs do not depend on what other documents hold, not even on a
 * NaN in a tile that no query of its own tile sees. */
static void check_other_documents(const struct kernels *table)
{
    const struct attention_case c = { 1, 400, 1, 1, 8, LONGER, false, 0 };
    int32_t *ids = ids_create(&c);
    struct attention s = shape_of(&c, ids, NULL);
    float *qkv = check_random(qkv_of(&s), 1, 1);
    float *dout = check_random(out_of(&s), 2, 1);
    float *before = run(table, &s, qkv, dout, 2);
    for (int64_t i = 0; i < 20 * 3 * 8; i++)
        qkv[i] = check_nan();
    float *after = run(table, &s, qkv, dout, 2);
    tap_ok(ids[300] != ids[127] &&
               check_same(before + 300 * 8, after + 300 * 8, 100 * 8) &&
               check_same(before + (400 + 300 * 3) * 8,
                          after + (400 + 300 * 3) * 8, 100 * 3 * 8) &&
               check_all_nan(after, 20 * 8),
           "%s/%s attention: tiles of other documents are skipped",
           table->backend, table->kernel_set);
    free(after);
    free(before);
    free(dout);
    free(qkv);
    free(ids);
}

/* With equal scores and values of one, out is the share of keys that are kept
 * over 1 - p: on average 1, with the spread of a binomial distribution. */
static void check_dropout(const struct kernels *table)
{
    const struct attention_case c = { 2, 256, 4, 4, 4, ONE, false, 0.25f };
    struct attention s = shape_of(&c, NULL, NULL);
    int64_t n = out_of(&s), m = qkv_of(&s), row = 4 * 4;
    float *qkv = check_random(m, 1, 0);
    float *dout = check_random(n, 2, 1);
    for (int64_t i = 0; i < m; i++)
        qkv[i] = i / row % 3 == 2 ? 1 : 0;
    float *out = run(table, &s, qkv, dout, 2);
    double all = 0, keys = 0, chi = 0;
    for (int64_t i = 0; i < rows_of(&s); i++) {
        double count = (double)(i / s.heads % s.seq + 1);
        double off = (double)out[i * s.head_dim] - 1;
        all += off * count;
        keys += count;
        chi += off * off * count / (0.25 / 0.75);
    }
    double mean = all / sqrt(keys * 0.25 / 0.75);
    double spread = (chi - (double)rows_of(&s)) / sqrt(2 * (double)rows_of(&s));
    if (!tap_ok(fabs(mean) < 4 && fabs(spread) < 4,
                "%s/%s attention: dropout drops its share", table->backend,
                table->kernel_set))
        tap_note("mean off by %.2f, spread by %.2f standard deviations", mean,
                 spread);
    /* the second sample alone, under its own number */
    s.batch = 1;
    s.random.first_sample++;
    float *alone = run(table, &s, qkv + m / 2, dout + n / 2, 1);
    tap_ok(check_same(out + n / 2, alone, n / 2) &&
               check_same(out + n + m / 2, alone + n / 2, m / 2),
           "%s/%s attention: a sample's dropout is its own", table->backend,
           table->kernel_set);
    free(alone);
    free(out);
    free(dout);
    free(qkv);
}

/* Rows of a long sequence, of one less long where threads are emulated. */
static void check_long(const struct kernels *table)
{
    int64_t n = strcmp(table->kernel_set, "emulated") == 0 ? 2048 : 32768;
    const struct attention_case c = { 1, n, 1, 1, 16, ONE, true, 0 };
    const int64_t sampled[] = { 0, 1, 127, 128, n - 1000, n - 128, n - 1 };
    const float slope = 1e-4f;
    struct attention s = shape_of(&c, NULL, &slope);
    float *qkv = check_random(qkv_of(&s), 1, 2);
    float *out = check_poisoned(out_of(&s));
    float *lse = check_poisoned(rows_of(&s));
    struct kernel_ctx ctx = ctx_of(table, &s, 2);
    double *wide = check_widened(qkv, qkv_of(&s)), *p = check_f64(s.seq);
    double worst = 0;
    table->attention_forward(&ctx, DTYPE_F32, &s, qkv, out, lse);
    for (size_t i = 0; i < sizeof(sampled) / sizeof(*sampled); i++) {
        double want[16] = { 0 };
        int64_t t = sampled[i];
        double want_lse = query_forward(&s, wide, 0, 0, t, p);
        for (int64_t j = 0; j <= t; j++)
            axpy(p[j], wide + at(&s, 0, j, VALUE, 0), want, 16);
        worst = fmax(worst, check_error(out + t * 16, want, 16));
        worst = fmax(worst, check_error(lse + t, &want_lse, 1));
    }
    check_below(table, "attention_forward", "many tokens", worst, 5e-6);
    check_ctx_free(&ctx);
    void *all[] = { p, wide, lse, out, qkv };
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        free(all[i]);
}

static void check_reference(const struct attention_case *c)
{
    int32_t *ids = c->documents == ONE ? NULL : ids_create(c);
    float *slopes = slopes_create(c->heads);
    struct attention s = shape_of(c, ids, c->alibi ? slopes : NULL);
    int64_t n = out_of(&s), m = qkv_of(&s);
    double *qkv = check_f64(m), *dout = check_f64(n), *out = check_f64(n);
    double *lse = check_f64(rows_of(&s)), *grad = check_f64(m);
    double *unused = check_f64(m);
    double worst = 0;
    for (int64_t i = 0; i < m; i++)
        qkv[i] = check_uniform(1, i);
    for (int64_t i = 0; i < n; i++)
        dout[i] = check_uniform(2, i);
    reference(&s, qkv, dout, out, lse, grad);
    for (int64_t i = 0; i < m; i++) {
        double loss[2], whole = qkv[i];
        for (int side = 0; side < 2; side++) {
            memset(out, 0, (size_t)n * sizeof(*out));
            qkv[i] = whole + (side == 0 ? 1e-5 : -1e-5);
            loss[side] = reference(&s, qkv, dout, out, lse, unused);
        }
        qkv[i] = whole;
        worst = fmax(worst, fabs((loss[0] - loss[1]) / 2e-5 - grad[i]));
    }
    char what[128];
    describe(c, what);
    tap_ok(worst < 1e-7, "the attention reference passes a gradient check: %s",
           what);
    void *all[] = { unused, grad, lse, out, dout, qkv, slopes, ids };
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        free(all[i]);
}

/* By one query of one key. */
static bool lacks_attention(const struct kernels *table)
{
    const struct attention shape = {
        .batch = 1, .seq = 1, .heads = 1, .kv_heads = 1, .head_dim = 8
    };
    struct kernel_limits limits = {
        .tokens = 1, .batch = 1, .seq = 1, .heads = 1, .head_dim = 8
    };
    struct kernel_ctx ctx = check_ctx(table, limits, 1);
    float qkv[3 * 8] = { 0 }, out[8], lse;
    enum err rc =
        table->attention_forward(&ctx, DTYPE_F32, &shape, qkv, out, &lse);
    check_ctx_free(&ctx);
    return check_lacks(table, rc);
}

int main(void)
{
    static const struct attention_case small[] = {
        { 1, 6, 2, 2, 3, INTERLEAVED, false, 0 },
        { 1, 6, 6, 2, 3, ONE, true, 0 },
        { 2, 7, 4, 1, 2, PACKED, true, 0.4f },
    };
    for (size_t i = 0; i < sizeof(small) / sizeof(*small); i++)
        check_reference(&small[i]);
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++) {
        if (lacks_attention(*t))
            continue;
        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
            check_case(*t, &cases[i]);
        check_large_scores(*t);
        check_nan_query(*t);
        check_other_documents(*t);
        check_dropout(*t);
        check_long(*t);
    }
    return tap_done();
}
