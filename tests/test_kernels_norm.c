/* Norms on every table against fp64, the fp64 gradient against finite
 * differences. */
#include "tests/kernel_check.h"

#define EPS 1e-5

/* One problem: inputs, and fp64 references of every output. Elements between
 * the groups' end and the next row are NaN in inputs and must not change in
 * outputs. */
struct problem {
    struct norm norm;
    bool with_beta, accumulate;
    int64_t size, width, stats; /* elements of x, of gamma, of mean */
    float *x, *gamma, *beta, *dy, *dx, *dgamma, *dbeta; /* d*: before */
    double *want_y, *want_mean, *want_rstd;
    double *want_dx, *want_dgamma, *want_dbeta;
};

/* Where element j of group g of row i lies, and its weight. */
static int64_t place(const struct norm *s, int64_t i, int64_t g, int64_t j)
{
    return i * s->stride + g * s->d + j;
}

static int64_t weight(const struct norm *s, int64_t g, int64_t j)
{
    return (s->shared ? 0 : g * s->d) + j;
}

static void group_forward(const struct norm *s, int64_t i, int64_t g,
                          const double *x, const double *gamma,
                          const double *beta, double *y, double *mean,
                          double *rstd)
{
    double sum = 0, squares = 0, d = (double)s->d;
    int64_t at = i * s->groups + g;
    for (int64_t j = 0; j < s->d; j++)
        sum += x[place(s, i, g, j)];
    mean[at] = s->kind == NORM_RMS ? 0 : sum / d;
    for (int64_t j = 0; j < s->d; j++)
        squares += pow(x[place(s, i, g, j)] - mean[at], 2);
    rstd[at] = 1 / sqrt(squares / d + EPS);
    for (int64_t j = 0; j < s->d; j++)
        y[place(s, i, g, j)] =
            (x[place(s, i, g, j)] - mean[at]) * rstd[at] *
                gamma[weight(s, g, j)] +
            (s->kind == NORM_RMS ? 0 : beta[weight(s, g, j)]);
}

/* Returns the sum of y dy, whose gradient backward() gives. */
static double forward(const struct norm *s, const double *x,
                      const double *gamma, const double *beta, const double *dy,
                      double *y, double *mean, double *rstd)
{
    double loss = 0;
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t g = 0; g < s->groups; g++) {
            group_forward(s, i, g, x, gamma, beta, y, mean, rstd);
            for (int64_t j = 0; j < s->d; j++)
                loss += y[place(s, i, g, j)] * dy[place(s, i, g, j)];
        }
    return loss;
}

static void group_backward(const struct norm *s, int64_t i, int64_t g,
                           const double *x, const double *gamma, double mean,
                           double rstd, const double *dy, double *dx,
                           double *dgamma, double *dbeta)
{
    double g_mean = 0, gh_mean = 0;
    for (int64_t j = 0; j < s->d; j++) {
        int64_t at = place(s, i, g, j), w = weight(s, g, j);
        double h = (x[at] - mean) * rstd;
        double slope = dy[at] * gamma[w];
        g_mean += slope / (double)s->d;
        gh_mean += slope * h / (double)s->d;
        dgamma[w] += dy[at] * h;
        dbeta[w] += dy[at];
    }
    if (s->kind == NORM_RMS)
        g_mean = 0;
    for (int64_t j = 0; j < s->d; j++) {
        int64_t at = place(s, i, g, j);
        double h = (x[at] - mean) * rstd;
        double slope = dy[at] * gamma[weight(s, g, j)];
        dx[at] += rstd * (slope - g_mean - h * gh_mean);
    }
}

static void backward(const struct norm *s, const double *x, const double *gamma,
                     const double *mean, const double *rstd, const double *dy,
                     double *dx, double *dgamma, double *dbeta)
{
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t g = 0; g < s->groups; g++)
            group_backward(s, i, g, x, gamma, mean[i * s->groups + g],
                           rstd[i * s->groups + g], dy, dx, dgamma, dbeta);
}

/* What the op sees: with low precision, bf16. */
static double *seen(const struct norm *s, const float *from, int64_t n)
{
    double *x = check_widened(from, n);
    for (int64_t i = 0; i < n && s->low_precision; i++)
        x[i] = (double)check_bf16_of(from[i]);
    return x;
}

