/* gemm on every table against fp64. */
#include "tests/kernel_check.h"

#include <stdio.h>

struct gemm_case {
    int64_t m, n, k;
};

static const struct gemm_case cases[] = {
    { 1, 1, 1 },      { 3, 5, 7 },       { 1, 100, 33 },    { 33, 17, 129 },
    { 64, 48, 31 },   { 100, 1003, 67 }, { 257, 515, 140 }, { 700, 90, 200 },
    { 256, 768, 65 }, { 1500, 640, 9 },  { 130, 301, 900 },
};

static const char *const forms[] = { "NT", "NN", "TN" };

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

static void reference(const struct gemm *g, const float *before, double *want)
{
    const float *bias = g->bias;
    double *column = check_f64(g->k);
    for (int64_t j = 0; j < g->n; j++) {
        for (int64_t l = 0; l < g->k; l++)
            column[l] = b_at(g, l, j);
        for (int64_t i = 0; i < g->m; i++) {
            double sum = g->accumulate ? (double)before[i * g->n + j] : 0;
            sum += bias != NULL ? (double)bias[j] : 0;
            for (int64_t l = 0; l < g->k; l++)
                sum += a_at(g, i, l) * column[l];
            want[i * g->n + j] = sum;
        }
    }
    free(column);
}

/* Runs on 1, 2 and 3 threads into copies of `before`; false if bits differ. */
static bool run(const struct kernels *table, struct gemm g, const float *before,
                float *c)
{
    int64_t n = g.m * g.n;
    bool same = true;
    float *again = check_alloc((size_t)n * sizeof(*again));
    for (int threads = 1; threads <= CHECK_THREADS_MAX; threads++) {
        struct kernel_ctx ctx = { .threads = threads };
        g.c = threads == 1 ? c : again;
        memcpy(g.c, before, (size_t)n * sizeof(*again));
        same &= table->gemm(&ctx, DTYPE_F32, &g) == ERR_OK;
        same &= check_same(g.c, c, n);
    }
    free(again);
    return same;
}

static void check_case(const struct kernels *table, enum gemm_form form,
                       const struct gemm_case *shape, bool accumulate,
                       bool with_bias)
{
    int64_t m = shape->m, n = shape->n, k = shape->k;
    char what[96];
    float *a = check_random(m * k, 1, 1);
    float *b = check_random(n * k, 2, 1);
    float *bias = check_random(n, 3, 1);
    float *before =
        accumulate ? check_random(m * n, 4, 1) : check_poisoned(m * n);
    float *c = check_poisoned(m * n);
    double *want = check_f64(m * n);
    struct gemm g = { form, m,          n,
                      k,    a,          b,
                      c,    accumulate, with_bias ? bias : NULL };
    reference(&g, before, want);
    bool same = run(table, g, before, c);
    snprintf(what, sizeof(what), "%s %lldx%lldx%lld%s%s", forms[form],
             (long long)m, (long long)n, (long long)k, accumulate ? " +=" : "",
             with_bias ? " with bias" : "");
    check_below(table, "gemm", what, check_error(c, want, m * n),
                2e-6 * sqrt((double)k));
    tap_ok(same, "%s/%s gemm: %s, same bits on 1, 2, 3 threads", table->backend,
           table->kernel_set, what);
    free(want);
    free(c);
    free(before);
    free(bias);
    free(b);
    free(a);
}

static void check_nan_row(const struct kernels *table)
{
    enum { M = 40, N = 50, K = 60 };
    struct kernel_ctx ctx = { .threads = 2 };
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
    tap_ok(check_all_nan(c + 7 * N, N) && infinite && check_no_nan(c, 7 * N) &&
               check_no_nan(c + 10 * N, 30 * N),
           "%s/%s gemm: NaN and Inf reach their rows and no others",
           table->backend, table->kernel_set);
    free(c);
    free(b);
    free(a);
}

int main(void)
{
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++) {
        if (check_lacks_gemm(*t))
            continue;
        for (int form = GEMM_NT; form <= GEMM_TN; form++)
            for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
                check_case(*t, (enum gemm_form)form, &cases[i], false, false);
                check_case(*t, (enum gemm_form)form, &cases[i], true, false);
                check_case(*t, (enum gemm_form)form, &cases[i], false, true);
            }
        check_nan_row(*t);
    }
    return tap_done();
}
