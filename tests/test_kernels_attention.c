/* attention on every table against fp64, the fp64 gradient against finite
 * differences. */
#include "tests/attention_reference.h"

struct attention_case {
    int64_t batch, seq, heads, kv_heads, head_dim;
    enum documents documents;
    bool alibi;
    float dropout;
    int64_t window;
};

static const struct attention_case cases[] = {
    { 1, 1, 1, 1, 1, ONE, false, 0, 0 },
    { 2, 5, 3, 3, 4, ONE, false, 0, 0 },
    { 1, 17, 2, 2, 33, PACKED, false, 0, 0 },
    { 2, 64, 2, 2, 32, ONE, false, 0, 0 },
    { 2, 65, 1, 1, 64, ONE, false, 0, 0 },
    { 1, 128, 2, 1, 16, ONE, false, 0, 0 },
    { 1, 129, 1, 1, 16, ONE, true, 0, 0 },
    { 1, 150, 2, 2, 24, PACKED, false, 0, 0 },
    { 2, 131, 2, 2, 20, INTERLEAVED, false, 0, 0 },
    { 1, 300, 1, 1, 128, ONE, false, 0, 0 },
    /* a key head is shared by 3, by all */
    { 1, 40, 12, 4, 8, ONE, false, 0, 0 },
    { 1, 270, 8, 1, 16, PACKED, false, 0, 0 },
    { 1, 150, 12, 12, 8, ONE, true, 0, 0 },
    { 2, 33, 12, 4, 8, PACKED, true, 0, 0 },
    /* whole tiles of keys, and parts of tiles, that no query sees */
    { 1, 500, 1, 1, 8, LONGER, false, 0, 0 },
    { 1, 700, 3, 1, 8, LONGER, true, 0.2f, 0 },
    { 1, 400, 1, 1, 8, PACKED, false, 0, 0 },
    /* as many diagonals as it takes */
    { 1, 520, 1, 1, 8, INTERLEAVED, false, 0, 0 },
    { 1, 3, 2, 2, 4, ONE, false, 0.5f, 0 },
    { 2, 37, 2, 2, 12, ONE, false, 0.1f, 0 },
    { 2, 202, 4, 2, 12, PACKED, true, 0.9f, 0 },
    /* windows: of one token, within and over tiles, as long as all */
    { 1, 37, 2, 2, 12, ONE, false, 0, 1 },
    { 2, 65, 2, 1, 16, ONE, true, 0, 7 },
    { 1, 700, 2, 1, 8, ONE, false, 0, 130 },
    { 1, 600, 1, 1, 8, ONE, false, 0.2f, 300 },
    { 1, 500, 3, 1, 8, LONGER, false, 0, 50 },
    { 2, 202, 4, 2, 12, INTERLEAVED, true, 0.4f, 33 },
    { 1, 150, 2, 2, 24, ONE, false, 0, 150 },
};

static struct attention shape_of(const struct attention_case *c,
                                 const int32_t *ids, const float *slopes)
{
    return (struct attention){ .batch = c->batch,
                               .seq = c->seq,
                               .heads = c->heads,
                               .kv_heads = c->kv_heads,
                               .head_dim = c->head_dim,
                               .window = c->window,
                               .scale = 1 / sqrtf((float)c->head_dim),
                               .alibi_slopes = slopes,
                               .sequence_ids = ids,
                               .dropout = c->dropout,
                               .random = reference_place };
}

/* out, dqkv and lse in one buffer. */
static int64_t outputs(const struct attention *s)
{
    return reference_out(s) + reference_qkv(s) + reference_rows(s);
}

static float *run(const struct kernels *table, const struct attention *s,
                  const float *qkv, const float *dout, int threads)
{
    float *out = check_poisoned(outputs(s));
    float *dqkv = out + reference_out(s);
    float *lse = dqkv + reference_qkv(s);
    struct kernel_ctx ctx = ctx_of(table, s, threads);
    table->attention_forward(&ctx, DTYPE_F32, s, qkv, out, lse);
    memset(ctx.scratch, 0xff, ctx.scratch_bytes);
    table->attention_backward(&ctx, DTYPE_F32, s, qkv, out, lse, dout, dqkv);
    return out;
}

static void describe(const struct attention_case *c, char what[128])
{
    snprintf(what, 128,
             "%lldx%lld heads %lld/%lld of %lld%s%s dropout %g window %lld",
             (long long)c->batch, (long long)c->seq, (long long)c->heads,
             (long long)c->kv_heads, (long long)c->head_dim,
             reference_documents[c->documents], c->alibi ? " alibi" : "",
             (double)c->dropout, (long long)c->window);
}