static float *random_rows(const struct norm *s, uint64_t seed, double scale)
{
    float *x = check_random(s->n * s->stride, seed, scale);
    for (int64_t i = 0; i < s->n * s->stride; i++)
        if (i % s->stride >= s->groups * s->d)
            x[i] = check_nan();
    return x;
}

static struct problem problem_create(struct norm norm, bool with_beta,
                                     bool accumulate)
{
    struct problem p = { .norm = norm,
                         .with_beta = with_beta,
                         .accumulate = accumulate };
    const struct norm *s = &p.norm;
    p.size = s->n * s->stride;
    p.width = s->shared ? s->d : s->groups * s->d;
    p.stats = s->n * s->groups;
    p.x = random_rows(s, 1, 2);
    p.gamma = check_random(p.width, 2, 1);
    p.beta = check_random(p.width, 3, 1);
    if (!with_beta)
        memset(p.beta, 0, (size_t)p.width * sizeof(float));
    p.dy = random_rows(s, 4, 1);
    p.dx = random_rows(s, 5, 1);
    p.dgamma = check_random(p.width, 6, 1);
    p.dbeta = check_random(p.width, 7, 1);
    p.want_y = check_f64(p.size);
    p.want_mean = check_f64(p.stats);
    p.want_rstd = check_f64(p.stats);
    p.want_dx = accumulate ? check_widened(p.dx, p.size) : check_f64(p.size);
    p.want_dgamma = check_widened(p.dgamma, p.width);
    p.want_dbeta = check_widened(p.dbeta, p.width);
    double *x = seen(s, p.x, p.size);
    double *gamma = seen(s, p.gamma, p.width);
    for (int64_t i = 0; i < p.width && s->plus_one; i++)
        gamma[i] += 1;
    double *beta = seen(s, p.beta, p.width);
    double *dy = check_widened(p.dy, p.size);
    forward(s, x, gamma, beta, dy, p.want_y, p.want_mean, p.want_rstd);
    backward(s, x, gamma, p.want_mean, p.want_rstd, dy, p.want_dx,
             p.want_dgamma, p.want_dbeta);
    return p;
}

/* All outputs in one buffer. */
struct outputs {
    int64_t count;
    float *y, *dx, *mean, *rstd, *dgamma, *dbeta;
};

/* `in_place`: y is x, and dx is dy where it is overwritten. */
static struct outputs run(const struct kernels *table, const struct problem *p,
                          int threads, bool in_place)
{
    const bool rms = p->norm.kind == NORM_RMS;
    struct outputs o = { .count = 2 * (p->size + p->stats + p->width) };
    struct kernel_limits limits = { .tokens = p->norm.n,
                                    .width = p->width,
                                    .seq = 1 };
    struct kernel_ctx ctx = check_ctx(table, limits, threads);
    o.y = check_poisoned(o.count);
    o.dx = o.y + p->size;
    o.mean = o.dx + p->size;
    o.rstd = o.mean + p->stats;
    o.dgamma = o.rstd + p->stats;
    o.dbeta = o.dgamma + p->width;
    memcpy(o.dgamma, p->dgamma, (size_t)p->width * sizeof(float));
    memcpy(o.dbeta, p->dbeta, (size_t)p->width * sizeof(float));
    if (in_place)
        memcpy(o.y, p->x, (size_t)p->size * sizeof(float));
    if (p->accumulate || in_place)
        memcpy(o.dx, p->accumulate ? p->dx : p->dy,
               (size_t)p->size * sizeof(float));
    table->norm_forward(&ctx, DTYPE_F32, &p->norm, in_place ? o.y : p->x,
                        p->gamma, p->with_beta ? p->beta : NULL, o.y,
                        rms ? NULL : o.mean, o.rstd);
    table->norm_backward(&ctx, DTYPE_F32, &p->norm,
                         in_place && !p->accumulate ? o.dx : p->dy, p->x,
                         p->gamma, rms ? NULL : o.mean, o.rstd, p->accumulate,
                         o.dx, o.dgamma, p->with_beta ? o.dbeta : NULL);
    return o;
}

