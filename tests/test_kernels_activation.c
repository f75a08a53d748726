/* gelu on every table against libm in fp64. */
#include "tests/kernel_check.h"

#define N 100003

static double normal_cdf(double x)
{
    return 0.5 * erfc(-x / sqrt(2));
}

static double gelu(double x)
{
    return x * normal_cdf(x);
}

static double slope(double x)
{
    return normal_cdf(x) + x * exp(-x * x / 2) / sqrt(2 * acos(-1));
}

static void check_reference(void)
{
    double worst = 0;
    for (int i = 0; i <= 1000; i++) {
        double x = -8 + i * 0.016;
        double difference = (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5;
        worst = fmax(worst, fabs(difference - slope(x)));
    }
    tap_ok(worst < 1e-8, "the gelu reference passes a gradient check");
}

static void check_values(const struct kernels *table)
{
    float *x = check_random(N, 1, 8);
    float *dy = check_random(N, 2, 1);
    double *want_y = check_f64(N);
    double *want_dx = check_f64(N);
    float *y[CHECK_THREADS_MAX], *dx[CHECK_THREADS_MAX];
    bool same = true;
    x[0] = 0;
    x[1] = 5.5421f; /* about where erf becomes exactly 1 */
    x[2] = -5.5421f;
    x[3] = 1000;
    x[4] = -1000;
    for (int64_t i = 0; i < N; i++) {
        want_y[i] = gelu((double)x[i]);
        want_dx[i] = (double)dy[i] * slope((double)x[i]);
    }
    for (int i = 0; i < CHECK_THREADS_MAX; i++) {
        struct kernel_ctx ctx = { .threads = i + 1 };
        y[i] = check_poisoned(N);
        dx[i] = check_copy(dy, N);
        table->gelu_forward(&ctx, DTYPE_F32, N, x, y[i]);
        table->gelu_backward(&ctx, DTYPE_F32, N, x, dx[i], dx[i]);
        same &= check_same(y[i], y[0], N) && check_same(dx[i], dx[0], N);
    }
    tap_ok(y[0][3] == 1000 && y[0][4] == 0 && dx[0][4] == 0,
           "%s/%s gelu: exact far from zero", table->backend,
           table->kernel_set);
    want_y[3] = y[0][3] = 0; /* would hide the others' errors */
    check_below(table, "gelu_forward", "values", check_error(y[0], want_y, N),
                2e-6);
    check_below(table, "gelu_backward", "in place",
                check_error(dx[0], want_dx, N), 2e-6);
    tap_ok(same, "%s/%s gelu: same bits on 1, 2, 3 threads", table->backend,
           table->kernel_set);
    for (int i = 0; i < CHECK_THREADS_MAX; i++) {
        free(y[i]);
        free(dx[i]);
    }
    free(want_dx);
    free(want_y);
    free(dy);
    free(x);
}

/* The same element gives the same bits in the body and in the tail. */
static void check_position(const struct kernels *table)
{
    enum { COUNT = 67 };
    struct kernel_ctx ctx = { .threads = 1 };
    float x[COUNT], y[COUNT], alone;
    bool same = true;
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(3 * check_uniform(9, i));
    table->gelu_forward(&ctx, DTYPE_F32, COUNT, x, y);
    for (int i = 0; i < COUNT; i++) {
        table->gelu_forward(&ctx, DTYPE_F32, 1, x + i, &alone);
        same &= check_same(&alone, &y[i], 1);
    }
    tap_ok(same, "%s/%s gelu: position does not change bits", table->backend,
           table->kernel_set);
}

static void check_nan_values(const struct kernels *table)
{
    struct kernel_ctx ctx = { .threads = 1 };
    float x[5] = { 1, check_nan(), INFINITY, -check_nan(), 2 };
    float dy[5] = { 1, 1, check_nan(), 1, 1 };
    float y[5], dx[5];
    table->gelu_forward(&ctx, DTYPE_F32, 5, x, y);
    table->gelu_backward(&ctx, DTYPE_F32, 5, x, dy, dx);
    tap_ok(isnan(y[1]) && isnan(y[3]) && y[2] == INFINITY && !isnan(y[0]) &&
               !isnan(y[4]) && check_all_nan(dx + 1, 3) && !isnan(dx[4]),
           "%s/%s gelu: NaN and Inf pass through", table->backend,
           table->kernel_set);
}

int main(void)
{
    check_reference();
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++) {
        check_values(*t);
        check_position(*t);
        check_nan_values(*t);
    }
    return tap_done();
}