static void check_case(const struct kernels *table,
                       const struct attention_case *c)
{
    int32_t *ids = reference_ids(c->documents, c->batch, c->seq);
    float *slopes = c->alibi ? reference_slopes(c->heads) : NULL;
    struct attention s = shape_of(c, ids, slopes);
    int64_t rows = reference_rows(&s), n = reference_out(&s),
            m = reference_qkv(&s);
    float *qkv = check_random(m, 1, 2);
    float *dout = check_random(n, 2, 1);
    double *wide = check_widened(qkv, m);
    double *wide_dout = check_widened(dout, n);
    double *want_out = check_f64(n), *want_lse = check_f64(rows);
    double *want_dqkv = check_f64(m);
    reference_run(&s, s.seq, wide, wide_dout, want_out, want_lse, want_dqkv);
    float *out = run(table, &s, qkv, dout, 1);
    float *two = run(table, &s, qkv, dout, 2);
    float *three = check_runs(table) < 3 ? NULL : run(table, &s, qkv, dout, 3);
    char what[128];
    describe(c, what);
    check_below(table, "attention_forward", what,
                fmax(check_error(out, want_out, n),
                     check_error(out + n + m, want_lse, rows)),
                5e-6);
    check_below(table, "attention_backward", what,
                check_error(out + n, want_dqkv, m), 5e-6);
    check_that(table,
               check_same(out, two, outputs(&s)) &&
                   (three == NULL || check_same(out, three, outputs(&s))),
               "attention: %s, same bits on 1, 2, 3 threads", what);
    check_release();
}

/* Scores of hundreds must not overflow. */
static void check_large_scores(const struct kernels *table)
{
    const struct attention_case c = { 1, 200, 1, 1, 16, ONE, false, 0, 0 };
    struct attention s = shape_of(&c, NULL, NULL);
    float *qkv = check_random(reference_qkv(&s), 1, 40);
    float *dout = check_random(reference_out(&s), 2, 1);
    float *out = run(table, &s, qkv, dout, 1);
    check_that(table, check_no_nan(out, outputs(&s)),
               "attention: scores of a thousand stay finite");
    check_release();
}

static void check_nan_query(const struct kernels *table)
{
    const struct attention_case c = { 1, 200, 2, 2, 8, ONE, false, 0, 0 };
    struct attention s = shape_of(&c, NULL, NULL);
    int64_t n = reference_out(&s), m = reference_qkv(&s), t = 168;
    float *qkv = check_random(m, 1, 1);
    float *dout = check_random(n, 2, 1);
    qkv[reference_at(&s, 0, t, QUERY, 1)] = check_nan();
    float *out = run(table, &s, qkv, dout, 2);
    const float *row = out + (t * 2 + 1) * 8;
    const float *dqkv = out + n;
    check_that(table,
               check_all_nan(row, 8) && check_no_nan(out, row - out) &&
                   isnan(dqkv[reference_at(&s, 0, t, QUERY, 1)]) &&
                   isnan(dqkv[reference_at(&s, 0, 0, KEY, 1)]) &&
                   isnan(out[n + m + 200 + t]),
               "attention: a NaN reaches out, lse and gradients");
    check_release();
}

/* A token's outputs do not depend on what other documents hold, not even on a
 * NaN in a tile that no query of its own tile sees. */
static void check_other_documents(const struct kernels *table)
{
    const struct attention_case c = { 1, 400, 1, 1, 8, LONGER, false, 0, 0 };
    int32_t *ids = reference_ids(c.documents, c.batch, c.seq);
    struct attention s = shape_of(&c, ids, NULL);
    float *qkv = check_random(reference_qkv(&s), 1, 1);
    float *dout = check_random(reference_out(&s), 2, 1);
    float *before = run(table, &s, qkv, dout, 2);
    for (int64_t i = 0; i < 20 * 3 * 8; i++)
        qkv[i] = check_nan();
    float *after = run(table, &s, qkv, dout, 2);
    check_that(table,
               ids[300] != ids[127] &&
                   check_same(before + 300 * 8, after + 300 * 8, 100 * 8) &&
                   check_same(before + (400 + 300 * 3) * 8,
                              after + (400 + 300 * 3) * 8, 100 * 3 * 8) &&
                   check_all_nan(after, 20 * 8),
               "attention: tiles of other documents are skipped");
    check_release();
}

/* With equal scores and values of one, out is the share of keys that are kept
 * over 1 - p: on average 1, with the spread of a binomial distribution. */