/* Zeroes what lies between rows, after a look that it is still NaN. */
static bool gaps_kept(const struct problem *p, float *x)
{
    bool kept = true;
    for (int64_t i = 0; i < p->size; i++)
        if (i % p->norm.stride >= p->norm.groups * p->norm.d) {
            kept &= isnan(x[i]);
            x[i] = 0;
        }
    return kept;
}

static void widen_gaps(const struct problem *p, double *x)
{
    for (int64_t i = 0; i < p->size; i++)
        if (i % p->norm.stride >= p->norm.groups * p->norm.d)
            x[i] = 0;
}

/* Low precision: every y is bf16, and the one that is nearest up to the fp32
 * error before rounding. Otherwise: the error. */
static double forward_error(const struct problem *p, const float *y)
{
    if (!p->norm.low_precision)
        return check_error(y, p->want_y, p->size);
    for (int64_t i = 0; i < p->size; i++) {
        double off = fabs((double)y[i] - p->want_y[i]);
        bool near = off <= 0x1.001p-8 * fabs(p->want_y[i]) + 1e-6;
        if (!near || check_bf16_of(y[i]) != y[i])
            return INFINITY;
    }
    return 0;
}

static void check_case(const struct kernels *table, const char *name,
                       struct norm norm, bool with_beta, bool accumulate)
{
    norm.eps = (float)EPS;
    struct problem p = problem_create(norm, with_beta, accumulate);
    const bool rms = norm.kind == NORM_RMS;
    char what[96];
    struct outputs out = run(table, &p, 1, false);
    bool same = true;
    for (int i = 0; i < 4; i++) {
        struct outputs other = run(table, &p, i % 3 + 1, i == 3);
        same &= check_same(out.y, other.y, out.count);
    }
    snprintf(what, sizeof(what), "%s %lldx%lldx%lld%s%s%s", name,
             (long long)norm.n, (long long)norm.groups, (long long)norm.d,
             norm.low_precision ? " low precision" : "",
             with_beta ? "" : " without beta", accumulate ? " +=" : "");
    bool kept = gaps_kept(&p, out.y) && gaps_kept(&p, out.dx);
    widen_gaps(&p, p.want_y);
    widen_gaps(&p, p.want_dx);
    double error = forward_error(&p, out.y);
    error = fmax(error, check_error(out.rstd, p.want_rstd, p.stats));
    if (!rms)
        error = fmax(error, check_error(out.mean, p.want_mean, p.stats));
    check_below(table, "norm_forward", what, error, 5e-6);
    error = check_error(out.dx, p.want_dx, p.size);
    error = fmax(error, check_error(out.dgamma, p.want_dgamma, p.width));
    if (with_beta)
        error = fmax(error, check_error(out.dbeta, p.want_dbeta, p.width));
    check_below(table, "norm_backward", what, error, 5e-6);
    check_that(table,
               same && kept &&
                   (with_beta || check_same(out.dbeta, p.dbeta, p.width)) &&
                   (!rms || check_all_nan(out.mean, p.stats)),
               "norm: %s, same bits on 1, 2, 3 threads and in place, nothing "
               "else touched",
               what);
    check_release();
}

static void check_cases(const struct kernels *table)
{
    static const struct {
        int64_t n, groups, d, gap;
        bool shared;
    } shapes[] = {
        { 1, 1, 1, 0, true },     { 3, 1, 5, 0, true },
        { 67, 1, 129, 0, true },  { 8, 1, 768, 0, true },
        { 520, 1, 100, 3, true }, { 1030, 1, 31, 0, true },
        { 19, 3, 40, 80, false }, { 530, 2, 7, 9, false },
        { 19, 3, 64, 128, true }, { 70, 5, 33, 1, true },
        { 5, 1, 1501, 0, true },  { 7, 1, 1100, 0, true },
        { 4, 1, 6403, 0, true },  { 9, 3, 700, 0, false },
        { 3, 1, 6144, 0, true },  { 2, 1, 8192, 0, true },
        { 3, 1, 9001, 7, true },  { 2, 1, 16640, 0, true },
    };
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        struct norm norm = { .n = shapes[i].n,
                             .groups = shapes[i].groups,
                             .d = shapes[i].d,
                             .shared = shapes[i].shared };
        norm.stride = norm.groups * norm.d + shapes[i].gap;
        norm.kind = NORM_LAYER;
        check_case(table, "LayerNorm", norm, true, i % 2 == 0);
        check_case(table, "LayerNorm", norm, false, i % 2 == 1);
        norm.kind = NORM_RMS;
        check_case(table, "RMSNorm", norm, false, i % 2 == 0);
        norm.plus_one = true;
        check_case(table, "RMSNorm of 1 + w", norm, false,
                   i % 2 == 1 || norm.d == 1);
        norm.low_precision = i % 2 == 0;
        check_case(table, "RMSNorm of 1 + w", norm, false, true);
        norm.plus_one = false;
        norm.low_precision = true;
        /* of a lone element, all but rounding cancels: relative to what? */
        check_case(table, "RMSNorm", norm, false, i % 2 == 1 || norm.d == 1);
        norm.kind = NORM_LAYER;
        check_case(table, "LayerNorm", norm, i % 2 == 0, i % 3 == 0);
    }
}

