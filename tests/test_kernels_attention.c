/* attention on every table against fp64, the fp64 gradient against finite
 * differences. */
#include "tests/kernel_check.h"

#include <stdio.h>

enum documents { ONE, PACKED, INTERLEAVED };

struct attention_case {
    int64_t batch, seq, heads, head_dim;
    enum documents documents;
};

static const struct attention_case cases[] = {
    { 1, 1, 1, 1, ONE },
    { 2, 5, 3, 4, ONE },
    { 1, 17, 2, 33, PACKED },
    { 2, 64, 2, 32, ONE },
    { 2, 65, 1, 64, ONE },
    { 1, 150, 2, 24, PACKED },
    { 2, 131, 2, 20, INTERLEAVED },
    { 1, 300, 1, 128, ONE },
};

static int32_t *ids_create(const struct attention_case *c)
{
    int32_t *ids = check_alloc((size_t)(c->batch * c->seq) * sizeof(*ids));
    for (int64_t i = 0; i < c->batch * c->seq; i++)
        ids[i] = c->documents == PACKED ? (int32_t)(i % c->seq / 13)
                                        : (int32_t)(i % 3);
    return ids;
}

static struct attention shape_of(const struct attention_case *c,
                                 const int32_t *ids)
{
    return (struct attention){ .batch = c->batch,
                               .seq = c->seq,
                               .heads = c->heads,
                               .head_dim = c->head_dim,
                               .scale = 1 / sqrtf((float)c->head_dim),
                               .sequence_ids = ids };
}

