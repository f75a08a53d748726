/* rope on every table against fp64, and what it is for. */
#include "tests/kernel_check.h"

struct rope_case {
    int64_t n, seq, heads, rotated, head_dim;
};

static const struct rope_case cases[] = {
    { 1, 1, 1, 1, 2 },    { 5, 5, 3, 2, 6 },     { 12, 4, 4, 4, 34 },
    { 33, 11, 3, 1, 64 }, { 130, 65, 6, 4, 20 }, { 6, 6, 3, 0, 8 },
};

/* Cosines and sines of t * theta^(-2j / head_dim), theta = 10000. */
static float *table_create(int64_t seq, int64_t head_dim)
{
    int64_t half = head_dim / 2;
    float *table = check_alloc((size_t)(seq * head_dim) * sizeof(*table));
    for (int64_t t = 0; t < seq; t++)
        for (int64_t j = 0; j < half; j++) {
            double angle =
                (double)t * pow(10000, -2.0 * (double)j / (double)head_dim);
            table[t * head_dim + j] = (float)cos(angle);
            table[t * head_dim + half + j] = (float)sin(angle);
        }
    return table;
}

static float *run(const struct kernels *k, const struct rope_case *c,
                  const float *table, bool inverse, int threads, const float *x)
{
    float *y = check_copy(x, c->n * c->heads * c->head_dim);
    struct kernel_ctx ctx = { .threads = threads };
    k->rope(&ctx, DTYPE_F32, c->n, c->seq, c->heads, c->rotated, c->head_dim,
            table, inverse, y);
    return y;
}

static void reference(const struct rope_case *c, const float *table,
                      bool inverse, const float *x, double *y)
{
    int64_t half = c->head_dim / 2;
    for (int64_t i = 0; i < c->n * c->heads; i++)
        for (int64_t j = 0; j < half; j++) {
            const float *turn = table + i / c->heads % c->seq * c->head_dim + j;
            double cosine = (double)turn[0];
            double sine = (double)turn[half] * (inverse ? -1 : 1);
            double a = (double)x[i * c->head_dim + j];
            double b = (double)x[i * c->head_dim + half + j];
            bool turns = i % c->heads < c->rotated;
            y[i * c->head_dim + j] = turns ? a * cosine - b * sine : a;
            y[i * c->head_dim + half + j] = turns ? b * cosine + a * sine : b;
        }
}

static void check_case(const struct kernels *k, const struct rope_case *c)
{
    int64_t n = c->n * c->heads * c->head_dim;
    float *table = table_create(c->seq, c->head_dim);
    float *x = check_random(n, 1, 1);
    double *want = check_f64(n), *wide = check_widened(x, n);
    char what[96];
    snprintf(what, sizeof(what),
             "%lld rows, seq %lld, %lld of %lld heads of "
             "%lld",
             (long long)c->n, (long long)c->seq, (long long)c->rotated,
             (long long)c->heads, (long long)c->head_dim);
    float *y = run(k, c, table, false, 1, x);
    float *two = run(k, c, table, false, 2, x);
    float *three = run(k, c, table, false, 3, x);
    float *back = run(k, c, table, true, 2, y);
    float *dx = run(k, c, table, true, 2, x);
    reference(c, table, false, x, want);
    check_below(k, "rope", what, check_error(y, want, n), 2e-6);
    reference(c, table, true, x, want);
    check_below(k, "rope inverse", what, check_error(dx, want, n), 2e-6);
    check_below(k, "rope there and back", what, check_error(back, wide, n),
                2e-6);
    check_that(k, check_same(y, two, n) && check_same(y, three, n),
               "rope: %s, same bits on 1, 2, 3 threads", what);
    check_release();
}

/* The gradient is the inverse: <rope(x), dy> = <x, inverse(dy)>. */
static void check_gradient(const struct kernels *k)
{
    const struct rope_case c = { 9, 9, 2, 2, 10 };
    int64_t n = c.n * c.heads * c.head_dim;
    float *table = table_create(c.seq, c.head_dim);
    float *x = check_random(n, 1, 1), *dy = check_random(n, 2, 1);
    float *y = run(k, &c, table, false, 1, x);
    float *dx = run(k, &c, table, true, 1, dy);
    double left = 0, right = 0;
    for (int64_t i = 0; i < n; i++) {
        left += (double)y[i] * (double)dy[i];
        right += (double)x[i] * (double)dx[i];
    }
    check_that(k, fabs(left - right) < 2e-6 * (double)n,
               "rope: inverse is the transpose");
    check_release();
}

/* The product of a turned query and key depends on their distance only. */
static void check_relative(const struct kernels *k)
{
    const struct rope_case c = { 40, 40, 2, 2, 16 };
    int64_t row = c.heads * c.head_dim;
    float *table = table_create(c.seq, c.head_dim);
    float *x = check_random(c.n * row, 1, 1);
    double worst = 0, spread = 0;
    for (int64_t t = 1; t < c.n; t++)
        memcpy(x + t * row, x, (size_t)row * sizeof(*x));
    float *y = run(k, &c, table, false, 2, x);
    for (int64_t distance = 0; distance < c.n; distance++) {
        double product[40] = { 0 };
        for (int64_t t = distance; t < c.n; t++) {
            const float *query = y + t * row;
            const float *key = y + (t - distance) * row + c.head_dim;
            for (int64_t j = 0; j < c.head_dim; j++)
                product[t] += (double)query[j] * (double)key[j];
            worst = fmax(worst, fabs(product[t] - product[distance]));
        }
        spread = fmax(spread, fabs(product[c.n - 1]));
    }
    if (!check_that(k, worst < 4e-6 && spread > 0.1,
                    "rope: products depend on the distance only"))
        tap_note("they differ by %.3e", worst);
    check_release();
}

static void check_nan_pair(const struct kernels *k)
{
    const struct rope_case c = { 2, 2, 1, 1, 6 };
    float *table = table_create(c.seq, c.head_dim);
    float *x = check_random(12, 1, 1);
    x[6 + 1] = NAN;
    float *y = run(k, &c, table, false, 1, x);
    check_that(
        k, isnan(y[6 + 1]) && isnan(y[6 + 4]) && !isnan(y[6]) && !isnan(y[1]),
        "rope: a NaN reaches its pair");
    check_release();
}

int main(void)
{
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++) {
        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
            check_case(*t, &cases[i]);
        check_gradient(*t);
        check_relative(*t);
        check_nan_pair(*t);
    }
    return tap_done();
}