static void check_dropout(const struct kernels *table)
{
    const struct attention_case c = { 2, 256, 4, 4, 4, ONE, false, 0.25f, 0 };
    struct attention s = shape_of(&c, NULL, NULL);
    int64_t n = reference_out(&s), m = reference_qkv(&s), row = 4 * 4;
    float *qkv = check_random(m, 1, 0);
    float *dout = check_random(n, 2, 1);
    for (int64_t i = 0; i < m; i++)
        qkv[i] = i / row % 3 == 2 ? 1 : 0;
    float *out = run(table, &s, qkv, dout, 2);
    double all = 0, keys = 0, chi = 0;
    for (int64_t i = 0; i < reference_rows(&s); i++) {
        double count = (double)(i / s.heads % s.seq + 1);
        double off = (double)out[i * s.head_dim] - 1;
        all += off * count;
        keys += count;
        chi += off * off * count / (0.25 / 0.75);
    }
    double mean = all / sqrt(keys * 0.25 / 0.75);
    double spread = (chi - (double)reference_rows(&s)) /
                    sqrt(2 * (double)reference_rows(&s));
    if (!check_that(table, fabs(mean) < 4 && fabs(spread) < 4,
                    "attention: dropout drops its share"))
        tap_note("mean off by %.2f, spread by %.2f standard deviations", mean,
                 spread);
    /* the second sample alone, under its own number */
    s.batch = 1;
    s.random.first_sample++;
    float *alone = run(table, &s, qkv + m / 2, dout + n / 2, 1);
    check_that(table,
               check_same(out + n / 2, alone, n / 2) &&
                   check_same(out + n + m / 2, alone + n / 2, m / 2),
               "attention: a sample's dropout is its own");
    check_release();
}

/* Rows of a long sequence, of one less long where threads are emulated or
 * nothing is a vector. */
static void check_long(const struct kernels *table)
{
    int64_t n = check_emulated(table)                       ? 2048
                : strcmp(table->kernel_set, "generic") == 0 ? 8192
                                                            : 32768;
    const struct attention_case c = { 1, n, 1, 1, 16, ONE, true, 0, 0 };
    const int64_t sampled[] = { 0, 1, 127, 128, n - 1000, n - 128, n - 1 };
    float *slope = CHECK_HELD(float, 1e-4f);
    struct attention s = shape_of(&c, NULL, slope);
    float *qkv = check_random(reference_qkv(&s), 1, 2);
    float *out = check_poisoned(reference_out(&s));
    float *lse = check_poisoned(reference_rows(&s));
    struct kernel_ctx ctx = ctx_of(table, &s, 2);
    double *wide = check_widened(qkv, reference_qkv(&s)), *p = check_f64(s.seq);
    double worst = 0;
    table->attention_forward(&ctx, DTYPE_F32, &s, qkv, out, lse);
    for (size_t i = 0; i < sizeof(sampled) / sizeof(*sampled); i++) {
        double want[16] = { 0 };
        int64_t t = sampled[i];
        double want_lse = reference_query(&s, wide, 0, 0, t, p);
        for (int64_t j = 0; j <= t; j++)
            reference_axpy(p[j], wide + reference_at(&s, 0, j, VALUE, 0), want,
                           16);
        worst = fmax(worst, check_error(out + t * 16, want, 16));
        worst = fmax(worst, check_error(lse + t, &want_lse, 1));
    }
    check_below(table, "attention_forward", "many tokens", worst, 5e-6);
    check_release();
}

static void check_reference(const struct attention_case *c)
{
    int32_t *ids = reference_ids(c->documents, c->batch, c->seq);
    float *slopes = c->alibi ? reference_slopes(c->heads) : NULL;
    struct attention s = shape_of(c, ids, slopes);
    char what[128];
    describe(c, what);
    tap_ok(reference_slope_error(&s, s.seq) < 1e-7,
           "the attention reference passes a gradient check: %s", what);
    check_release();
}

int main(void)
{
    static const struct attention_case small[] = {
        { 1, 6, 2, 2, 3, INTERLEAVED, false, 0, 0 },
        { 1, 6, 6, 2, 3, ONE, true, 0, 0 },
        { 2, 7, 4, 1, 2, PACKED, true, 0.4f, 0 },
        { 1, 9, 2, 1, 3, ONE, false, 0.3f, 4 },
    };
    for (size_t i = 0; i < sizeof(small) / sizeof(*small); i++)
        check_reference(&small[i]);
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++) {
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
