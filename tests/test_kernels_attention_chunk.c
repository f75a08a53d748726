/* attention in chunks on every table: whatever the chunks and their order, out,
 * lse and gradients are those of whole attention in fp64. */
#include "tests/attention_reference.h"

struct chunk_case {
    int64_t batch, chunks, length, heads, kv_heads, head_dim;
    enum documents documents;
    bool ascending; /* the keys' chunks from the first on, else from the last */
    bool alibi;
    float dropout;
    int64_t window;
};

static const struct chunk_case cases[] = {
    { 1, 1, 1, 1, 1, 16, ONE, false, false, 0, 0 },
    { 2, 1, 150, 2, 1, 64, PACKED, false, true, 0.1f, 0 },
    { 1, 3, 1, 2, 1, 4, ONE, false, false, 0, 0 },
    { 2, 2, 33, 3, 3, 16, ONE, false, false, 0, 0 },
    { 1, 2, 128, 2, 2, 64, ONE, true, false, 0, 0 },
    { 1, 3, 130, 4, 4, 16, ONE, false, true, 0, 0 },
    { 1, 2, 300, 1, 1, 128, ONE, false, false, 0, 0 },
    { 1, 4, 257, 2, 1, 16, ONE, true, true, 0, 0 },
    { 2, 2, 70, 4, 2, 128, ONE, false, false, 0, 0 },
    { 1, 4, 60, 12, 4, 80, ONE, false, true, 0, 0 },
    { 1, 3, 65, 8, 1, 64, ONE, true, false, 0, 0 },
    /* documents begin in the middle of chunks, and queries see no key in most
     * chunks, or in parts of them */
    { 1, 4, 40, 8, 1, 80, PACKED, false, false, 0, 0 },
    { 2, 3, 37, 4, 2, 16, PACKED, true, true, 0, 0 },
    { 1, 3, 45, 2, 2, 64, INTERLEAVED, true, false, 0, 0 },
    { 2, 4, 30, 1, 1, 20, INTERLEAVED, false, true, 0, 0 },
    { 1, 2, 350, 2, 1, 16, LONGER, false, false, 0, 0 },
    { 1, 4, 200, 1, 1, 16, LONGER, true, true, 0, 0 },
    { 1, 2, 2, 2, 1, 4, ONE, false, false, 0.5f, 0 },
    { 2, 3, 67, 2, 2, 16, ONE, false, false, 0.1f, 0 },
    { 1, 4, 150, 4, 1, 16, LONGER, true, true, 0.3f, 0 },
    { 2, 2, 131, 4, 2, 12, PACKED, false, true, 0.9f, 0 },
    /* windows within a chunk, over one, over two */
    { 1, 3, 70, 4, 2, 16, ONE, false, true, 0, 9 },
    { 1, 4, 140, 2, 1, 16, ONE, true, false, 0, 150 },
    { 2, 4, 30, 2, 2, 12, INTERLEAVED, false, false, 0.2f, 65 },
};

/* What one rank of a ring holds: its tokens' tensors. */
struct part {
    float *q, *kv, *out, *lse, *dout, *dq, *dkv;
    int32_t *ids;
};

/* The whole sequences and their parts. */
struct ring {
    const struct chunk_case *c;
    struct attention whole; /* and of a chunk */
    struct attention local;
    struct part part[4];
};

