/* gemm on every table against fp64, and on the processor's against the one
 * order of operations that gives its bits. */
#include "tests/kernel_check.h"
#include "tests/pairwise.h"

struct gemm_case {
    int64_t m, n, k;
};

static const struct gemm_case cases[] = {
    { 1, 1, 1 },      { 3, 5, 7 },       { 1, 100, 33 },    { 33, 17, 129 },
    { 64, 48, 31 },   { 100, 1003, 67 }, { 257, 515, 140 }, { 700, 90, 200 },
    { 256, 768, 65 }, { 1500, 640, 9 },  { 130, 301, 900 }, { 29, 70, 2500 },
    { 13, 300, 513 }, { 14, 32, 1024 },  { 281, 12, 1030 }, { 1, 1, 3000 },
};

enum { CASES = sizeof(cases) / sizeof(*cases) };
enum mode { PLAIN, BIAS, ADDS, BEGINS, MODES };

static const char *const forms[] = { "NT", "NN", "TN" };
/* of form, case and mode what emulated tables compute; others compute all */
static bool chosen[3 * CASES * MODES];

static double a_at(const struct gemm *g, int64_t i, int64_t l)
{
    const float *a = g->a;
    return (double)(g->form == GEMM_TN ? a[l * g->m + i] : a[i * g->k + l]);
}

static double b_at(const struct gemm *g, int64_t l, int64_t j)
{
    const float *b = g->b;
    return (double)(g->form == GEMM_NT ? b[j * g->k + l] : b[l * g->n + j]);
}

/* A product of each element of C: in fp64, the sum of its terms' magnitudes,
 * and the chain of fused multiply-adds in the order of k. */
struct reference {
    double *sum, *sizes;
    float *chain;
};

static struct reference reference(const struct gemm *g)
{
    struct reference r = { check_f64(g->m * g->n), check_f64(g->m * g->n),
                           check_poisoned(g->m * g->n) };
    double *column = check_f64(g->k);
    for (int64_t j = 0; j < g->n; j++) {
        for (int64_t l = 0; l < g->k; l++)
            column[l] = b_at(g, l, j);
        for (int64_t i = 0; i < g->m; i++) {
            double sum = 0, sizes = 0;
            float chain = 0;
            for (int64_t l = 0; l < g->k; l++) {
                double a = a_at(g, i, l);
                sum += a * column[l];
                sizes += fabs(a * column[l]);
                chain = fmaf((float)a, (float)column[l], chain);
            }
            r.sum[i * g->n + j] = sum;
            r.sizes[i * g->n + j] = sizes;
            r.chain[i * g->n + j] = chain;
        }
    }
    return r;
}

/* Runs on 1, 2 and 3 threads into copies of `before`; false if bits differ. */
static bool run(const struct kernels *table, struct gemm g, const float *before,
                float *c)
{
    int64_t n = g.m * g.n;
    bool same = true;
    float *again = check_alloc((size_t)n * sizeof(*again));
    for (int threads = 1; threads <= check_runs(table); threads++) {
        struct kernel_ctx ctx = check_ctx_of(table, threads);
        g.c = threads == 1 ? c : again;
        memcpy(g.c, before, (size_t)n * sizeof(*again));
        same &= table->gemm(&ctx, DTYPE_F32, &g) == ERR_OK;
        same &= check_same(g.c, c, n);
    }
    return same;
}

/* Each element may be off by k roundings of at most the sum of magnitudes
 * (Higham 2002, 3.1), and one for each addition after them. */
