/* The ops in bf16 on every table that has them. Inputs are bf16 numbers; what
 * is right is the first CPU table's fp32 result on the same numbers, which the
 * other tests hold to fp64. A bf16 output may be off by one rounding, an fp32
 * one by the op's tolerance. */
#include "tests/activation_reference.h"
#include "tests/bf16_tensor.h"

#include "src/base/real.h"
#include "src/parallel/optimizer/optimizer.h"

#define FLOATS 5e-6 /* relative to the largest */

static const struct kernels *cpu;

/* An op in fp32 on the CPU, and in bf16 on the other table; among its arguments
 * are a tensor's elements there, those from one on, and either of two. */
#define BOTH(op, ctx, ...)                                                     \
    for (int side = 0; side < 2; side++)                                       \
    EITHER(cpu, table)->op(ctx, EITHER(DTYPE_F32, DTYPE_BF16), __VA_ARGS__)
#define EITHER(f32, bf16) (side == 0 ? (f32) : (bf16))
#define ON(t) ON_FROM(t, 0)
#define ON_FROM(t, at) EITHER((void *)((t).wide + (at)), (t).half + (at))

/* One element more than n, in front of which an op must stop. */
static struct tensor guarded(int64_t n, uint64_t seed, double scale)
{
    return tensor_random(n + 1, seed, scale);
}

/* The bf16 side is the fp32 side after one rounding, the guard included. */
static void check_rounded(const struct kernels *table, const char *op,
                          const char *what, const struct tensor *t)
{
    double largest = 1e-30, worst = 0;
    for (int64_t i = 0; i < t->n - 1; i++)
        largest = fmax(largest, fabs((double)t->wide[i]));
    for (int64_t i = 0; i < t->n; i++) {
        double want = (double)t->wide[i];
        double off = fabs((double)widened(t->half[i]) - want);
        double room = BF16_ROUNDING * fabs(want) + 1e-6 * largest;
        worst = isnan(off) ? INFINITY : fmax(worst, off / room);
    }
    if (!check_that(table, worst <= 1, "bf16 %s: %s, one rounding", op, what))
        tap_note("%.3f roundings", worst);
}

static void check_floats(const struct kernels *table, const char *op,
                         const char *what, const float *got, const float *want,
                         int64_t n)
{
    double *wide = check_widened(want, n);
    char text[96];
    snprintf(text, sizeof(text), "bf16, %s", what);
    check_below(table, op, text, check_error(got, wide, n), FLOATS);
}

static void check_elementwise(const struct kernels *table, int64_t n)
{
    struct kernel_ctx c = { .threads = 1 };
    struct tensor x = guarded(n, 1, 3), y = guarded(n, 2, 3);
    struct tensor out = guarded(n, 3, 3);
    char what[32];
    snprintf(what, sizeof(what), "%lld elements", (long long)n);
    BOTH(add, &c, n, ON(x), 0.3f, ON(y), ON(out));
    check_rounded(table, "add", what, &out);
    out = guarded(n, 3, 3);
    BOTH(accumulate, &c, n, ON(x), ON(out));
    check_rounded(table, "accumulate", what, &out);
    for (int act = 0; act < ACTIVATIONS; act++) {
        BOTH(activation_forward, &c, (enum activation)act, n, ON(x), ON(out));
        check_rounded(table, "activation_forward", what, &out);
        BOTH(activation_backward, &c, (enum activation)act, n, ON(x), ON(y),
             ON(out));
        check_rounded(table, "activation_backward", what, &out);
    }
    BOTH(zero, &c, n, ON(out));
    check_rounded(table, "zero", what, &out);
    check_release();
}

/* A limit between two bf16 numbers is the lower of them. */
static void check_clip(const struct kernels *table, float limit, float lower)
{
    enum { N = 4001 };
    struct kernel_ctx c = { .threads = 1 };
    struct tensor x = guarded(N, 1, 1), dx = guarded(N, 2, 1);
    char what[32];
    snprintf(what, sizeof(what), "to %g", (double)limit);
    BOTH(clip_forward, &c, N, EITHER(lower, limit), ON(x));
    check_rounded(table, "clip_forward", what, &x);
    BOTH(clip_backward, &c, N, EITHER(lower, limit), ON(x), ON(dx));
    check_rounded(table, "clip_backward", what, &dx);
    check_release();
}

