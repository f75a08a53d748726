/* Matrices in panels on every table against fp64; products by the bits of gemm
 * where they are its, and of each other however many rows come. */
#include "tests/kernel_check.h"

static const char *const types[] = {
    [PANEL_F32] = "fp32", [PANEL_BF16] = "bf16", [PANEL_INT8] = "int8"
};

static const struct shape {
    int64_t m, n, k;
} shapes[] = { { 1, 1, 1 },      { 1, 32, 16 },  { 1, 100, 37 },
               { 2, 33, 7 },     { 3, 160, 65 }, { 5, 31, 128 },
               { 6, 96, 40 },    { 7, 65, 33 },  { 14, 32, 1030 },
               { 29, 130, 513 }, { 300, 47, 20 } };

/* What a table holds of x[groups, n, k], and what that is in numbers. */
struct matrix {
    struct panels shape;
    float *x;      /* as given, [groups, n, k] */
    double *value; /* as held */
    void *panels;
};

static double held_value(enum panel_type type, const float *row, int64_t k,
                         int64_t l)
{
    float most = 0;
    if (type == PANEL_F32)
        return (double)row[l];
    if (type == PANEL_BF16)
        return (double)check_bf16_of(row[l]);
    for (int64_t i = 0; i < k; i++)
        most = fmaxf(most, fabsf(row[i]));
    if (most < 0x1p-120f)
        return 0;
    return nearbyint((double)(row[l] * (127.0f / most))) *
           (double)(most / 127.0f);
}

static struct matrix matrix_create(const struct kernels *k,
                                   const struct panels *shape, bool turned,
                                   int threads)
{
    struct matrix m = { .shape = *shape };
    int64_t rows = shape->groups * shape->n, all = rows * shape->k;
    size_t bytes = kernels_panels_bytes(shape);
    m.x = check_random(all, 3, 1);
    m.value = check_f64(all);
    m.panels = check_alloc(bytes);
    memset(m.panels, 0xff, bytes);
    float *given = check_copy(m.x, all);
    for (int64_t i = 0; i < all; i++) {
        int64_t row = i / shape->k, l = i % shape->k, g = row / shape->n;
        m.value[i] = held_value(shape->type, m.x + row * shape->k, shape->k, l);
        if (turned)
            given[(g * shape->k + l) * shape->n + row % shape->n] = m.x[i];
    }
    struct kernel_ctx ctx = check_ctx_of(k, threads);
    k->panels_fill(&ctx, shape, turned, given, m.panels);
    return m;
}

static float *product(const struct kernels *k, const struct matrix *b,
                      int64_t m, const int64_t *offsets, const float *a,
                      const float *bias, int threads)
{
    float *c = check_poisoned(m * b->shape.n);
    struct kernel_ctx ctx = check_ctx_of(k, threads);
    const struct panels_product p = { .shape = b->shape,
                                      .panels = b->panels,
                                      .m = m,
                                      .offsets = offsets,
                                      .a = a,
                                      .c = c,
                                      .bias = bias };
    k->panels_product(&ctx, &p);
    return c;
}

/* Rows of one group, or of each. */
static double *product_f64(const struct matrix *b, int64_t m,
                           const int64_t *offsets, const float *a,
                           const float *bias)
{
    int64_t n = b->shape.n, k = b->shape.k, g = 0;
    double *c = check_f64(m * n);
    for (int64_t i = 0; i < m; i++) {
        while (offsets != NULL && i >= offsets[g + 1])
            g++;
        for (int64_t j = 0; j < n; j++) {
            for (int64_t l = 0; l < k; l++)
                c[i * n + j] +=
                    (double)a[i * k + l] * b->value[(g * n + j) * k + l];
            if (bias != NULL)
                c[i * n + j] += (double)bias[j];
        }
    }
    return c;
}

/* Row by row, by the bits. */
static bool alone(const struct kernels *k, const struct matrix *b, int64_t m,
                  const float *a, const float *bias, const float *want)
{
    bool same = true;
    for (int64_t i = 0; i < m; i++) {
        float *row = check_copy(a + i * b->shape.k, b->shape.k);
        float *c = product(k, b, 1, NULL, row, bias, 1 + (int)(i % 3));
        same = same && check_same(c, want + i * b->shape.n, b->shape.n);
    }
    return same;
}

static bool as_gemm(const struct kernels *k, const struct matrix *b, int64_t m,
                    const float *a, const float *bias, const float *want)
{
    float *c = check_poisoned(m * b->shape.n);
    struct kernel_ctx ctx = check_ctx_of(k, 2);
    const struct gemm gemm = { .form = GEMM_NT,
                               .m = m,
                               .n = b->shape.n,
                               .k = b->shape.k,
                               .a = a,
                               .b = b->x,
                               .c = c,
                               .bias = bias };
    return k->gemm(&ctx, DTYPE_F32, &gemm) == ERR_OK &&
           check_same(c, want, m * b->shape.n);
}