static void check_case(const struct kernels *table, const struct gemm *g,
                       const struct reference *r, const float *before)
{
    int64_t n = g->m * g->n;
    const float *bias = g->bias;
    float *c = check_poisoned(n);
    double worst = 0;
    char what[96];
    bool exact = true, same = run(table, *g, before, c);
    snprintf(what, sizeof(what), "%s/%s gemm: %s %lldx%lldx%lld%s%s",
             table->backend, table->kernel_set, forms[g->form], (long long)g->m,
             (long long)g->n, (long long)g->k,
             g->begins       ? " 0 +="
             : g->accumulate ? " +="
                             : "",
             bias != NULL ? " with bias" : "");
    for (int64_t i = 0; i < n; i++) {
        float more = g->begins       ? 0
                     : g->accumulate ? before[i]
                     : bias != NULL  ? bias[i % g->n]
                                     : 0;
        float chain =
            g->accumulate || bias != NULL ? r->chain[i] + more : r->chain[i];
        double room =
            (double)(g->k + 2) * 0x1p-24 * (r->sizes[i] + fabs((double)more));
        double off = fabs((double)c[i] - (r->sum[i] + (double)more)) / room;
        worst = isnan(off) ? INFINITY : fmax(worst, off);
        exact &= check_same(&c[i], &chain, 1);
    }
    if (!tap_ok(worst <= 1, "%s, within k roundings", what))
        tap_note("%.3g of the bound", worst);
    if (strcmp(table->backend, "cpu") == 0)
        tap_ok(exact, "%s, a chain in the order of k", what);
    tap_ok(same, "%s, same bits on 1, 2, 3 threads", what);
}

static bool takes(const struct kernels *table, int form, int shape, int mode)
{
    return !check_emulated(table) ||
           chosen[(form * CASES + shape) * MODES + mode];
}

/* Plain, += and with a bias, by all tables. */
static void check_shape(enum gemm_form form, int number)
{
    const struct gemm_case *shape = &cases[number];
    int64_t m = shape->m, n = shape->n, k = shape->k;
    float *a = check_random(m * k, 1, 1);
    float *b = check_random(n * k, 2, 1);
    float *bias = check_random(n, 3, 1);
    float *before = check_random(m * n, 4, 1);
    float *poisoned = check_poisoned(m * n);
    struct gemm g = { .form = form, .m = m, .n = n, .k = k, .a = a, .b = b };
    struct reference r = reference(&g);
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++) {
        for (int mode = PLAIN; mode < MODES; mode++) {
            if (!takes(*t, form, number, mode))
                continue;
            g.bias = mode == BIAS ? bias : NULL;
            g.accumulate = mode == ADDS || mode == BEGINS;
            g.begins = mode == BEGINS;
            check_case(*t, &g, &r, mode == ADDS ? before : poisoned);
        }
    }
    check_release();
}

static void check_nan_row(const struct kernels *table)
{
    enum { M = 40, N = 50, K = 60 };
    struct kernel_ctx ctx = check_ctx_of(table, 2);
    float *a = check_random(M * K, 1, 1);
    float *b = check_random(N * K, 2, 1);
    float *c = check_poisoned(M * N);
    struct gemm g = { .form = GEMM_NT, .m = M, .n = N, .k = K };
    g.a = a;
    g.b = b;
    g.c = c;
    a[7 * K + 11] = check_nan();
    a[9 * K + 59] = INFINITY;
    table->gemm(&ctx, DTYPE_F32, &g);
    bool infinite = true;
    for (int64_t j = 0; j < N; j++)
        infinite &= !isfinite(c[9 * N + j]);
    check_that(table,
               check_all_nan(c + 7 * N, N) && infinite &&
                   check_no_nan(c, 7 * N) && check_no_nan(c + 10 * N, 30 * N),
               "gemm: NaN and Inf reach their rows and no others");
    check_release();
}

int main(void)
{
    const int sizes[] = { 3, CASES, MODES };
    tap_note("%d of %d cases emulated", pairwise(3, sizes, chosen),
             3 * CASES * MODES);
    for (int form = GEMM_NT; form <= GEMM_TN; form++)
        for (int i = 0; i < CASES; i++)
            check_shape((enum gemm_form)form, i);
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++)
        check_nan_row(*t);
    return tap_done();
}
