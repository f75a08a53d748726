/* Attention over chunks in bf16 on every table that has it: the queries of the
 * last chunk against the keys of all. Inputs are bf16 numbers; what is right is
 * the first CPU table's fp32 result on the same numbers, which
 * test_kernels_attention_chunk holds to fp64. What chunks add to is fp32 on
 * both, and to add nothing changes no bit of it. */
#include "tests/attention_reference.h"
#include "tests/bf16_tensor.h"

/* Probabilities, their gradients and out are rounded once each, by 2^-9; what
 * chunks add to is never rounded. */
#define ROUNDINGS 0x1.8p-8
#define FLOATS 5e-6
#define CHUNKS_MAX 4

struct chunk_case {
    int64_t batch, chunks, length, heads, kv_heads, head_dim;
    int64_t document; /* tokens of each; 0: one document */
    bool ascending;   /* the keys' chunks from the first on */
    bool alibi;
    float dropout;
};

static const struct chunk_case cases[] = {
    { 1, 1, 1, 1, 1, 8, 0, false, false, 0 },
    { 1, 1, 150, 2, 1, 128, 70, false, true, 0.1f },
    { 2, 2, 67, 2, 2, 16, 0, false, false, 0 },
    { 1, 3, 128, 2, 1, 64, 0, true, false, 0 },
    { 1, 2, 200, 1, 1, 128, 0, false, false, 0 },
    { 1, 2, 140, 3, 1, 96, 0, true, true, 0 },
    { 1, 4, 45, 4, 2, 80, 60, false, false, 0 },
    /* a chunk of which no query sees a key is the first one */
    { 2, 4, 65, 2, 1, 64, 100, true, false, 0 },
    { 1, 3, 130, 1, 1, 32, 200, true, true, 0.2f },
    { 1, 3, 67, 2, 1, 128, 0, false, false, 0.5f },
    /* rows that are no multiple of 16 bytes */
    { 1, 2, 67, 2, 1, 33, 40, false, false, 0.1f },
};

/* Each tensor in fp32 and in bf16, on whatever table. */
struct ring {
    const struct chunk_case *c;
    float *slopes; /* [4] */
    int32_t *ids;  /* [chunks, batch, length] */
    struct tensor q, out, dout;
    struct tensor kv[CHUNKS_MAX];
    /* of fp32, of bf16 */
    float *sums[2], *dq[2], *dkv[2][CHUNKS_MAX], *lse[2];
};

static struct ring ring_create(const struct chunk_case *c)
{
    int64_t tokens = c->batch * c->length, queries = c->heads * c->head_dim;
    int64_t keys = 2 * c->kv_heads * c->head_dim;
    struct ring r = { .c = c };
    r.q = tensor_random(tokens * (queries + keys), 1, 2);
    r.out = tensor_random(tokens * queries, 2, 1);
    r.dout = tensor_random(tokens * queries, 3, 1);
    r.ids = check_alloc((size_t)(c->chunks * tokens) * sizeof(*r.ids));
    for (int64_t i = 0; i < c->chunks; i++) {
        r.kv[i] = tensor_random(tokens * keys, 10 + (uint64_t)i, 2);
        for (int k = 0; k < 2; k++)
            r.dkv[k][i] = check_random(tokens * keys, 20 + (uint64_t)i, 0.5);
        for (int64_t t = 0; c->document > 0 && t < tokens; t++)
            r.ids[i * tokens + t] =
                (int32_t)((i * c->length + t % c->length) / c->document);
    }
    r.slopes = check_alloc(4 * sizeof(*r.slopes));
    for (int i = 0; i < 4; i++)
        r.slopes[i] = exp2f(-(float)i - 3);
    for (int i = 0; i < 2; i++) {
        r.lse[i] = check_poisoned(tokens * c->heads);
        r.sums[i] = check_poisoned(tokens * queries);
        r.dq[i] = check_random(tokens * queries, 4, 0.5);
    }
    return r;
}

