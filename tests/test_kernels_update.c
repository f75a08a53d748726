/* Optimizers' updates, sums and elementwise ops on every table against fp64. */
#include "tests/kernel_check.h"

/* Large enough that decay and update both show in p. */
#define COMMON .lr = 0.05f, .decay = 0.01f, .grad_scale = 0.125f
static const struct adamw adamw_step = {
    COMMON,       .beta1 = 0.9f,       .beta2 = 0.95f,
    .eps = 1e-8f, .correction1 = 0.1f, .correction2 = 0.05f
};
static const struct lion lion_step = { COMMON, .beta1 = 0.9f, .beta2 = 0.95f };
static const struct sgd sgd_step = { COMMON, .momentum = 0.9f, .fresh = 0.75f,
                                     .nesterov = true };

/* References: one element, of which g is scaled; the constants are the floats
 * of the steps. */
static void adamw_reference(double *p, double g, double *m, double *v)
{
    const struct adamw s = adamw_step;
    *p *= 1 - (double)s.decay;
    *m = (double)s.beta1 * *m + (1 - (double)s.beta1) * g;
    *v = (double)s.beta2 * *v + (1 - (double)s.beta2) * g * g;
    *p -= (double)s.lr / (double)s.correction1 * *m /
          (sqrt(*v) / sqrt((double)s.correction2) + (double)s.eps);
}

/* Chen et al. 2023, algorithm 2, decay before the update as Composer has it. */
static void lion_reference(double *p, double g, double *m, double *v)
{
    const struct lion s = lion_step;
    double mean = (double)s.beta1 * *m + (1 - (double)s.beta1) * g;
    (void)v;
    *p *= 1 - (double)s.decay;
    *p -= (double)s.lr * (double)((mean > 0) - (mean < 0));
    *m = (double)s.beta2 * *m + (1 - (double)s.beta2) * g;
}

/* torch.optim.SGD with dampening and Nesterov momentum; decay as Composer has
 * it. */
static void sgd_reference(double *p, double g, double *m, double *v)
{
    const struct sgd s = sgd_step;
    (void)v;
    *m = (double)s.momentum * *m + (double)s.fresh * g;
    *p = (1 - (double)s.decay) * *p -
         (double)s.lr * (g + (double)s.momentum * *m);
}

/* p, then the moments, n of each. */
#define RUN(OP, name, ...)                                                     \
    static void name##_run(const struct kernels *table, int threads,           \
                           int64_t n, float *state, const float *g,            \
                           int moments, void *copy)                            \
    {                                                                          \
        struct kernel_ctx ctx = { .threads = threads };                        \
        struct name step = name##_step;                                        \
        step.copy = copy;                                                      \
        table->name(                                                           \
            &ctx, DTYPE_F32, n, &step, state, g,                               \
            (float *[]){ state + n, moments > 1 ? state + 2 * n : NULL });     \
    }
KERNEL_UPDATES(RUN, )