static void check_shape(const struct kernels *k, const struct shape *s,
                        enum panel_type type, bool turned, bool biased)
{
    const struct panels panels = { type, 1, s->n, s->k };
    struct matrix b = matrix_create(k, &panels, turned, 2);
    float *a = check_random(s->m * s->k, 5, 1);
    float *bias = biased ? check_random(s->n, 6, 1) : NULL;
    float *one = product(k, &b, s->m, NULL, a, bias, 1);
    float *two = product(k, &b, s->m, NULL, a, bias, 2);
    float *three = product(k, &b, s->m, NULL, a, bias, 3);
    double *want = product_f64(&b, s->m, NULL, a, bias);
    char what[96];
    snprintf(what, sizeof what, "%s%s, %lld x %lld x %lld%s", types[type],
             turned ? " turned" : "", (long long)s->m, (long long)s->n,
             (long long)s->k, biased ? " + bias" : "");
    check_below(k, "panels_product", what, check_error(one, want, s->m * s->n),
                2e-6 * sqrt((double)s->k));
    check_that(k,
               check_same(one, two, s->m * s->n) &&
                   check_same(one, three, s->m * s->n) &&
                   alone(k, &b, s->m, a, bias, one),
               "panels_product: %s, same bits on threads and by rows", what);
    if (type == PANEL_F32 && strcmp(k->backend, "cpu") == 0)
        check_that(k, as_gemm(k, &b, s->m, a, bias, one),
                   "panels_product: %s, gemm's bits", what);
    check_release();
}

static void check_groups(const struct kernels *k, enum panel_type type)
{
    const struct panels panels = { type, 4, 45, 22 };
    struct matrix b = matrix_create(k, &panels, true, 3);
    int64_t *offsets = CHECK_HELD(int64_t, 0, 9, 9, 10, 31);
    float *a = check_random(31 * 22, 5, 1);
    float *one = product(k, &b, 31, offsets, a, NULL, 1);
    float *two = product(k, &b, 31, offsets, a, NULL, 2);
    double *want = product_f64(&b, 31, offsets, a, NULL);
    check_below(k, "panels_product", "of groups",
                check_error(one, want, 31 * 45), 1e-5);
    check_that(k, check_same(one, two, 31 * 45),
               "panels_product: %s groups, same bits on threads", types[type]);
    check_release();
}

static void check_rows(const struct kernels *k, enum panel_type type)
{
    const struct panels panels = { type, 1, 70, 19 };
    struct matrix b = matrix_create(k, &panels, false, 2);
    int32_t *rows = CHECK_HELD(int32_t, 69, 0, 31, 32, 32, 63);
    float *out = check_poisoned(6 * 19);
    struct kernel_ctx ctx = check_ctx_of(k, 3);
    bool fine = k->panels_rows(&ctx, &panels, b.panels, 6, rows, out) == ERR_OK;
    for (int64_t i = 0; i < 6 * 19; i++)
        fine = fine && fabs((double)out[i] -
                            b.value[rows[i / 19] * 19 + i % 19]) < 1e-7;
    check_that(k, fine, "panels_rows: %s", types[type]);
    check_release();
}

/* Rows of zeros, with Inf and NaN, and tiny ones do not touch their
 * neighbours. */
static void check_odd_rows(const struct kernels *k, enum panel_type type)
{
    enum { N = 35, K = 5 };
    const struct panels panels = { type, 1, N, K };
    size_t bytes = kernels_panels_bytes(&panels);
    float *x = check_random(N * K, 3, 1), *a = check_random(K, 4, 1);
    void *held = check_alloc(bytes);
    for (int l = 0; l < K; l++) {
        x[3 * K + l] = 0;
        x[6 * K + l] = 0x1p-130f;
    }
    x[4 * K + 1] = INFINITY;
    x[5 * K + 2] = NAN;
    struct kernel_ctx ctx = check_ctx_of(k, 2);
    memset(held, 0xff, bytes);
    k->panels_fill(&ctx, &panels, false, x, held);
    struct matrix b = { .shape = panels, .x = x, .panels = held };
    float *c = product(k, &b, 1, NULL, a, NULL, 1);
    bool fine =
        c[3] == 0 && !isfinite(c[4]) && isnan(c[5]) && fabsf(c[6]) < 1e-30f;
    for (int i = 0; i < N; i++)
        fine = fine && (i == 4 || i == 5 || isfinite(c[i]));
    check_that(k, fine, "panels: %s, zeros, Inf and NaN stay in their rows",
               types[type]);
    check_release();
}

int main(void)
{
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++)
        for (int type = PANEL_F32; type <= PANEL_INT8; type++) {
            for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
                check_shape(*t, &shapes[i], (enum panel_type)type, i % 3 == 1,
                            i % 2 == 1);
            check_groups(*t, (enum panel_type)type);
            check_rows(*t, (enum panel_type)type);
            check_odd_rows(*t, (enum panel_type)type);
        }
    return tap_done();
}