static void check_random_factors(const struct kernels *table, int64_t samples,
                                 int64_t elements)
{
    const struct random_place random = { .seed = 5,
                                         .stream = 9,
                                         .first_sample = 77 };
    int64_t n = samples * elements;
    struct kernel_ctx c = { .threads = 1 };
    struct tensor x = guarded(n, 1, 1), y = guarded(n, 2, 1);
    bool same = true;
    BOTH(dropout, &c, samples, elements, 0.3f, &random, 1.5f, ON(x), ON(y));
    check_rounded(table, "dropout", "0.3", &y);
    for (int64_t i = 0; i < n; i++)
        same &= (y.wide[i] == 0) == (widened(y.half[i]) == 0);
    check_that(table, same, "bf16 dropout: the same elements");
    BOTH(jitter, &c, samples, elements, 0.2f, &random, ON(x), ON(y));
    check_rounded(table, "jitter", "0.2", &y);
    BOTH(dropout, &c, samples, elements, 0, &random, 1.5f, ON(x), ON(y));
    check_rounded(table, "dropout", "0", &y);
    check_release();
}

static void check_rope(const struct kernels *table, int64_t head_dim)
{
    enum { N = 10, SEQ = 5, HEADS = 3 };
    struct kernel_ctx c = { .threads = 1 };
    float *angles = check_random(SEQ * head_dim, 4, 1);
    for (int inverse = 0; inverse < 2; inverse++) {
        struct tensor x = guarded(N * HEADS * head_dim, 1, 1);
        BOTH(rope, &c, N, SEQ, HEADS, 2, head_dim, angles, inverse, ON(x));
        check_rounded(table, "rope", inverse ? "inverse" : "forward", &x);
    }
    check_release();
}

static void check_glu(const struct kernels *table, int64_t width)
{
    enum { N = 7 };
    int64_t stride = 2 * width + 3;
    struct kernel_ctx c = { .threads = 1 };
    struct tensor in = guarded(N * stride, 1, 3);
    struct tensor y = guarded(N * width, 2, 1);
    struct tensor dy = guarded(N * width, 3, 1);
    const enum activation act = ACTIVATION_SILU;
    BOTH(glu_forward, &c, act, N, width, stride, ON(in), ON_FROM(in, width),
         ON(y));
    check_rounded(table, "glu_forward", "rows with gaps", &y);
    BOTH(glu_backward, &c, act, N, width, stride, ON(in), ON_FROM(in, width),
         ON(dy), ON(in), ON_FROM(in, width));
    check_rounded(table, "glu_backward", "in place, gaps stay", &in);
    check_release();
}

/* What both tables compute of one norm: y, statistics, gradients. */
struct normed {
    float *mean, *rstd, *dgamma, *dbeta;
};

static void normed_check(const struct kernels *table, const struct norm *norm,
                         bool accumulate)
{
    int64_t n = norm->n * norm->stride, stats = norm->n * norm->groups;
    int64_t width = norm->shared ? norm->d : norm->groups * norm->d;
    struct kernel_limits limits = { .tokens = norm->n,
                                    .seq = 1,
                                    .width = width };
    struct kernel_ctx one = check_ctx(cpu, limits, 1);
    struct kernel_ctx two = check_ctx(table, limits, 1);
    struct tensor x = guarded(n, 1, 2), y = guarded(n, 2, 1);
    struct tensor gamma = guarded(width, 3, 1);
    struct tensor beta = guarded(width, 4, 1);
    struct tensor dy = guarded(n, 5, 1), dx = guarded(n, 6, 1);
    float *want = check_random(2 * (stats + width), 7, 1);
    float *got = check_copy(want, 2 * (stats + width));
    float *a = want + 2 * stats, *b = got + 2 * stats;
    char what[96];
    snprintf(what, sizeof(what), "%s %lldx%lldx%lld",
             norm->kind == NORM_RMS ? "RMSNorm" : "LayerNorm",
             (long long)norm->n, (long long)norm->groups, (long long)norm->d);
    BOTH(norm_forward, EITHER(&one, &two), norm, ON(x), ON(gamma), ON(beta),
         ON(y), EITHER(want, got), EITHER(want + stats, got + stats));
    check_rounded(table, "norm_forward", what, &y);
    BOTH(norm_backward, EITHER(&one, &two), norm, ON(dy), ON(x), ON(gamma),
         EITHER(want, got), EITHER(want + stats, got + stats), accumulate,
         ON(dx), EITHER(a, b), EITHER(a + width, b + width));
    check_rounded(table, "norm_backward", what, &dx);
    check_floats(table, "norm", what, got, want, 2 * stats);
    check_floats(table, "norm dgamma, dbeta", what, b, a, 2 * width);
    check_release();
}