/* The last chunk's queries, the keys of chunk `keys`. */
static struct attention_chunk pair_of(const struct ring *r, int64_t keys)
{
    const struct chunk_case *c = r->c;
    int64_t last = c->chunks - 1, tokens = c->batch * c->length;
    const int32_t *ids = c->document > 0 ? r->ids : NULL;
    return (struct attention_chunk){
        .shape = { .batch = c->batch,
                   .seq = c->length,
                   .heads = c->heads,
                   .kv_heads = c->kv_heads,
                   .head_dim = c->head_dim,
                   .scale = 1 / sqrtf((float)c->head_dim),
                   .alibi_slopes = c->alibi ? r->slopes : NULL,
                   .sequence_ids = ids == NULL ? NULL : ids + last * tokens,
                   .dropout = c->dropout,
                   .random = { 17, 5 + (uint64_t)keys, 3000000000 } },
        .distance = (last - keys) * c->length,
        .key_ids = ids == NULL ? NULL : ids + keys * tokens,
        .dq_stride = c->heads * c->head_dim,
    };
}

static void *data_of(const struct tensor *t, enum dtype dtype)
{
    return dtype == DTYPE_F32 ? (void *)t->wide : t->half;
}

static enum err ring_run(const struct kernels *table, enum dtype dtype,
                         struct ring *r)
{
    const struct chunk_case *c = r->c;
    bool half = dtype == DTYPE_BF16;
    float *lse = r->lse[half], *sums = r->sums[half];
    void *q = data_of(&r->q, dtype), *out = data_of(&r->out, dtype);
    const struct attention shape = pair_of(r, 0).shape;
    struct kernel_ctx ctx = ctx_of(table, &shape, 1);
    enum err rc = ERR_OK;
    for (int64_t k = 0; k < c->chunks && rc == ERR_OK; k++) {
        int64_t keys = c->ascending ? k : c->chunks - 1 - k;
        const struct attention_chunk chunk = pair_of(r, keys);
        rc = table->attention_chunk_forward(&ctx, dtype, &chunk, q,
                                            data_of(&r->kv[keys], dtype),
                                            k == 0, sums, lse);
    }
    if (rc == ERR_OK && half)
        rc = table->convert(&ctx, r->out.n, DTYPE_F32, sums, dtype, out);
    else
        memcpy(out, sums, (size_t)r->out.n * sizeof(*sums));
    for (int64_t k = 0; k < c->chunks && rc == ERR_OK; k++) {
        const struct attention_chunk chunk = pair_of(r, k);
        memset(ctx.scratch, 0xff, ctx.scratch_bytes);
        rc = table->attention_chunk_backward(
            &ctx, dtype, &chunk, q, data_of(&r->kv[k], dtype), out, lse,
            data_of(&r->dout, dtype), r->dq[half], r->dkv[half][k]);
    }
    return rc;
}

static double sums_error(float *const sums[2], int64_t n)
{
    return check_error(sums[1], check_widened(sums[0], n), n);
}

static void check_case(const struct kernels *cpu, const struct kernels *table,
                       const struct chunk_case *c)
{
    struct ring r = ring_create(c);
    int64_t rows = c->batch * c->length * c->heads;
    char what[128];
    snprintf(what, sizeof(what),
             "bf16, %lldx%lldx%lld heads %lld/%lld of %lld%s%s%s%s",
             (long long)c->batch, (long long)c->chunks, (long long)c->length,
             (long long)c->heads, (long long)c->kv_heads,
             (long long)c->head_dim, c->document > 0 ? " packed" : "",
             c->alibi ? " alibi" : "", c->ascending ? " ascending" : "",
             c->dropout > 0 ? " dropout" : "");
    bool computed = ring_run(cpu, DTYPE_F32, &r) == ERR_OK &&
                    ring_run(table, DTYPE_BF16, &r) == ERR_OK;
    if (!computed)
        check_that(table, false, "attention_chunk: %s", what);
    double gradients = sums_error(r.dq, r.out.n);
    for (int64_t i = 0; i < c->chunks; i++) {
        float *const dkv[2] = { r.dkv[0][i], r.dkv[1][i] };
        gradients = fmax(gradients, sums_error(dkv, r.kv[i].n));
    }
    check_below(table, "attention_chunk_forward", what,
                sums_error(r.sums, r.out.n), ROUNDINGS);
    check_below(table, "attention_chunk_forward's lse", what,
                sums_error(r.lse, rows), FLOATS);
    check_below(table, "attention_chunk_backward", what, gradients, ROUNDINGS);
    check_release();
}