static int64_t at(const struct attention *s, int64_t b, int64_t t,
                  int64_t which, int64_t h)
{
    return (((b * s->seq + t) * 3 + which) * s->heads + h) * s->head_dim;
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

/* Probabilities of query t; returns its log sum exp. */
static double query_forward(const struct attention *s, const double *qkv,
                            int64_t b, int64_t h, int64_t t, double *p)
{
    const int32_t *ids = s->sequence_ids;
    double sum = 0;
    for (int64_t j = 0; j <= t; j++) {
        double score =
            (double)s->scale *
            dot(qkv + at(s, b, t, 0, h), qkv + at(s, b, j, 1, h), s->head_dim);
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
        double ds = p[j] * (dot(dout, qkv + at(s, b, j, 2, h), d) - delta) *
                    (double)s->scale;
        axpy(p[j], dout, dqkv + at(s, b, j, 2, h), d);
        axpy(ds, qkv + at(s, b, t, 0, h), dqkv + at(s, b, j, 1, h), d);
        axpy(ds, qkv + at(s, b, j, 1, h), dqkv + at(s, b, t, 0, h), d);
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
                    axpy(p[j], qkv + at(s, b, j, 2, h), out + row, s->head_dim);
                loss += dot(out + row, dout + row, s->head_dim);
                query_backward(s, qkv, out + row, dout + row, b, h, t, p, dqkv);
            }
    free(p);
    return loss;
}

/* out, dqkv and lse in one buffer. */
static int64_t outputs(const struct attention *s)
{
    return s->batch * s->seq * s->heads * (4 * s->head_dim + 1);
}

static float *run(const struct kernels *table, const struct attention *s,
                  const float *qkv, const float *dout, int threads)
{
    int64_t rows = s->batch * s->seq * s->heads;
    float *out = check_poisoned(outputs(s));
    float *dqkv = out + rows * s->head_dim;
    float *lse = dqkv + rows * 3 * s->head_dim;
    struct kernel_limits limits = { .tokens = s->batch * s->seq,
                                    .batch = s->batch,
                                    .seq = s->seq,
                                    .width = s->heads * s->head_dim,
                                    .heads = s->heads,
                                    .head_dim = s->head_dim };
    struct kernel_ctx ctx = check_ctx(table, limits, threads);
    table->attention_forward(&ctx, DTYPE_F32, s, qkv, out, lse);
    memset(ctx.scratch, 0xff, ctx.scratch_bytes);
    table->attention_backward(&ctx, DTYPE_F32, s, qkv, out, lse, dout, dqkv);
    check_ctx_free(&ctx);
    return out;
}

static void check_case(const struct kernels *table,
                       const struct attention_case *c)
{
    int32_t *ids = c->documents == ONE ? NULL : ids_create(c);
    struct attention s = shape_of(c, ids);
    int64_t rows = s.batch * s.seq * s.heads, n = rows * s.head_dim;
    float *qkv = check_random(3 * n, 1, 2);
    float *dout = check_random(n, 2, 1);
    double *wide = check_widened(qkv, 3 * n);
    double *wide_dout = check_widened(dout, n);
    double *want_out = check_f64(n), *want_lse = check_f64(rows);
    double *want_dqkv = check_f64(3 * n);
    reference(&s, wide, wide_dout, want_out, want_lse, want_dqkv);
    float *out = run(table, &s, qkv, dout, 1);
    float *two = run(table, &s, qkv, dout, 2);
    float *three = run(table, &s, qkv, dout, 3);
    char what[96];
    snprintf(what, sizeof(what), "batch %lld seq %lld heads %lld dim %lld%s",
             (long long)s.batch, (long long)s.seq, (long long)s.heads,
             (long long)s.head_dim, ids == NULL ? "" : " with documents");
    check_below(table, "attention_forward", what,
                fmax(check_error(out, want_out, n),
                     check_error(out + 4 * n, want_lse, rows)),
                5e-6);
    check_below(table, "attention_backward", what,
                check_error(out + n, want_dqkv, 3 * n), 5e-6);
    tap_ok(check_same(out, two, outputs(&s)) &&
               check_same(out, three, outputs(&s)),
           "%s/%s attention: %s, same bits on 1, 2, 3 threads", table->backend,
           table->kernel_set, what);
    void *all[] = { three, two,       out,  want_dqkv, want_lse, want_out,
                    wide,  wide_dout, dout, qkv,       ids };
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        free(all[i]);
}

/* Scores of hundreds must not overflow. */
static void check_large_scores(const struct kernels *table)
{
    const struct attention_case c = { 1, 80, 1, 16, ONE };
    struct attention s = shape_of(&c, NULL);
    float *qkv = check_random(3 * 80 * 16, 1, 40);
    float *dout = check_random(80 * 16, 2, 1);
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
    const struct attention_case c = { 1, 70, 2, 8, ONE };
    struct attention s = shape_of(&c, NULL);
    float *qkv = check_random(3 * 70 * 16, 1, 1);
    float *dout = check_random(70 * 16, 2, 1);
    qkv[at(&s, 0, 68, 0, 1)] = check_nan();
    float *out = run(table, &s, qkv, dout, 2);
    const float *row = out + (68 * 2 + 1) * 8;
    const float *dqkv = out + 70 * 16;
    tap_ok(check_all_nan(row, 8) && check_no_nan(out, row - out) &&
               isnan(dqkv[at(&s, 0, 68, 0, 1)]) &&
               isnan(dqkv[at(&s, 0, 0, 1, 1)]) &&
               isnan(out[4 * 70 * 16 + 70 + 68]),
           "%s/%s attention: a NaN reaches out, lse and gradients",
           table->backend, table->kernel_set);
    free(out);
    free(dout);
    free(qkv);
}

static void check_reference(void)
{
    const struct attention_case c = { 1, 6, 2, 3, INTERLEAVED };
    enum { N = 6 * 2 * 3 };
    int32_t *ids = ids_create(&c);
    struct attention s = shape_of(&c, ids);
    double qkv[3 * N], dout[N], grad[3 * N] = { 0 };
    double worst = 0;
    for (int64_t i = 0; i < 3 * N; i++)
        qkv[i] = check_uniform(1, i);
    for (int64_t i = 0; i < N; i++)
        dout[i] = check_uniform(2, i);
    for (int64_t i = -1; i < 3 * N; i++) {
        double loss[2];
        for (int side = 0; side < 2; side++) {
            double out[N] = { 0 }, lse[12] = { 0 }, unused[3 * N] = { 0 };
            double kept = i < 0 ? 0 : qkv[i];
            if (i >= 0)
                qkv[i] += side == 0 ? 1e-5 : -1e-5;
            loss[side] = reference(&s, qkv, dout, out, lse, unused);
            if (i >= 0)
                qkv[i] = kept;
            else
                memcpy(grad, unused, sizeof(grad));
        }
        if (i >= 0)
            worst = fmax(worst, fabs((loss[0] - loss[1]) / 2e-5 - grad[i]));
    }
    tap_ok(worst < 1e-7, "the attention reference passes a gradient check");
    free(ids);
}

int main(void)
{
    check_reference();
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++) {
        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
            check_case(*t, &cases[i]);
        check_large_scores(*t);
        check_nan_query(*t);
    }
    return tap_done();
}
