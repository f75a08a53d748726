/* Attention in bf16 on every table that has it, and wide heads in fp32. Inputs
 * are bf16 numbers; what is right is the first CPU table's fp32 result on the
 * same numbers, which test_kernels_attention holds to fp64. Probabilities and
 * their gradients are rounded before they are multiplied, so an error is
 * relative to the largest element, not to each one. */
#include "tests/attention_reference.h"
#include "tests/bf16_tensor.h"

/* Of the roundings of probabilities, of out and of the gradients. */
#define ROUNDINGS 0x1p-7
#define FLOATS 5e-6

struct attention_case {
    int64_t batch, seq, heads, kv_heads, head_dim;
    int64_t document; /* tokens of each; 0: one document */
    bool alibi;
    float dropout;
};

static const struct attention_case cases[] = {
    { 1, 1, 1, 1, 8, 0, false, 0 },
    { 2, 70, 2, 2, 16, 0, false, 0 },
    { 1, 130, 2, 1, 64, 0, true, 0 },
    { 1, 129, 1, 1, 80, 40, false, 0 },
    { 1, 100, 3, 1, 128, 0, false, 0.2f },
    { 1, 75, 1, 1, 96, 0, true, 0.5f },
    { 2, 200, 4, 2, 24, 23, true, 0.1f },
    /* rows that are no multiple of 16 bytes */
    { 1, 67, 2, 1, 33, 0, false, 0.1f },
    { 1, 300, 1, 1, 32, 100, false, 0 },
};

/* Of the widest element type. */
struct result {
    float *out, *dqkv, *lse;
};

static struct result result_create(const struct attention *s)
{
    struct result r = { check_poisoned(reference_out(s)),
                        check_poisoned(reference_qkv(s)),
                        check_poisoned(reference_rows(s)) };
    return r;
}

static void result_compute(const struct kernels *table, enum dtype dtype,
                           const struct attention *s, const void *qkv,
                           const void *dout, struct result *r)
{
    struct kernel_ctx ctx = ctx_of(table, s, 1);
    table->attention_forward(&ctx, dtype, s, qkv, r->out, r->lse);
    table->attention_backward(&ctx, dtype, s, qkv, r->out, r->lse, dout,
                              r->dqkv);
}

/* Of n elements of bf16 that lie where there is room for n of fp32. */
static void widen(float *x, int64_t n)
{
    for (int64_t i = n - 1; i >= 0; i--) {
        uint16_t half;
        memcpy(&half, (char *)x + (size_t)i * sizeof(half), sizeof(half));
        x[i] = widened(half);
    }
}

static double error_of(const float *got, const float *want, int64_t n)
{
    return check_error(got, check_widened(want, n), n);
}

static void result_check(const struct kernels *table, const char *dtype,
                         const struct attention *s, const char *what,
                         double tolerance, const struct result *got,
                         const struct result *want)
{
    char text[160];
    snprintf(text, sizeof(text), "%s, %s", dtype, what);
    check_below(table, "attention_forward", text,
                error_of(got->out, want->out, reference_out(s)), tolerance);
    check_below(table, "attention_forward's lse", text,
                error_of(got->lse, want->lse, reference_rows(s)), FLOATS);
    check_below(table, "attention_backward", text,
                error_of(got->dqkv, want->dqkv, reference_qkv(s)), tolerance);
}