#define UPDATE(OP, name_, names, ...)                                          \
    { #name_, sizeof((const char *[]){ KERNEL_BARE names }) / sizeof(char *),  \
      name_##_reference, name_##_run },
static const struct update {
    const char *name;
    int moments;
    void (*reference)(double *p, double g, double *m, double *v);
    void (*run)(const struct kernels *table, int threads, int64_t n,
                float *state, const float *g, int moments, void *copy);
} updates[] = { KERNEL_UPDATES(UPDATE, ) };
#define UPDATES (sizeof(updates) / sizeof(updates[0]))

/* Random weights and moments; second moments are sums of squares. */
static float *make_state(const struct update *update, int64_t n)
{
    float *state = check_random((1 + update->moments) * n, 1, 1);
    for (int64_t i = 2 * n; i < (1 + update->moments) * n; i++)
        state[i] = (0.6f + 0.4f * state[i]) * (0.6f + 0.4f * state[i]);
    return state;
}

static void check_update(const struct kernels *table,
                         const struct update *update, int64_t n)
{
    int64_t all = (1 + update->moments) * n;
    float *state = make_state(update, n);
    float *g = check_random(n, 2, 1);
    float *got[CHECK_THREADS_MAX];
    double error = 0;
    bool same = true;
    bool cpu = strcmp(table->backend, "cpu") == 0; /* all sets are the same */
    for (int64_t i = n; i < all; i += n)
        state[i] = g[0] = 0; /* an element without history */
    double *want = check_widened(state, all);
    for (int64_t i = 0; i < n; i++)
        update->reference(
            want + i, (double)g[i] * (double)adamw_step.grad_scale,
            want + n + i, update->moments > 1 ? want + 2 * n + i : NULL);
    for (int t = 0; t < CHECK_THREADS_MAX; t++) {
        got[t] = check_copy(state, all);
        update->run(cpu && t == 0 ? kernels_all()[0] : table, t + 1, n, got[t],
                    g, update->moments, NULL);
        same &= check_same(got[t], got[0], all);
    }
    for (int64_t at = 0; at < all; at += n)
        error = fmax(error, check_error(got[0] + at, want + at, n));
    check_below(table, update->name, "p and moments", error, 2e-6);
    check_that(table, same && got[0][0] == state[0] * (1 - adamw_step.decay),
               "%s: same bits on 1, 2, 3 threads, only decay where all is 0",
               update->name);
    check_release();
}

/* The bf16 copy is the new p as `convert` would round it; p's bits are those
 * without a copy. */
static void check_copies(const struct kernels *table,
                         const struct update *update, int64_t n)
{
    int64_t all = (1 + update->moments) * n;
    float *plain = make_state(update, n), *got = check_copy(plain, all);
    float *g = check_random(n, 2, 1);
    uint16_t *halves = check_alloc((size_t)(2 * (n + 1)) * sizeof(*halves));
    struct kernel_ctx ctx = { .threads = 2 };
    memset(halves, 0xff, (size_t)(2 * (n + 1)) * sizeof(*halves));
    update->run(table, 2, n, plain, g, update->moments, NULL);
    update->run(table, 2, n, got, g, update->moments, halves);
    table->convert(&ctx, n, DTYPE_F32, plain, DTYPE_BF16, halves + n + 1);
    check_that(table,
               check_same(got, plain, all) &&
                   memcmp(halves, halves + n + 1, (size_t)(n + 1) * 2) == 0 &&
                   halves[n] == 0xffff,
               "%s: a bf16 copy of %lld new parameters", update->name,
               (long long)n);
    check_release();
}

static void check_nan_gradient(const struct kernels *table,
                               const struct update *update)
{
    float *state = CHECK_HELD(float, 1, 2, 3, 0, 0, 0, 0, 0, 0);
    float *g = CHECK_HELD(float, 1, check_nan(), -1);
    bool right = true;
    update->run(table, 1, 3, state, g, update->moments, NULL);
    for (int i = 0; i < 3 * (1 + update->moments); i++)
        right = right && isnan(state[i]) == (i % 3 == 1);
    check_that(table, right, "%s: a NaN gradient reaches its parameter",
               update->name);
    check_release();
}

/* Without dampening and Nesterov it is the momentum that weights follow. */
static void check_plain_sgd(const struct kernels *table)
{
    enum { N = 1000 };
    struct kernel_ctx ctx = { .threads = 2 };
    struct sgd plain = { COMMON, .momentum = 0.9f, .fresh = 1 };
    float *state = check_random(2 * N, 1, 1), *g = check_random(N, 2, 1);
    double *want = check_widened(state, 2 * N);
    for (int64_t i = 0; i < N; i++) {
        want[N + i] = (double)plain.momentum * want[N + i] +
                      (double)g[i] * (double)plain.grad_scale;
        want[i] = (1 - (double)plain.decay) * want[i] -
                  (double)plain.lr * want[N + i];
    }
    table->sgd(&ctx, DTYPE_F32, N, &plain, state, g,
               (float *[]){ state + N, NULL });
    check_below(table, "sgd", "plain", check_error(state, want, 2 * N), 2e-6);
    check_release();
}

static void check_sums(const struct kernels *table, int64_t n)
{
    float *x = check_random(n, 1, 1);
    double *sums = check_f64(CHECK_THREADS_MAX), want = 0, size = 0, worst = 0;
    int64_t chunks = n / KERNEL_CHUNK;
    double *squares = check_f64(CHECK_THREADS_MAX * chunks);
    bool same = true;
    for (int64_t i = 0; i < n; i++) {
        want += (double)x[i];
        size += fabs((double)x[i]);
    }
    for (int t = 0; t < CHECK_THREADS_MAX; t++) {
        struct kernel_limits limits = { .tokens = n, .width = 1 };
        struct kernel_ctx ctx = check_ctx(table, limits, t + 1);
        table->sum(&ctx, n, x, &sums[t]);
        same &= memcmp(&sums[t], sums, sizeof(*sums)) == 0;
        table->chunk_sum_squares(&ctx, DTYPE_F32, chunks * KERNEL_CHUNK, x,
                                 squares + t * chunks);
        same &= memcmp(squares + t * chunks, squares,
                       (size_t)chunks * sizeof(double)) == 0;
    }
    for (int64_t c = 0; c < chunks; c++) {
        double sum = 0;
        for (int64_t i = c * KERNEL_CHUNK; i < (c + 1) * KERNEL_CHUNK; i++)
            sum += (double)x[i] * (double)x[i];
        worst = fmax(worst, fabs(squares[c] - sum) / sum);
    }
    check_below(table, "sum", "relative to the sum of absolute values",
                n == 0 ? fabs(sums[0]) : fabs(sums[0] - want) / size, 1e-12);
    check_below(table, "chunk_sum_squares", "each chunk", worst, 1e-12);
    check_that(table, same, "sums: same bits on 1, 2, 3 threads");
    check_release();
}

static void check_sums_nan(const struct kernels *table)
{
    struct kernel_limits limits = { .tokens = 2 * KERNEL_CHUNK, .width = 1 };
    struct kernel_ctx ctx = check_ctx(table, limits, 2);
    float *x = check_random(2 * KERNEL_CHUNK, 1, 1);
    double *sum = check_f64(1), *squares = check_f64(2);
    x[KERNEL_CHUNK + 3] = check_nan();
    table->sum(&ctx, 2 * KERNEL_CHUNK, x, sum);
    table->chunk_sum_squares(&ctx, DTYPE_F32, 2 * KERNEL_CHUNK, x, squares);
    check_that(table, isnan(*sum) && isfinite(squares[0]) && isnan(squares[1]),
               "sums: NaN propagates");
    check_release();
}

static void check_bias(const struct kernels *table, int64_t n, int64_t d)
{
    float *dy = check_random(n * d, 1, 1);
    float *before = check_random(d, 2, 1);
    double *want = check_widened(before, d);
    float *first = NULL;
    bool same = true;
    for (int64_t i = 0; i < n * d; i++)
        want[i % d] += (double)dy[i];
    for (int t = 1; t <= CHECK_THREADS_MAX; t++) {
        struct kernel_limits limits = { .tokens = n, .width = d };
        struct kernel_ctx ctx = check_ctx(table, limits, t);
        float *got = check_copy(before, d);
        table->bias_backward(&ctx, DTYPE_F32, n, d, dy, got);
        if (first == NULL) {
            first = got;
            continue;
        }
        same &= check_same(got, first, d);
    }
    check_below(table, "bias_backward", "column sums",
                check_error(first, want, d), 2e-6);
    check_that(table, same, "bias_backward: same bits on 1, 2, 3 threads");
    check_release();
}

static void check_scaled_add(const struct kernels *table, float scale)
{
    enum { COUNT = 10007 };
    float *a = check_random(COUNT, 1, 1), *b = check_random(COUNT, 2, 1);
    float *out = check_poisoned(COUNT), *in_place = check_copy(b, COUNT);
    double *want = check_f64(COUNT);
    bool same = true;
    for (int64_t i = 0; i < COUNT; i++)
        want[i] = (double)a[i] + (double)scale * (double)b[i];
    struct kernel_ctx one = { .threads = 1 };
    table->add(&one, DTYPE_F32, COUNT, a, scale, b, out);
    for (int t = 1; t <= CHECK_THREADS_MAX; t++) {
        struct kernel_ctx ctx = { .threads = t };
        memcpy(in_place, b, COUNT * sizeof(float));
        table->add(&ctx, DTYPE_F32, COUNT, a, scale, in_place, in_place);
        same &= check_same(out, in_place, COUNT);
    }
    check_below(table, "add", "scaled", check_error(out, want, COUNT), 1e-7);
    check_that(table, same, "add: scaled, into b, on 1, 2, 3 threads");
    check_release();
}

static void check_elementwise(const struct kernels *table, int threads)
{
    enum { COUNT = 40009 };
    struct kernel_ctx ctx = { .threads = threads };
    float *a = check_random(COUNT + 1, 1, 1);
    float *b = check_random(COUNT, 2, 1);
    float *out = check_poisoned(COUNT);
    float *in_place = check_copy(a, COUNT);
    float *y = check_copy(b, COUNT);
    bool right = true;
    float guard = a[COUNT];
    table->add(&ctx, DTYPE_F32, COUNT, a, 1, b, out);
    table->add(&ctx, DTYPE_F32, COUNT, in_place, 1, b, in_place);
    table->accumulate(&ctx, DTYPE_F32, COUNT, a, y);
    for (int64_t i = 0; i < COUNT; i++)
        right &= out[i] == a[i] + b[i];
    check_that(table,
               right && check_same(out, in_place, COUNT) &&
                   check_same(out, y, COUNT),
               "add, accumulate: exact on %d threads", threads);
    table->zero(&ctx, DTYPE_F32, COUNT, a);
    right = a[COUNT] == guard;
    for (int64_t i = 0; i < COUNT; i++)
        right &= a[i] == 0;
    check_that(table, right, "zero: all of it and no more on %d threads",
               threads);
    check_release();
}

int main(void)
{
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++) {
        for (size_t i = 0; i < UPDATES; i++) {
            check_update(*t, &updates[i], 1);
            check_update(*t, &updates[i], 3 * KERNEL_CHUNK + 77);
            check_nan_gradient(*t, &updates[i]);
            check_copies(*t, &updates[i], 1);
            check_copies(*t, &updates[i], KERNEL_CHUNK + 13);
        }
        check_plain_sgd(*t);
        check_sums(*t, 0);
        check_sums(*t, 4 * KERNEL_CHUNK + 501);
        check_sums_nan(*t);
        check_bias(*t, 1, 1);
        check_bias(*t, 71, 203);
        check_bias(*t, 300, 64);
        for (int threads = 1; threads <= CHECK_THREADS_MAX; threads++)
            check_elementwise(*t, threads);
        check_scaled_add(*t, 0.3f);
        check_scaled_add(*t, -1.75f);
    }
    return tap_done();
}
