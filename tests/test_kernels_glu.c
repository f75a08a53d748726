/* Gated linear units on every table against libm in fp64. */
#include "tests/activation_reference.h"
#include "tests/kernel_check.h"

static void gradient(enum activation act, double gate, double up, double dy,
                     double *dgate, double *dup)
{
    *dgate = dy * up * activation_slope(act, gate);
    *dup = dy * activation_value(act, gate);
}

static void check_reference(enum activation act)
{
    const double h = 1e-5;
    double worst = 0;
    for (int i = 0; i < 1000; i++) {
        double gate = 6 * check_uniform(1, i), up = 2 * check_uniform(2, i);
        double dy = check_uniform(3, i), dgate, dup;
        gradient(act, gate, up, dy, &dgate, &dup);
        double by_gate = dy * up *
                         (activation_value(act, gate + h) -
                          activation_value(act, gate - h)) /
                         (2 * h);
        double by_up =
            dy * activation_value(act, gate) * ((up + h) - (up - h)) / (2 * h);
        worst = fmax(worst, fabs(by_gate - dgate));
        worst = fmax(worst, fabs(by_up - dup));
    }
    tap_ok(worst < 1e-8,
           "the reference of activation %d passes a gradient "
           "check",
           (int)act);
}

/* gate and up share rows of `stride`, as one GEMM leaves them; what lies beside
 * them is NaN. */
struct problem {
    enum activation act;
    int64_t n, width, stride;
    float *in, *dy;
    double *want_y, *want_in; /* gradients where their inputs are */
};

static struct problem problem_create(enum activation act, int64_t n,
                                     int64_t width, int64_t gap)
{
    struct problem p = {
        .act = act, .n = n, .width = width, .stride = 2 * width + gap
    };
    p.in = check_random(n * p.stride, 1, 6);
    p.dy = check_random(n * width, 2, 1);
    p.want_y = check_f64(n * width);
    p.want_in = check_f64(n * p.stride);
    for (int64_t i = 0; i < n * p.stride; i++)
        if (i % p.stride >= 2 * width)
            p.in[i] = check_nan();
    for (int64_t i = 0; i < n * width; i++) {
        int64_t gate = i / width * p.stride + i % width, up = gate + width;
        double a = (double)p.in[gate], b = (double)p.in[up];
        p.want_y[i] = activation_value(act, a) * b;
        gradient(act, a, b, (double)p.dy[i], &p.want_in[gate], &p.want_in[up]);
    }
    return p;
}

/* y, then the gradients. */
static float *run(const struct kernels *table, const struct problem *p,
                  int threads, bool in_place)
{
    int64_t outs = p->n * p->width, ins = p->n * p->stride;
    struct kernel_ctx ctx = { .threads = threads };
    float *y = check_poisoned(outs + ins), *grad = y + outs;
    const float *gate = in_place ? grad : p->in;
    if (in_place)
        memcpy(grad, p->in, (size_t)ins * sizeof(float));
    table->glu_forward(&ctx, DTYPE_F32, p->act, p->n, p->width, p->stride, gate,
                       gate + p->width, y);
    table->glu_backward(&ctx, DTYPE_F32, p->act, p->n, p->width, p->stride,
                        gate, gate + p->width, p->dy, grad, grad + p->width);
    return y;
}

static void check_case(const struct kernels *table, enum activation act,
                       int64_t n, int64_t width, int64_t gap)
{
    struct problem p = problem_create(act, n, width, gap);
    int64_t outs = n * width, ins = n * p.stride;
    char what[64];
    bool same = true, kept = true;
    float *y = run(table, &p, 1, false), *grad = y + outs;
    for (int i = 0; i < 4; i++) {
        float *other = run(table, &p, i % 3 + 1, i == 3);
        same &= check_same(other, y, outs + ins);
    }
    for (int64_t i = 0; i < ins; i++)
        if (i % p.stride >= 2 * width) {
            kept &= isnan(grad[i]);
            grad[i] = 0;
        }
    snprintf(what, sizeof(what), "%s %lldx%lld, stride %lld",
             activation_names[act], (long long)n, (long long)width,
             (long long)p.stride);
    check_below(table, "glu_forward", what, check_error(y, p.want_y, outs),
                2e-6);
    check_below(table, "glu_backward", what, check_error(grad, p.want_in, ins),
                2e-6);
    check_that(table, same && kept,
               "glu: %s, same bits on 1, 2, 3 threads and in place, nothing "
               "else touched",
               what);
    check_release();
}

static void check_nan_values(const struct kernels *table, enum activation act)
{
    struct kernel_ctx ctx = { .threads = 1 };
    float *gate = CHECK_HELD(float, 1, check_nan(), 1);
    float *up = CHECK_HELD(float, 1, 1, check_nan());
    float *dy = CHECK_HELD(float, check_nan(), 1, 1);
    float *y = check_poisoned(3);
    float *dgate = check_poisoned(3), *dup = check_poisoned(3);
    table->glu_forward(&ctx, DTYPE_F32, act, 1, 3, 3, gate, up, y);
    table->glu_backward(&ctx, DTYPE_F32, act, 1, 3, 3, gate, up, dy, dgate,
                        dup);
    check_that(table,
               !isnan(y[0]) && check_all_nan(y + 1, 2) &&
                   check_all_nan(dgate, 3) && check_all_nan(dup, 2) &&
                   !isnan(dup[2]),
               "glu: NaN passes through");
    check_release();
}

static void check_table(const struct kernels *table, enum activation act)
{
    check_case(table, act, 1, 5, 0);
    check_case(table, act, 3, 17, 5);
    check_case(table, act, 2, 3001, 0);
    check_case(table, act, 37, 129, 64);
    check_nan_values(table, act);
}

int main(void)
{
    for (int act = 0; act < ACTIVATIONS; act++)
        check_reference((enum activation)act);
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++)
        for (int act = 0; act < ACTIVATIONS; act++)
            check_table(*t, (enum activation)act);
    return tap_done();
}