static void check_case(const struct kernels *cpu, const struct kernels *table,
                       const struct attention_case *c)
{
    float *slopes = check_poisoned(c->heads);
    int32_t *ids = check_alloc((size_t)(c->batch * c->seq) * sizeof(*ids));
    struct attention s = { .batch = c->batch,
                           .seq = c->seq,
                           .heads = c->heads,
                           .kv_heads = c->kv_heads,
                           .head_dim = c->head_dim,
                           .scale = 1 / sqrtf((float)c->head_dim),
                           .alibi_slopes = c->alibi ? slopes : NULL,
                           .sequence_ids = c->document > 0 ? ids : NULL,
                           .dropout = c->dropout,
                           .random = { 17, 0x123456789abcdefu, 3000000000 } };
    for (int64_t h = 0; h < c->heads; h++)
        slopes[h] = exp2f(-(float)h - 1);
    for (int64_t i = 0; c->document > 0 && i < c->batch * c->seq; i++)
        ids[i] = (int32_t)(i % c->seq / c->document);
    struct tensor qkv = tensor_random(reference_qkv(&s), 1, 2);
    struct tensor dout = tensor_random(reference_out(&s), 2, 1);
    struct result want = result_create(&s), got = result_create(&s);
    struct result half = result_create(&s);
    char what[96];
    snprintf(what, sizeof(what), "%lldx%lld heads %lld/%lld of %lld%s%s%s",
             (long long)c->batch, (long long)c->seq, (long long)c->heads,
             (long long)c->kv_heads, (long long)c->head_dim,
             c->document > 0 ? " packed" : "", c->alibi ? " alibi" : "",
             c->dropout > 0 ? " dropout" : "");
    result_compute(cpu, DTYPE_F32, &s, qkv.wide, dout.wide, &want);
    result_compute(table, DTYPE_F32, &s, qkv.wide, dout.wide, &got);
    result_check(table, "f32", &s, what, FLOATS, &got, &want);
    result_compute(table, DTYPE_BF16, &s, qkv.half, dout.half, &half);
    widen(half.out, reference_out(&s));
    widen(half.dqkv, reference_qkv(&s));
    result_check(table, "bf16", &s, what, ROUNDINGS, &half, &want);
    check_release();
}

/* With equal scores and values of one, out is the number of keys kept over
 * their number times 1 - p: it counts the same keys as the CPU's. */
static void check_masks(const struct kernels *cpu, const struct kernels *table)
{
    enum { SEQ = 90, D = 8 };
    struct attention s = { .batch = 2,
                           .seq = SEQ,
                           .heads = 2,
                           .kv_heads = 2,
                           .head_dim = D,
                           .scale = 1,
                           .dropout = 0.4f,
                           .random = { 3, 5, 7 } };
    int64_t n = reference_qkv(&s), m = reference_out(&s);
    struct tensor qkv = tensor_random(n, 1, 0), dout = tensor_random(m, 2, 1);
    for (int64_t i = 0; i < n; i++)
        qkv.wide[i] = i / (2 * D) % 3 == 2 ? 1 : 0;
    tensor_narrow(&qkv);
    struct result want = result_create(&s), half = result_create(&s);
    result_compute(cpu, DTYPE_F32, &s, qkv.wide, dout.wide, &want);
    result_compute(table, DTYPE_BF16, &s, qkv.half, dout.half, &half);
    widen(half.out, m);
    bool same = true;
    for (int64_t i = 0; i < m; i++) {
        double count = (double)(i / (2 * D) % SEQ + 1) * 0.6;
        double kept = fabs((double)half.out[i] - (double)want.out[i]) * count;
        same &= kept < 0.5;
    }
    check_that(table, same, "attention: as many keys dropped as on the CPU");
    check_release();
}

/* ERR_UNSUPPORTED instead of wrong numbers. */
static void check_refusal(const struct kernels *table)
{
    const struct attention s = {
        .batch = 1, .seq = 1, .heads = 1, .kv_heads = 1, .head_dim = 136
    };
    float *qkv = check_random(3 * 136, 1, 0), *out = check_poisoned(136);
    float *lse = check_poisoned(1), *scratch = check_poisoned(1);
    struct kernel_ctx ctx = { .threads = 1,
                              .scratch = scratch,
                              .scratch_bytes = sizeof(*scratch) };
    check_that(table,
               table->attention_forward(&ctx, DTYPE_F32, &s, qkv, out, lse) ==
                       ERR_UNSUPPORTED &&
                   table->attention_backward(&ctx, DTYPE_F32, &s, qkv, out, lse,
                                             out, qkv) == ERR_UNSUPPORTED,
               "attention: heads of 136 are refused");
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
    check_masks(cpu, table);
    check_refusal(table);
    return tap_done();
}
