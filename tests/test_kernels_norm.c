/* layernorm on every table against fp64, the fp64 gradient against finite
 * differences. */
#include "tests/kernel_check.h"

#include <stdio.h>

#define EPS 1e-5

/* One problem: inputs, and fp64 references of every output. */
struct problem {
    int64_t n, d;
    bool with_beta;
    float *x, *gamma, *beta, *dy, *dx, *dgamma, *dbeta; /* d*: before */
    double *want_y, *want_mean, *want_rstd;
    double *want_dx, *want_dgamma, *want_dbeta;
};

static double weighted_forward(int64_t n, int64_t d, const double *x,
                               const double *gamma, const double *beta,
                               const double *dy, double *y, double *mean,
                               double *rstd)
{
    double loss = 0;
    for (int64_t i = 0; i < n; i++) {
        double sum = 0, squares = 0;
        for (int64_t j = 0; j < d; j++)
            sum += x[i * d + j];
        mean[i] = sum / (double)d;
        for (int64_t j = 0; j < d; j++)
            squares += (x[i * d + j] - mean[i]) * (x[i * d + j] - mean[i]);
        rstd[i] = 1 / sqrt(squares / (double)d + EPS);
        for (int64_t j = 0; j < d; j++) {
            y[i * d + j] =
                (x[i * d + j] - mean[i]) * rstd[i] * gamma[j] + beta[j];
            loss += y[i * d + j] * dy[i * d + j];
        }
    }
    return loss;
}

static void backward(int64_t n, int64_t d, const double *x, const double *gamma,
                     const double *mean, const double *rstd, const double *dy,
                     double *dx, double *dgamma, double *dbeta)
{
    for (int64_t i = 0; i < n; i++) {
        double g_mean = 0, gh_mean = 0;
        for (int64_t j = 0; j < d; j++) {
            double h = (x[i * d + j] - mean[i]) * rstd[i];
            double g = dy[i * d + j] * gamma[j];
            g_mean += g / (double)d;
            gh_mean += g * h / (double)d;
            dgamma[j] += dy[i * d + j] * h;
            dbeta[j] += dy[i * d + j];
        }
        for (int64_t j = 0; j < d; j++) {
            double h = (x[i * d + j] - mean[i]) * rstd[i];
            double g = dy[i * d + j] * gamma[j];
            dx[i * d + j] += rstd[i] * (g - g_mean - h * gh_mean);
        }
    }
}

static struct problem problem_create(int64_t n, int64_t d, bool with_beta)
{
    struct problem p = { .n = n, .d = d, .with_beta = with_beta };
    p.x = check_random(n * d, 1, 2);
    p.gamma = check_random(d, 2, 1);
    p.beta = check_random(d, 3, 1);
    if (!with_beta)
        memset(p.beta, 0, (size_t)d * sizeof(float));
    p.dy = check_random(n * d, 4, 1);
    p.dx = check_random(n * d, 5, 1);
    p.dgamma = check_random(d, 6, 1);
    p.dbeta = check_random(d, 7, 1);
    p.want_y = check_f64(n * d);
    p.want_mean = check_f64(n);
    p.want_rstd = check_f64(n);
    p.want_dx = check_widened(p.dx, n * d);
    p.want_dgamma = check_widened(p.dgamma, d);
    p.want_dbeta = check_widened(p.dbeta, d);
    double *x = check_widened(p.x, n * d);
    double *gamma = check_widened(p.gamma, d);
    double *beta = check_widened(p.beta, d);
    double *dy = check_widened(p.dy, n * d);
    weighted_forward(n, d, x, gamma, beta, dy, p.want_y, p.want_mean,
                     p.want_rstd);
    backward(n, d, x, gamma, p.want_mean, p.want_rstd, dy, p.want_dx,
             p.want_dgamma, p.want_dbeta);
    free(dy);
    free(beta);
    free(gamma);
    free(x);
    return p;
}

static void problem_free(struct problem *p)
{
    float *floats[] = { p->x,  p->gamma,  p->beta, p->dy,
                        p->dx, p->dgamma, p->dbeta };
    double *doubles[] = { p->want_y,  p->want_mean,   p->want_rstd,
                          p->want_dx, p->want_dgamma, p->want_dbeta };
    for (size_t i = 0; i < sizeof(floats) / sizeof(*floats); i++)
        free(floats[i]);
    for (size_t i = 0; i < sizeof(doubles) / sizeof(*doubles); i++)
        free(doubles[i]);
}

/* All outputs in one buffer: y, dx (n d each), mean, rstd (n), dgamma, dbeta
 * (d). */
static int64_t outputs(const struct problem *p)
{
    return 2 * p->n * p->d + 2 * p->n + 2 * p->d;
}