/* The fused op gives the bits of add and norm_forward. */
static void check_add_norm(const struct kernels *table, int64_t n, int64_t d,
                           enum norm_kind kind, bool low_precision, float scale)
{
    const int64_t count = n * d;
    const struct norm norm = { .kind = kind,
                               .n = n,
                               .groups = 1,
                               .d = d,
                               .stride = d,
                               .shared = true,
                               .eps = (float)EPS,
                               .low_precision = low_precision };
    float *a = check_random(count, 1, 1), *b = check_random(count, 2, 1);
    float *gamma = check_random(d, 3, 1), *beta = check_random(d, 4, 1);
    float *want = check_poisoned(2 * count + 2 * n);
    bool same = true;
    struct kernel_ctx one = { .threads = 1 };
    table->add(&one, DTYPE_F32, count, a, scale, b, want);
    table->norm_forward(&one, DTYPE_F32, &norm, want, gamma, beta, want + count,
                        want + 2 * count, want + 2 * count + n);
    for (int t = 1; t <= CHECK_THREADS_MAX + 1; t++) {
        struct kernel_ctx ctx = { .threads = t > 3 ? 1 : t };
        float *got = check_poisoned(2 * count + 2 * n);
        if (t > 3)
            memcpy(got, a, (size_t)count * sizeof(float));
        table->add_norm_forward(&ctx, DTYPE_F32, &norm, t > 3 ? got : a, scale,
                                b, got, gamma, beta, got + count,
                                got + 2 * count, got + 2 * count + n);
        same &= check_same(got, want, 2 * count + 2 * n);
    }
    check_that(table, same,
               "add_norm_forward: %s%s, %lld wide, scale %g: bits of add, "
               "then norm, on "
               "1, 2, 3 threads and in place",
               kind == NORM_RMS ? "RMSNorm" : "LayerNorm",
               low_precision ? " low precision" : "", (long long)d,
               (double)scale);
    check_release();
}

/* The same rows one element further on have the same bits. */
static void check_alignment(const struct kernels *table, int64_t d)
{
    enum { N = 3 };
    const struct norm norm = { .kind = NORM_LAYER,
                               .n = N,
                               .groups = 1,
                               .d = d,
                               .stride = d,
                               .shared = true,
                               .eps = (float)EPS };
    struct kernel_limits limits = { .tokens = N, .width = d, .seq = 1 };
    struct kernel_ctx ctx = check_ctx(table, limits, 1);
    int64_t size = N * d;
    float *x = check_random(size + 1, 1, 1), *dy = check_random(size + 1, 2, 1);
    float *gamma = check_random(d + 1, 3, 1), *mean = check_poisoned(4 * N);
    float *y[2], *sums[2];
    for (int at = 0; at < 2; at++) {
        float *stats = mean + at * 2 * N;
        memmove(x + at, x, (size_t)size * sizeof(*x));
        memmove(dy + at, dy, (size_t)size * sizeof(*dy));
        memmove(gamma + at, gamma, (size_t)d * sizeof(*gamma));
        y[at] = check_poisoned(2 * size + 2);
        sums[at] = check_alloc((size_t)(2 * d) * sizeof(float));
        memset(sums[at], 0, (size_t)(2 * d) * sizeof(float));
        table->norm_forward(&ctx, DTYPE_F32, &norm, x + at, gamma + at,
                            gamma + at, y[at] + at, stats, stats + N);
        table->norm_backward(&ctx, DTYPE_F32, &norm, dy + at, x + at,
                             gamma + at, stats, stats + N, false,
                             y[at] + size + at, sums[at], sums[at] + d);
    }
    check_that(table,
               check_same(y[0], y[1] + 1, 2 * size) &&
                   check_same(sums[0], sums[1], 2 * d) &&
                   check_same(mean, mean + 2 * N, 2 * N),
               "norm: %lld elements, bits do not follow alignment",
               (long long)d);
    check_release();
}