static void check_norms(const struct kernels *table)
{
    static const struct norm shapes[] = {
        { NORM_LAYER, 3, 1, 5, 5, true, false, 1e-5f, false },
        { NORM_RMS, 67, 1, 129, 129, true, false, 1e-5f, false },
        { NORM_LAYER, 9, 1, 2049, 2049, true, false, 1e-5f, false },
        { NORM_RMS, 11, 3, 64, 200, false, false, 1e-5f, false },
        { NORM_LAYER, 6, 3, 700, 2100, false, false, 1e-5f, false },
        { NORM_LAYER, 4, 1, 40, 40, true, false, 1e-5f, true },
        { NORM_RMS, 3, 1, 8192, 8192, true, false, 1e-5f, false },
        { NORM_LAYER, 2, 1, 9000, 9000, true, false, 1e-5f, false },
    };
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        normed_check(table, &shapes[i], i % 2 == 0);
}

/* The sum is rounded before its norm is taken. */
static void check_add_norm(const struct kernels *table)
{
    enum { N = 9, D = 133, COUNT = N * D };
    const struct norm norm = { .kind = NORM_RMS,
                               .n = N,
                               .groups = 1,
                               .d = D,
                               .stride = D,
                               .shared = true,
                               .eps = 1e-5f };
    struct kernel_ctx c = { .threads = 1 };
    struct tensor a = guarded(COUNT, 1, 1);
    struct tensor b = guarded(COUNT, 2, 1);
    struct tensor x = guarded(COUNT, 3, 1);
    struct tensor y = guarded(COUNT, 4, 1);
    struct tensor gamma = guarded(D, 5, 1);
    float *want = check_poisoned(N), *got = check_poisoned(N);
    cpu->add(&c, DTYPE_F32, COUNT, a.wide, 0.7f, b.wide, x.wide);
    table->add_norm_forward(&c, DTYPE_BF16, &norm, a.half, 0.7f, b.half, x.half,
                            gamma.half, NULL, y.half, NULL, got);
    check_rounded(table, "add_norm_forward", "the sum", &x);
    for (int i = 0; i < COUNT; i++)
        x.wide[i] = widened(x.half[i]);
    cpu->norm_forward(&c, DTYPE_F32, &norm, x.wide, gamma.wide, NULL, y.wide,
                      NULL, want);
    check_rounded(table, "add_norm_forward", "its norm", &y);
    check_floats(table, "add_norm_forward", "rstd", got, want, N);
    check_release();
}

static void check_loss(const struct kernels *table, int64_t vocab)
{
    enum { N = 6 };
    int32_t *labels =
        CHECK_HELD(int32_t, 0, 1, -1, (int32_t)vocab - 1, 2, -100);
    struct kernel_ctx c = { .threads = 1 };
    struct tensor x = guarded(N * vocab, 1, 9);
    float *want = check_poisoned(N), *got = check_poisoned(N);
    char what[32];
    snprintf(what, sizeof(what), "vocabulary %lld", (long long)vocab);
    BOTH(cross_entropy, &c, N, vocab, 0.5f, &(struct target){ 0 }, ON(x),
         labels, true, EITHER(want, got));
    check_rounded(table, "cross_entropy", what, &x);
    check_floats(table, "cross_entropy", what, got, want, N);
    check_release();
}

static void check_embedding(const struct kernels *table, int64_t d, bool wpe)
{
    enum { N = 520, SEQ = 130, VOCAB = 37 };
    struct kernel_ctx c = { .threads = 1 };
    struct tensor te = guarded(VOCAB * d, 1, 1);
    struct tensor pe = guarded(SEQ * d, 2, 1);
    struct tensor out = guarded(N * d, 3, 1);
    float *want = check_random((VOCAB + SEQ) * d, 4, 1);
    float *got = check_copy(want, (VOCAB + SEQ) * d);
    int32_t *tokens = check_alloc(N * sizeof(*tokens));
    for (int i = 0; i < N; i++)
        tokens[i] = i % 3 == 0 ? 5 : i * i % VOCAB;
    BOTH(embedding_backward, &c, N, SEQ, d, tokens, ON(out), EITHER(want, got),
         EITHER(wpe ? want + VOCAB * d : NULL, wpe ? got + VOCAB * d : NULL));
    check_that(table, check_same(got, want, (VOCAB + SEQ) * d),
               "bf16 embedding_backward: width %lld, the CPU's bits",
               (long long)d);
    BOTH(embedding_forward, &c, N, SEQ, d, tokens, ON(te), wpe ? ON(pe) : NULL,
         ON(out));
    check_rounded(table, "embedding_forward", wpe ? "both" : "tokens", &out);
    check_release();
}