static float *run(const struct kernels *table, const struct problem *p,
                  int threads)
{
    int64_t n = p->n, d = p->d;
    float *out = check_poisoned(outputs(p));
    float *dx = out + n * d, *mean = dx + n * d, *rstd = mean + n;
    float *dgamma = rstd + n, *dbeta = dgamma + d;
    struct kernel_limits limits = { .tokens = n, .width = d, .seq = 1 };
    struct kernel_ctx ctx = check_ctx(table, limits, threads);
    memcpy(dx, p->dx, (size_t)(n * d) * sizeof(float));
    memcpy(dgamma, p->dgamma, (size_t)d * sizeof(float));
    memcpy(dbeta, p->dbeta, (size_t)d * sizeof(float));
    table->layernorm_forward(&ctx, DTYPE_F32, n, d, p->x, p->gamma,
                             p->with_beta ? p->beta : NULL, (float)EPS, out,
                             mean, rstd);
    table->layernorm_backward(&ctx, DTYPE_F32, n, d, p->dy, p->x, p->gamma,
                              mean, rstd, dx, dgamma,
                              p->with_beta ? dbeta : NULL);
    check_ctx_free(&ctx);
    return out;
}

static void check_shape(const struct kernels *table, int64_t n, int64_t d,
                        bool with_beta)
{
    struct problem p = problem_create(n, d, with_beta);
    char what[64];
    float *out = run(table, &p, 1);
    float *two = run(table, &p, 2);
    float *three = run(table, &p, 3);
    const float *dx = out + n * d, *mean = dx + n * d, *rstd = mean + n;
    const float *dgamma = rstd + n, *dbeta = dgamma + d;
    double error = check_error(out, p.want_y, n * d);
    error = fmax(error, check_error(mean, p.want_mean, n));
    error = fmax(error, check_error(rstd, p.want_rstd, n));
    snprintf(what, sizeof(what), "%lldx%lld%s", (long long)n, (long long)d,
             with_beta ? "" : " without beta");
    check_below(table, "layernorm_forward", what, error, 5e-6);
    error = check_error(dx, p.want_dx, n * d);
    error = fmax(error, check_error(dgamma, p.want_dgamma, d));
    if (with_beta)
        error = fmax(error, check_error(dbeta, p.want_dbeta, d));
    check_below(table, "layernorm_backward", what, error, 5e-6);
    tap_ok(check_same(out, two, outputs(&p)) &&
               check_same(out, three, outputs(&p)) &&
               (with_beta || check_same(dbeta, p.dbeta, d)),
           "%s/%s layernorm: %s, same bits on 1, 2, 3 threads", table->backend,
           table->kernel_set, what);
    free(three);
    free(two);
    free(out);
    problem_free(&p);
}

static void check_nan_row(const struct kernels *table)
{
    struct problem p = problem_create(5, 37, true);
    p.x[2 * 37 + 36] = check_nan();
    float *out = run(table, &p, 2);
    const float *dx = out + 5 * 37, *mean = dx + 5 * 37, *dgamma = mean + 10;
    tap_ok(check_all_nan(out + 2 * 37, 37) && check_no_nan(out, 2 * 37) &&
               check_no_nan(out + 3 * 37, 2 * 37) &&
               check_all_nan(dx + 2 * 37, 37) && check_no_nan(dx, 2 * 37) &&
               check_all_nan(dgamma, 37) && isnan(mean[2]),
           "%s/%s layernorm: a NaN reaches its row and dgamma", table->backend,
           table->kernel_set);
    free(out);
    problem_free(&p);
}

/* The reference itself: backward() against differences of the loss. */
static void check_reference(void)
{
    enum { N = 3, D = 7 };
    double in[N * D + 2 * D], dy[N * D], y[N * D], mean[N], rstd[N];
    double grad[N * D + 2 * D] = { 0 };
    double *gamma = in + N * D, *beta = gamma + D;
    double worst = 0;
    for (int64_t i = 0; i < N * D + 2 * D; i++)
        in[i] = check_uniform(1, i);
    for (int64_t i = 0; i < N * D; i++)
        dy[i] = check_uniform(2, i);
    weighted_forward(N, D, in, gamma, beta, dy, y, mean, rstd);
    backward(N, D, in, gamma, mean, rstd, dy, grad, grad + N * D,
             grad + N * D + D);
    for (int64_t i = 0; i < N * D + 2 * D; i++) {
        double kept = in[i], h = 1e-5;
        in[i] = kept + h;
        double up = weighted_forward(N, D, in, gamma, beta, dy, y, mean, rstd);
        in[i] = kept - h;
        double down =
            weighted_forward(N, D, in, gamma, beta, dy, y, mean, rstd);
        in[i] = kept;
        worst = fmax(worst, fabs((up - down) / (2 * h) - grad[i]));
    }
    tap_ok(worst < 1e-7, "the layernorm reference passes a gradient check");
}

int main(void)
{
    check_reference();
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++) {
        check_shape(*t, 1, 1, true);
        check_shape(*t, 3, 5, true);
        check_shape(*t, 67, 129, true);
        check_shape(*t, 67, 129, false);
        check_shape(*t, 8, 768, true);
        check_shape(*t, 520, 100, true);
        check_shape(*t, 1030, 31, false);
        check_nan_row(*t);
    }
    return tap_done();
}