static struct attention whole_of(const struct chunk_case *c, const int32_t *ids,
                                 const float *slopes)
{
    return (struct attention){ .batch = c->batch,
                               .seq = c->chunks * c->length,
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

/* `rows` rows of n elements, by their strides. */
static void rows_copy(int64_t rows, int64_t n, const float *from,
                      int64_t from_stride, float *to, int64_t to_stride)
{
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + i * to_stride, from + i * from_stride,
               (size_t)n * sizeof(*to));
}

/* Elements of a token's queries, and of its keys and values. */
static int64_t query_width(const struct chunk_case *c)
{
    return c->heads * c->head_dim;
}

static int64_t kv_width(const struct chunk_case *c)
{
    return 2 * c->kv_heads * c->head_dim;
}

/* Part i of packed tensors: queries go to `q`, whose other elements are NaN,
 * keys and values to `kv`. */
static void packed_split(const struct chunk_case *c, int64_t i,
                         const float *packed, float **q, float **kv)
{
    int64_t a = query_width(c), b = kv_width(c), length = c->length;
    *q = check_poisoned(c->batch * length * (a + b));
    *kv = check_alloc((size_t)(c->batch * length * b) * sizeof(**kv));
    for (int64_t s = 0; s < c->batch; s++) {
        const float *from = packed + (s * c->chunks + i) * length * (a + b);
        rows_copy(length, a, from, a + b, *q + s * length * (a + b), a + b);
        rows_copy(length, b, from + a, a + b, *kv + s * length * b, b);
    }
}

/* The other way; a changed element among q's keys and values would be lost, so
 * it spoils the result. */
static void packed_join(const struct chunk_case *c, int64_t i, const float *q,
                        const float *kv, float *packed)
{
    int64_t a = query_width(c), b = kv_width(c), length = c->length;
    const float poison = check_nan();
    for (int64_t s = 0; s < c->batch; s++) {
        float *to = packed + (s * c->chunks + i) * length * (a + b);
        const float *from = q + s * length * (a + b);
        rows_copy(length, a, from, a + b, to, a + b);
        rows_copy(length, b, kv + s * length * b, b, to + a, a + b);
        for (int64_t e = 0; e < length * (a + b); e++)
            if (e % (a + b) >= a && memcmp(from + e, &poison, 4) != 0)
                to[e] = check_nan();
    }
}

static struct ring ring_create(const struct chunk_case *c,
                               const struct attention *whole, const float *qkv,
                               const float *dout, const float *before)
{
    struct ring r = { .c = c, .whole = *whole, .local = *whole };
    int64_t width = query_width(c), n = c->batch * c->length * width;
    r.local.seq = c->length;
    for (int64_t i = 0; i < c->chunks; i++) {
        struct part *p = &r.part[i];
        packed_split(c, i, qkv, &p->q, &p->kv);
        packed_split(c, i, before, &p->dq, &p->dkv);
        p->out = check_poisoned(n);
        p->lse = check_poisoned(n / c->head_dim);
        p->dout = check_alloc((size_t)n * sizeof(float));
        rows_copy(c->batch, c->length * width, dout + i * c->length * width,
                  c->chunks * c->length * width, p->dout, c->length * width);
        if (whole->sequence_ids == NULL)
            continue;
        p->ids = check_alloc((size_t)(c->batch * c->length) * sizeof(int32_t));
        for (int64_t t = 0; t < c->batch * c->length; t++)
            p->ids[t] = whole->sequence_ids[t / c->length * whole->seq +
                                            i * c->length + t % c->length];
    }
    return r;
}

static struct attention_chunk pair_of(const struct ring *r, int64_t queries,
                                      int64_t keys)
{
    struct attention_chunk chunk = { .shape = r->local,
                                     .distance =
                                         (queries - keys) * r->c->length,
                                     .key_ids = r->part[keys].ids,
                                     .dq_stride =
                                         query_width(r->c) + kv_width(r->c) };
    chunk.shape.sequence_ids = r->part[queries].ids;
    chunk.shape.random.stream =
        reference_stream(&r->whole, r->c->chunks, queries, keys);
    return chunk;
}

/* The keys' chunk of step k, of the steps 0 to i. */
static int64_t step_keys(const struct chunk_case *c, int64_t i, int64_t k)
{
    return c->ascending ? k : i - k;
}

static void ring_forward(const struct kernels *table, struct kernel_ctx *ctx,
                         struct ring *r)
{
    for (int64_t i = 0; i < r->c->chunks; i++)
        for (int64_t k = 0; k <= i; k++) {
            int64_t j = step_keys(r->c, i, k);
            struct attention_chunk chunk = pair_of(r, i, j);
            memset(ctx->scratch, 0xff, ctx->scratch_bytes);
            table->attention_chunk_forward(ctx, DTYPE_F32, &chunk, r->part[i].q,
                                           r->part[j].kv, k == 0,
                                           r->part[i].out, r->part[i].lse);
        }
}

static void ring_backward(const struct kernels *table, struct kernel_ctx *ctx,
                          struct ring *r)
{
    for (int64_t i = 0; i < r->c->chunks; i++)
        for (int64_t k = 0; k <= i; k++) {
            int64_t j = step_keys(r->c, i, k);
            struct attention_chunk chunk = pair_of(r, i, j);
            const struct part *p = &r->part[i];
            memset(ctx->scratch, 0xff, ctx->scratch_bytes);
            table->attention_chunk_backward(ctx, DTYPE_F32, &chunk, p->q,
                                            r->part[j].kv, p->out, p->lse,
                                            p->dout, p->dq, r->part[j].dkv);
        }
}

/* out, dqkv and lse of the whole sequences, in one buffer. */
static int64_t outputs(const struct attention *s)
{
    return reference_out(s) + reference_qkv(s) + reference_rows(s);
}

/* dqkv has `before` added to it. */
static float *run(const struct kernels *table, const struct chunk_case *c,
                  const struct attention *whole, const float *qkv,
                  const float *dout, const float *before, int threads)
{
    struct ring r = ring_create(c, whole, qkv, dout, before);
    struct kernel_ctx ctx = ctx_of(table, &r.local, threads);
    float *out = check_poisoned(outputs(whole));
    float *dqkv = out + reference_out(whole);
    float *lse = dqkv + reference_qkv(whole);
    int64_t n = c->length * query_width(c);
    ring_forward(table, &ctx, &r);
    ring_backward(table, &ctx, &r);
    for (int64_t i = 0; i < c->chunks; i++) {
        const struct part *p = &r.part[i];
        packed_join(c, i, p->dq, p->dkv, dqkv);
        rows_copy(c->batch, n, p->out, n, out + i * n, c->chunks * n);
        rows_copy(c->batch * c->heads, c->length, p->lse, c->length,
                  lse + i * c->length, c->chunks * c->length);
    }
    return out;
}

static void describe(const struct chunk_case *c, char what[128])
{
    snprintf(what, 128,
             "%lldx%lldx%lld heads %lld/%lld of %lld%s%s%s, "
             "dropout %g",
             (long long)c->batch, (long long)c->chunks, (long long)c->length,
             (long long)c->heads, (long long)c->kv_heads,
             (long long)c->head_dim, reference_documents[c->documents],
             c->alibi ? " alibi" : "", c->ascending ? " ascending" : "",
             (double)c->dropout);
}

static void check_case(const struct kernels *table, const struct chunk_case *c)
{
    int32_t *ids = reference_ids(c->documents, c->batch, c->chunks * c->length);
    float *slopes = c->alibi ? reference_slopes(c->heads) : NULL;
    struct attention s = whole_of(c, ids, slopes);
    int64_t rows = reference_rows(&s), n = reference_out(&s);
    int64_t m = reference_qkv(&s);
    float *qkv = check_random(m, 1, 2);
    float *dout = check_random(n, 2, 1);
    float *before = check_random(m, 3, 0.5);
    double *wide = check_widened(qkv, m);
    double *wide_dout = check_widened(dout, n);
    double *want_out = check_f64(n), *want_lse = check_f64(rows);
    double *want_dqkv = check_widened(before, m);
    reference_run(&s, c->length, wide, wide_dout, want_out, want_lse,
                  want_dqkv);
    float *out = run(table, c, &s, qkv, dout, before, 1);
    float *two = run(table, c, &s, qkv, dout, before, 2);
    float *three =
        check_runs(table) < 3 ? NULL : run(table, c, &s, qkv, dout, before, 3);
    char what[128];
    describe(c, what);
    check_below(table, "attention_chunk_forward", what,
                fmax(check_error(out, want_out, n),
                     check_error(out + n + m, want_lse, rows)),
                5e-6);
    check_below(table, "attention_chunk_backward", what,
                check_error(out + n, want_dqkv, m), 5e-6);
    check_that(table,
               check_same(out, two, outputs(&s)) &&
                   (three == NULL || check_same(out, three, outputs(&s))),
               "attention_chunk: %s, same bits on 1, 2, 3 threads", what);
    check_release();
}

/* One chunk is attention_forward and attention_backward. */
static void check_one_chunk(const struct kernels *table)
{
    const struct chunk_case c = { 2,      1,     200,  4,    2, 24,
                                  PACKED, false, true, 0.1f, 0 };
    int32_t *ids = reference_ids(c.documents, c.batch, c.length);
    float *slopes = reference_slopes(c.heads);
    struct attention s = whole_of(&c, ids, slopes);
    int64_t n = reference_out(&s), m = reference_qkv(&s);
    float *qkv = check_random(m, 1, 2), *dout = check_random(n, 2, 1);
    float *zeros = check_random(m, 3, 0), *dqkv = check_poisoned(m);
    float *out = check_poisoned(n), *lse = check_poisoned(reference_rows(&s));
    float *got = run(table, &c, &s, qkv, dout, zeros, 2);
    struct kernel_ctx ctx = ctx_of(table, &s, 2);
    table->attention_forward(&ctx, DTYPE_F32, &s, qkv, out, lse);
    table->attention_backward(&ctx, DTYPE_F32, &s, qkv, out, lse, dout, dqkv);
    double *want = check_widened(out, n), *want_dqkv = check_widened(dqkv, m);
    double *want_lse = check_widened(lse, reference_rows(&s));
    double worst =
        fmax(check_error(got, want, n), check_error(got + n, want_dqkv, m));
    check_below(
        table, "attention_chunk", "one chunk is the whole",
        fmax(worst, check_error(got + n + m, want_lse, reference_rows(&s))),
        5e-6);
    check_release();
}

/* Queries 0 to 2 of the second chunk belong to a document of the first one:
 * only they see keys of it. */
static void check_unseen(const struct kernels *table)
{
    const struct chunk_case c = {
        1, 2, 140, 2, 1, 16, ONE, false, false, 0, 0
    };
    int32_t *ids = check_alloc(280 * sizeof(*ids));
    for (int i = 0; i < 280; i++)
        ids[i] = i < 130 ? 0 : i < 143 ? 1 : 2;
    struct attention s = whole_of(&c, ids, NULL);
    int64_t n = 140 * 2 * 16, seen = 3 * 2 * 16;
    float *qkv = check_random(reference_qkv(&s), 1, 2);
    float *dout = check_random(2 * n, 2, 1);
    struct ring r = ring_create(&c, &s, qkv, dout, qkv);
    struct kernel_ctx ctx = ctx_of(table, &r.local, 2);
    struct attention_chunk far = pair_of(&r, 1, 0);
    struct part *p = &r.part[1];
    table->attention_chunk_forward(&ctx, DTYPE_F32, &far, p->q, r.part[0].kv,
                                   true, p->out, p->lse);
    bool empty = check_no_nan(p->out, n);
    for (int64_t i = seen; i < n; i++)
        empty = empty && p->out[i] == 0;
    for (int64_t i = 0; i < 280; i++)
        empty = empty && !isnan(p->lse[i]) &&
                (p->lse[i] == -INFINITY) == (i % 140 >= 3);
    check_that(table, empty,
               "attention_chunk: a query without keys has 0 and -Inf");
    ring_forward(table, &ctx, &r);
    float *out = check_copy(p->out, n), *lse = check_copy(p->lse, 280);
    table->attention_chunk_forward(&ctx, DTYPE_F32, &far, p->q, r.part[0].kv,
                                   false, p->out, p->lse);
    check_that(table,
               check_same(out + seen, p->out + seen, n - seen) &&
                   check_same(lse + 3, p->lse + 3, 137) &&
                   check_same(lse + 143, p->lse + 143, 137) &&
                   !check_same(out, p->out, 16) && lse[0] < p->lse[0],
               "attention_chunk: a query without keys keeps out and lse");
    check_release();
}

/* Scores of hundreds must not overflow, and a NaN must not get lost, when
 * chunks are merged. */
static void check_extremes(const struct kernels *table)
{
    const struct chunk_case c = {
        1, 3, 100, 1, 1, 16, ONE, false, false, 0, 0
    };
    struct attention s = whole_of(&c, NULL, NULL);
    int64_t n = reference_out(&s), m = reference_qkv(&s), t = 150;
    float *qkv = check_random(m, 1, 40), *dout = check_random(n, 2, 1);
    float *zeros = check_random(m, 3, 0);
    float *large = run(table, &c, &s, qkv, dout, zeros, 1);
    check_that(table, check_no_nan(large, outputs(&s)),
               "attention_chunk: scores of a thousand stay finite");
    qkv[reference_at(&s, 0, t, QUERY, 0)] = check_nan();
    float *out = run(table, &c, &s, qkv, dout, zeros, 1);
    const float *lse = out + n + m;
    check_that(table,
               check_all_nan(out + t * 16, 16) && isnan(lse[t]) &&
                   check_no_nan(out, t * 16) &&
                   check_no_nan(out + (t + 1) * 16, n - (t + 1) * 16) &&
                   check_no_nan(lse, t) && check_no_nan(lse + t + 1, 299 - t) &&
                   isnan(out[n + reference_at(&s, 0, t, QUERY, 0)]) &&
                   isnan(out[n + reference_at(&s, 0, 0, KEY, 0)]),
               "attention_chunk: a NaN reaches out, lse and gradients");
    check_release();
}

static void check_reference(void)
{
    const struct chunk_case c = {
        2, 3, 3, 4, 2, 2, PACKED, false, true, 0.4f, 0
    };
    float *slopes = reference_slopes(c.heads);
    int32_t *ids = reference_ids(c.documents, c.batch, c.chunks * c.length);
    struct attention s = whole_of(&c, ids, slopes);
    char what[128];
    describe(&c, what);
    tap_ok(reference_slope_error(&s, c.length) < 1e-7,
           "the attention reference passes a gradient check: %s", what);
    check_release();
}

int main(void)
{
    check_reference();
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++) {
        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
            check_case(*t, &cases[i]);
        check_one_chunk(*t);
        check_unseen(*t);
        check_extremes(*t);
    }
    return tap_done();
}