static void check_nan_row(const struct kernels *table, enum norm_kind kind)
{
    enum { D = 37 };
    const struct norm norm = { .kind = kind,
                               .n = 5,
                               .groups = 1,
                               .d = D,
                               .stride = D,
                               .shared = true,
                               .eps = (float)EPS };
    struct problem p = problem_create(norm, kind == NORM_LAYER, true);
    p.x[2 * D + 36] = check_nan();
    struct outputs o = run(table, &p, 2, false);
    check_that(table,
               check_all_nan(o.y + 2 * D, D) && check_no_nan(o.y, 2 * D) &&
                   check_no_nan(o.y + 3 * D, 2 * D) &&
                   check_all_nan(o.dx + 2 * D, D) &&
                   check_no_nan(o.dx, 2 * D) && check_all_nan(o.dgamma, D) &&
                   isnan(o.rstd[2]),
               "norm: a NaN reaches its row and dgamma");
    check_release();
}

/* The reference itself: backward() against differences of the loss. */
static void check_reference(enum norm_kind kind, bool shared)
{
    enum { N = 3, GROUPS = 2, D = 5, STRIDE = 11, SIZE = N * STRIDE };
    enum { WIDTH = GROUPS * D, ALL = SIZE + 2 * WIDTH };
    const struct norm s = { .kind = kind,
                            .n = N,
                            .groups = GROUPS,
                            .d = D,
                            .stride = STRIDE,
                            .shared = shared };
    double in[ALL], dy[SIZE], y[SIZE], mean[N * GROUPS], rstd[N * GROUPS];
    double grad[ALL] = { 0 };
    double *gamma = in + SIZE, *beta = gamma + WIDTH;
    double worst = 0;
    for (int64_t i = 0; i < ALL; i++)
        in[i] = check_uniform(1, i);
    for (int64_t i = 0; i < SIZE; i++)
        dy[i] = check_uniform(2, i);
    forward(&s, in, gamma, beta, dy, y, mean, rstd);
    backward(&s, in, gamma, mean, rstd, dy, grad, grad + SIZE,
             grad + SIZE + WIDTH);
    for (int64_t i = 0; i < (kind == NORM_RMS ? SIZE + WIDTH : ALL); i++) {
        double kept = in[i], h = 1e-5;
        in[i] = kept + h;
        double up = forward(&s, in, gamma, beta, dy, y, mean, rstd);
        in[i] = kept - h;
        double down = forward(&s, in, gamma, beta, dy, y, mean, rstd);
        in[i] = kept;
        worst = fmax(worst, fabs((up - down) / (2 * h) - grad[i]));
    }
    tap_ok(worst < 1e-7, "the %s reference passes a gradient check%s",
           kind == NORM_RMS ? "RMSNorm" : "LayerNorm",
           shared ? ", shared weights" : "");
}

int main(void)
{
    for (int i = 0; i < 4; i++)
        check_reference(i % 2 ? NORM_RMS : NORM_LAYER, i / 2);
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++) {
        check_cases(*t);
        check_add_norm(*t, 41, 133, NORM_LAYER, false, 1);
        check_add_norm(*t, 41, 133, NORM_LAYER, true, 0.3f);
        check_add_norm(*t, 41, 133, NORM_RMS, false, 0.3f);
        check_add_norm(*t, 41, 133, NORM_RMS, true, 1);
        check_add_norm(*t, 3, 4100, NORM_LAYER, true, 1);
        check_add_norm(*t, 2, 9000, NORM_LAYER, false, 0.3f);
        check_alignment(*t, 260);
        check_alignment(*t, 2052);
        check_nan_row(*t, NORM_LAYER);
        check_nan_row(*t, NORM_RMS);
    }
    return tap_done();
}