static void check_experts(const struct kernels *table, int64_t d)
{
    enum { N = 8, K = 3, ROWS = N * K };
    const struct route route = { N, 5, K, 1 };
    struct kernel_ctx c = { .threads = 1 };
    struct tensor x = guarded(N * d, 1, 1);
    struct tensor h = guarded(ROWS * d, 2, 1);
    struct tensor dh = guarded(ROWS * d, 3, 1);
    struct tensor out = guarded(N * d, 4, 1);
    struct tensor rows = guarded(ROWS * d, 5, 1);
    float *weights = check_random(ROWS, 6, 1);
    float *want = check_poisoned(ROWS), *got = check_poisoned(ROWS);
    int32_t *place = check_alloc(ROWS * sizeof(*place));
    int32_t *source = check_alloc(ROWS * sizeof(*source));
    for (int i = 0; i < ROWS; i++) {
        place[i] = (i * 7 + 3) % ROWS;
        source[place[i]] = i;
    }
    BOTH(expert_gather, &c, &route, d, source, ON(x), ON(rows));
    check_rounded(table, "expert_gather", "rows", &rows);
    BOTH(expert_combine, &c, &route, d, place, weights, ON(h), ON(out));
    check_rounded(table, "expert_combine", "weighted", &out);
    BOTH(expert_combine, &c, &route, d, place, NULL, ON(h), ON(out));
    check_rounded(table, "expert_combine", "sum", &out);
    BOTH(expert_weigh, &c, &route, d, source, weights, ON(h), ON(dh),
         EITHER(want, got));
    check_rounded(table, "expert_weigh", "h", &h);
    check_rounded(table, "expert_weigh", "dh", &dh);
    check_floats(table, "expert_weigh", "dweights", got, want, ROWS);
    check_release();
}

static void check_bias(const struct kernels *table, int64_t n, int64_t d)
{
    struct kernel_limits limits = { .tokens = n, .seq = 1, .width = d };
    struct kernel_ctx c = check_ctx(table, limits, 1);
    struct tensor dy = guarded(n * d, 1, 1);
    float *want = check_random(d, 2, 1), *got = check_copy(want, d);
    BOTH(bias_backward, &c, n, d, ON(dy), EITHER(want, got));
    check_floats(table, "bias_backward", "column sums", got, want, d);
    check_release();
}

static void check_update(const struct kernels *table)
{
    enum { N = 2 * KERNEL_CHUNK };
    const struct optimizer_step values = { .lr = 0.05,
                                           .decay = 0.01,
                                           .grad_scale = 0.125,
                                           .beta1 = 0.9,
                                           .beta2 = 0.95,
                                           .eps = 1e-8,
                                           .count = 1 },
                                *s = &values;
    struct kernel_ctx c = { .threads = 1 };
    struct tensor g = guarded(N, 1, 1);
    float *want = check_random(3 * N, 2, 1);
    double *sums = check_f64(2), *wide = check_f64(2);
    for (int64_t i = 2 * N; i < 3 * N; i++)
        want[i] = fabsf(want[i]);
    float *got = check_copy(want, 3 * N);
    float *from[] = { want + N, want + 2 * N };
    float *to[] = { got + N, got + 2 * N };
#define CHECK(OP, name, names, members, ...)                                   \
    {                                                                          \
        const struct name step = UPDATE_STEP(KERNEL_BARE members);             \
        cpu->name(&c, DTYPE_F32, N - 3, &step, want, g.wide, from);            \
        table->name(&c, DTYPE_BF16, N - 3, &step, got, g.half, to);            \
        check_floats(table, #name, "p and moments", got, want, 3 * N);         \
    }
    KERNEL_UPDATES(CHECK, )
    BOTH(chunk_sum_squares, &c, N, ON(g), EITHER(wide, sums));
    check_that(table,
               fabs(sums[0] / wide[0] - 1) < 1e-12 &&
                   fabs(sums[1] / wide[1] - 1) < 1e-12,
               "bf16 chunk_sum_squares");
    check_release();
}

int main(void)
{
    const struct kernels *table = bf16_table();
    if (table == NULL)
        return tap_done();
    cpu = kernels_all()[0];
    check_elementwise(table, 1);
    check_elementwise(table, 4099);
    check_clip(table, 0.5f, 0.5f);
    check_clip(table, 0.3f, 0x1.32p-2f);
    check_random_factors(table, 3, 37);
    check_random_factors(table, 2, 5003);
    check_rope(table, 6);
    check_rope(table, 64);
    check_glu(table, 33);
    check_glu(table, 2304);
    check_norms(table);
    check_add_norm(table);
    check_loss(table, 5);
    check_loss(table, 5003);
    check_embedding(table, 133, true);
    check_embedding(table, 2100, false);
    check_experts(table, 19);
    check_experts(table, 2064);
    check_bias(table, 71, 203);
    check_bias(table, 3000, 64);
    check_update(table);
    return tap_done();
}
