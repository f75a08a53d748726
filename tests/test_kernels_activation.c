/* Activations and clipping on every table against libm in fp64. */
#include "tests/activation_reference.h"
#include "tests/kernel_check.h"

#define N 100003

static void check_reference(enum activation act)
{
    double worst = 0;
    for (int i = 0; i <= 1000; i++) {
        double x = -8 + i * 0.016;
        double difference = (activation_value(act, x + 1e-5) -
                             activation_value(act, x - 1e-5)) /
                            2e-5;
        worst = fmax(worst, fabs(difference - activation_slope(act, x)));
    }
    tap_ok(worst < 1e-8, "the %s reference passes a gradient check",
           activation_names[act]);
}

static void check_values(const struct kernels *table, enum activation act)
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
    x[5] = -1e30f; /* its cube would overflow */
    for (int64_t i = 0; i < N; i++) {
        want_y[i] = activation_value(act, (double)x[i]);
        want_dx[i] = (double)dy[i] * activation_slope(act, (double)x[i]);
    }
    for (int i = 0; i < CHECK_THREADS_MAX; i++) {
        struct kernel_ctx ctx = { .threads = i + 1 };
        y[i] = check_poisoned(N);
        dx[i] = check_copy(dy, N);
        table->activation_forward(&ctx, DTYPE_F32, act, N, x, y[i]);
        table->activation_backward(&ctx, DTYPE_F32, act, N, x, dx[i], dx[i]);
        same &= check_same(y[i], y[0], N) && check_same(dx[i], dx[0], N);
    }
    check_that(table,
               y[0][3] == 1000 && y[0][4] == 0 && dx[0][4] == 0 &&
                   y[0][5] == 0 && dx[0][5] == 0,
               "%s: exact far from zero", activation_names[act]);
    want_y[3] = y[0][3] = 0; /* would hide the others' errors */
    check_below(table, "activation_forward", activation_names[act],
                check_error(y[0], want_y, N), 2e-6);
    check_below(table, "activation_backward", activation_names[act],
                check_error(dx[0], want_dx, N), 2e-6);
    check_that(table, same, "%s: same bits on 1, 2, 3 threads",
               activation_names[act]);
    check_release();
}

/* The same element gives the same bits in the body and in the tail. */
static void check_position(const struct kernels *table, enum activation act)
{
    enum { COUNT = 67 };
    struct kernel_ctx ctx = { .threads = 1 };
    float *x = check_random(COUNT, 9, 3), *y = check_poisoned(COUNT);
    float *alone = check_poisoned(1);
    bool same = true;
    table->activation_forward(&ctx, DTYPE_F32, act, COUNT, x, y);
    for (int i = 0; i < COUNT; i++) {
        table->activation_forward(&ctx, DTYPE_F32, act, 1, x + i, alone);
        same &= check_same(alone, &y[i], 1);
    }
    check_that(table, same, "%s: position does not change bits",
               activation_names[act]);
    check_release();
}

static void check_nan_values(const struct kernels *table, enum activation act)
{
    struct kernel_ctx ctx = { .threads = 1 };
    float *x = CHECK_HELD(float, 1, check_nan(), INFINITY, -check_nan(), 2);
    float *dy = CHECK_HELD(float, 1, 1, check_nan(), 1, 1);
    float *y = check_poisoned(5), *dx = check_poisoned(5);
    table->activation_forward(&ctx, DTYPE_F32, act, 5, x, y);
    table->activation_backward(&ctx, DTYPE_F32, act, 5, x, dy, dx);
    check_that(table,
               isnan(y[1]) && isnan(y[3]) && y[2] == INFINITY && !isnan(y[0]) &&
                   !isnan(y[4]) && check_all_nan(dx + 1, 3) && !isnan(dx[4]),
               "%s: NaN and Inf pass through", activation_names[act]);
    check_release();
}

static void check_clip(const struct kernels *table, int64_t n, float limit)
{
    float *x = check_random(n + 1, 1, 2), *dy = check_random(n + 1, 2, 1);
    bool right = true, same = true;
    x[0] = limit;
    x[1] = -limit;
    x[2] = INFINITY;
    x[3] = -INFINITY;
    for (int t = 1; t <= CHECK_THREADS_MAX; t++) {
        struct kernel_ctx ctx = { .threads = t };
        float *got = check_copy(x, n + 1), *dx = check_copy(dy, n + 1);
        table->clip_forward(&ctx, DTYPE_F32, n, limit, got);
        table->clip_backward(&ctx, DTYPE_F32, n, limit, got, dx);
        for (int64_t i = 0; i < n; i++) {
            right &= got[i] == fminf(fmaxf(x[i], -limit), limit);
            right &= dx[i] == (fabsf(x[i]) >= limit ? 0 : dy[i]);
        }
        same &= got[n] == x[n] && dx[n] == dy[n];
    }
    check_that(table, right, "clip: %lld elements to %g, forward and backward",
               (long long)n, (double)limit);
    check_that(table, same, "clip: no more than that");
    check_release();
}

static void check_clip_nan(const struct kernels *table)
{
    struct kernel_ctx ctx = { .threads = 1 };
    float *x = CHECK_HELD(float, 5, check_nan(), -check_nan());
    float *dx = CHECK_HELD(float, check_nan(), 1, check_nan());
    table->clip_forward(&ctx, DTYPE_F32, 3, 2, x);
    table->clip_backward(&ctx, DTYPE_F32, 3, 2, x, dx);
    check_that(table,
               x[0] == 2 && check_all_nan(x + 1, 2) && dx[0] == 0 &&
                   dx[1] == 1 && isnan(dx[2]),
               "clip: a NaN stays one");
    check_release();
}

int main(void)
{
    for (int act = 0; act < ACTIVATIONS; act++)
        check_reference((enum activation)act);
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++) {
        for (int act = 0; act < ACTIVATIONS; act++) {
            check_values(*t, (enum activation)act);
            check_position(*t, (enum activation)act);
            check_nan_values(*t, (enum activation)act);
        }
        check_clip(*t, 4, 0.5f);
        check_clip(*t, 10007, 1.25f);
        check_clip(*t, 40000, 6);
        check_clip_nan(*t);
    }
    return tap_done();
}