/* A gradient of 0 leaves the bits of what is added to, and so do keys that no
 * query sees: nothing is rounded between chunks. */
static void check_sums(const struct kernels *table)
{
    const struct chunk_case c = { 1, 2, 40, 2, 1, 32, 40, false, false, 0 };
    struct ring r = ring_create(&c);
    struct attention_chunk own = pair_of(&r, 1), far = pair_of(&r, 0);
    struct kernel_ctx ctx = ctx_of(table, &own.shape, 1);
    int64_t n = r.out.n;
    memset(r.dout.half, 0, (size_t)n * sizeof r.dout.half[0]);
    enum err rc =
        table->attention_chunk_forward(&ctx, DTYPE_BF16, &own, r.q.half,
                                       r.kv[1].half, true, r.sums[1], r.lse[1]);
    float *sums = check_copy(r.sums[1], n), *lse = check_copy(r.lse[1], 80);
    bool rounded = true;
    for (int64_t i = 0; i < n; i++)
        rounded &= check_bf16_of(sums[i]) == sums[i];
    if (rc == ERR_OK)
        rc = table->attention_chunk_forward(&ctx, DTYPE_BF16, &far, r.q.half,
                                            r.kv[0].half, false, r.sums[1],
                                            r.lse[1]);
    if (rc == ERR_OK)
        rc = table->convert(&ctx, n, DTYPE_F32, r.sums[1], DTYPE_BF16,
                            r.out.half);
    if (rc == ERR_OK)
        rc = table->attention_chunk_backward(&ctx, DTYPE_BF16, &own, r.q.half,
                                             r.kv[1].half, r.out.half, r.lse[1],
                                             r.dout.half, r.dq[1], r.dkv[1][1]);
    check_that(table,
               rc == ERR_OK && !rounded && check_same(sums, r.sums[1], n) &&
                   check_same(lse, r.lse[1], 80) &&
                   check_same(r.dq[0], r.dq[1], n) &&
                   check_same(r.dkv[0][1], r.dkv[1][1], r.kv[1].n),
               "attention_chunk: sums of bf16 are fp32 between chunks");
    check_release();
}

/* ERR_UNSUPPORTED instead of wrong numbers. */
static void check_refusal(const struct kernels *table)
{
    const struct chunk_case c = { 1, 1, 1, 1, 1, 136, 0, false, false, 0 };
    struct ring r = ring_create(&c);
    struct attention_chunk chunk = pair_of(&r, 0);
    struct kernel_ctx ctx = ctx_of(table, &chunk.shape, 1);
    check_that(
        table,
        table->attention_chunk_forward(&ctx, DTYPE_BF16, &chunk, r.q.half,
                                       r.kv[0].half, true, r.sums[1],
                                       r.lse[1]) == ERR_UNSUPPORTED &&
            table->attention_chunk_backward(
                &ctx, DTYPE_BF16, &chunk, r.q.half, r.kv[0].half, r.out.half,
                r.lse[1], r.dout.half, r.dq[1], r.dkv[1][0]) == ERR_UNSUPPORTED,
        "attention_chunk: heads of 136 are refused");
    check_release();
}

int main(void)
{
    const struct kernels *table = bf16_table();
    const struct kernels *cpu = kernels_all()[0];
    if (table == NULL)
        return tap_done();
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        check_case(cpu, table, &cases[i]);
    check_sums(table);
    check_refusal(table);
    return tap_done();
}
