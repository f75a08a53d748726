/* Routing and the rows' way to experts and back, on every table against fp64;
 * gradients against central differences. The routed expression as a whole
 * stands in test_kernels_experts.c. */
#include "tests/kernel_check.h"

struct route_case {
    int64_t n;
    int experts, top_k;
    float p;
    double scale; /* of the logits */
};

static const struct route_case cases[] = {
    { 1, 1, 1, 0, 1 },     { 1, 8, 2, 1, 1 },     { 257, 8, 2, 1, 2 },
    { 100, 16, 4, 1, 1 },  { 33, 17, 3, 2, 5 },   { 70, 256, 16, 2, 1 },
    { 65, 3, 3, 1.5f, 1 }, { 5000, 5, 2, 0, 1 },  { 129, 40, 16, 3, 30 },
    { 50, 8, 1, 1, 1 },    { 4097, 33, 4, 2, 1 }, { 64, 8, 2, INFINITY, 1 },
};

struct problem {
    struct route route;
    float *logits, *dweights, *dprobs;
};

/* What the ops write, in the order in which they run. */
struct result {
    float *probs, *weights, *dlogits;
    int32_t *chosen, *place, *source;
    int64_t *offsets;
    double *sums;
};

static struct problem problem_create(const struct route_case *shape)
{
    struct problem p = { .route = { shape->n, shape->experts, shape->top_k,
                                    shape->p } };
    p.logits = check_random(shape->n * shape->experts, 1, shape->scale);
    p.dweights = check_random(shape->n * shape->top_k, 2, 1);
    p.dprobs = check_random(shape->experts, 3, 1);
    return p;
}

static int64_t choices(const struct problem *p)
{
    return p->route.n * p->route.top_k;
}

static struct result run(const struct kernels *table, const struct problem *p,
                         int threads)
{
    const struct route *route = &p->route;
    int64_t n = route->n * route->experts;
    struct kernel_limits limits = { .tokens = route->n,
                                    .seq = 1,
                                    .experts = route->experts,
                                    .top_k = route->top_k };
    struct kernel_ctx ctx = check_ctx(table, limits, threads);
    struct result r;
    r.probs = check_copy(p->logits, n);
    r.dlogits = check_poisoned(n);
    r.weights = check_poisoned(choices(p));
    r.chosen = (int32_t *)check_poisoned(choices(p));
    r.place = (int32_t *)check_poisoned(choices(p));
    r.source = (int32_t *)check_poisoned(choices(p));
    r.offsets = (int64_t *)check_poisoned(2 * (route->experts + 1));
    r.sums = (double *)check_poisoned(2 * route->experts);
    table->route_forward(&ctx, route, r.probs, r.chosen, r.weights);
    table->route_backward(&ctx, route, r.probs, r.chosen, p->dweights,
                          p->dprobs, r.dlogits);
    table->route_sort(&ctx, route, r.chosen, r.offsets, r.place, r.source);
    table->route_sums(&ctx, route, r.probs, r.sums);
    return r;
}

static bool same_bits(const struct problem *p, const struct result *a,
                      const struct result *b)
{
    size_t n = (size_t)(p->route.n * p->route.experts);
    size_t c = (size_t)choices(p);
    size_t e = (size_t)p->route.experts;
    return memcmp(a->probs, b->probs, n * sizeof(float)) == 0 &&
           memcmp(a->dlogits, b->dlogits, n * sizeof(float)) == 0 &&
           memcmp(a->weights, b->weights, c * sizeof(float)) == 0 &&
           memcmp(a->chosen, b->chosen, c * sizeof(int32_t)) == 0 &&
           memcmp(a->place, b->place, c * sizeof(int32_t)) == 0 &&
           memcmp(a->source, b->source, c * sizeof(int32_t)) == 0 &&
           memcmp(a->offsets, b->offsets, (e + 1) * sizeof(int64_t)) == 0 &&
           memcmp(a->sums, b->sums, e * sizeof(double)) == 0;
}

/* Softmax of one row, then the weights of the chosen; the loss that dweights
 * and dprobs are the gradients of. */
static double row_loss(const struct problem *p, int64_t t, const double *logits,
                       const int32_t *chosen, double *probs, double *weights)
{
    int experts = p->route.experts, k = p->route.top_k;
    double exponent = (double)p->route.normalize;
    double peak = logits[0], total = 0, power = 0, most = 0, loss = 0;
    for (int e = 1; e < experts; e++)
        peak = fmax(peak, logits[e]);
    for (int e = 0; e < experts; e++)
        total += exp(logits[e] - peak);
    for (int e = 0; e < experts; e++) {
        probs[e] = exp(logits[e] - peak) / total;
        loss += probs[e] * (double)p->dprobs[e];
    }
    for (int j = 0; j < k; j++)
        most = fmax(most, weights[j] = probs[chosen[j]]);
    for (int j = 0; j < k; j++)
        power += pow(weights[j] / most, exponent);
    double norm = exponent == 0 ? 1 : most * pow(power, 1 / exponent);
    for (int j = 0; j < k; j++) {
        weights[j] /= norm;
        loss += weights[j] * (double)p->dweights[t * k + j];
    }
    return loss;
}

/* The chosen are the best in order, ties by number, each one once. */
static bool row_chosen_well(const float *probs, const int32_t *chosen,
                            int experts, int k)
{
    for (int j = 0; j < k; j++) {
        if (chosen[j] < 0 || chosen[j] >= experts)
            return false;
        for (int e = 0; e < experts; e++) {
            bool before = false;
            for (int i = 0; i <= j; i++)
                before |= chosen[i] == e;
            float best = probs[chosen[j]];
            if (!before &&
                (probs[e] > best || (probs[e] == best && e < chosen[j])))
                return false;
        }
        for (int i = 0; i < j; i++)
            if (chosen[i] == chosen[j])
                return false;
    }
    return true;
}

static void check_rows(const struct kernels *table, const struct problem *p,
                       const struct result *r, const char *what)
{
    const double step = 1e-5;
    int64_t n = p->route.n, experts = p->route.experts, k = p->route.top_k;
    double *probs = check_f64(n * experts), *weights = check_f64(n * k);
    double *dlogits = check_f64(n * experts);
    double *side = check_f64(experts), *side_weights = check_f64(k);
    double *logits = check_widened(p->logits, n * experts);
    bool well = true;
    for (int64_t t = 0; t < n; t++) {
        double *row = logits + t * experts;
        const int32_t *chosen = r->chosen + t * k;
        well &= row_chosen_well(r->probs + t * experts, chosen,
                                p->route.experts, p->route.top_k);
        if (!well)
            break;
        row_loss(p, t, row, chosen, probs + t * experts, weights + t * k);
        for (int64_t e = 0; e < experts; e++) {
            double at = row[e];
            row[e] = at + step;
            double up = row_loss(p, t, row, chosen, side, side_weights);
            row[e] = at - step;
            double down = row_loss(p, t, row, chosen, side, side_weights);
            row[e] = at;
            dlogits[t * experts + e] = (up - down) / (2 * step);
        }
    }
    check_that(table, well, "route_forward: %s, the best are chosen in order",
               what);
    double error = check_error(r->probs, probs, n * experts);
    error = fmax(error, check_error(r->weights, weights, n * k));
    check_below(table, "route_forward", what, error, 5e-6);
    check_below(table, "route_backward", what,
                check_error(r->dlogits, dlogits, n * experts), 5e-6);
}

/* Against the definition: expert by expert, choices in order. */
static bool sorted_well(const struct problem *p, const struct result *r)
{
    int64_t at = 0;
    for (int e = 0; e < p->route.experts; e++) {
        if (r->offsets[e] != at)
            return false;
        for (int64_t i = 0; i < choices(p); i++)
            if (r->chosen[i] == e &&
                (r->place[i] != at || r->source[at++] != i))
                return false;
    }
    return r->offsets[p->route.experts] == at && at == choices(p);
}

static double sums_error(const struct problem *p, const struct result *r)
{
    double worst = 0;
    for (int64_t e = 0; e < p->route.experts; e++) {
        long double sum = 0;
        for (int64_t t = 0; t < p->route.n; t++)
            sum += r->probs[t * p->route.experts + e];
        worst = fmax(worst, fabs((double)(sum - r->sums[e]) / (double)sum));
    }
    return worst;
}

static void check_case(const struct kernels *table,
                       const struct route_case *shape)
{
    char what[96];
    struct problem p = problem_create(shape);
    struct result one = run(table, &p, 1);
    struct result two = run(table, &p, 2);
    struct result three = run(table, &p, 3);
    snprintf(what, sizeof what, "%lld tokens, %d of %d, p = %g",
             (long long)shape->n, shape->top_k, shape->experts,
             (double)shape->p);
    check_rows(table, &p, &one, what);
    check_that(table, sorted_well(&p, &one), "route_sort: %s", what);
    check_below(table, "route_sums", what, sums_error(&p, &one), 1e-12);
    check_that(table, same_bits(&p, &one, &two) && same_bits(&p, &one, &three),
               "route: %s, same bits on 1, 2, 3 threads", what);
    check_release();
}

/* Logits from few values: most probabilities have equals. */
static void check_ties(const struct kernels *table)
{
    const struct route_case shape = { 60, 19, 5, 1, 1 };
    struct problem p = problem_create(&shape);
    for (int64_t i = 0; i < 60 * 19; i++)
        p.logits[i] = floorf(p.logits[i] * 2);
    for (int e = 0; e < 19; e++)
        p.logits[e] = 3;
    struct result r = run(table, &p, 2);
    bool lowest = true;
    for (int j = 0; j < 5; j++)
        lowest &= r.chosen[j] == j;
    check_that(table, lowest,
               "route_forward: all equal, the lowest numbers first");
    check_rows(table, &p, &r, "ties");
    check_release();
}

static void check_one_expert(const struct kernels *table)
{
    const struct route_case shape = { 300, 6, 1, 1, 1 };
    struct problem p = problem_create(&shape);
    for (int64_t t = 0; t < 300; t++)
        p.logits[t * 6 + 4] = 50;
    struct result r = run(table, &p, 2);
    bool all = r.offsets[4] == 0 && r.offsets[5] == 300 && r.offsets[6] == 300;
    for (int i = 0; i < 300; i++)
        all &= r.place[i] == i && r.source[i] == i && r.weights[i] == 1.0f;
    check_that(table, all, "route: all tokens to one expert");
    check_release();
}

/* Whatever a broken model computes, nothing may be read or written outside. */
static void check_not_finite(const struct kernels *table)
{
    const struct route_case shape = { 8, 20, 4, 2, 1 };
    struct problem p = problem_create(&shape);
    const float high[] = { 3e38f, INFINITY, -INFINITY };
    bool inside = true;
    p.logits[3] = check_nan();
    for (int e = 0; e < 20; e++) {
        p.logits[20 + e] = check_nan();
        p.logits[40 + e] = -INFINITY;
        p.logits[60 + e] = INFINITY;
    }
    for (int i = 0; i < 3; i++)
        p.logits[80 + 20 * i + 7] = high[i];
    struct result r = run(table, &p, 2);
    for (int64_t t = 0; t < 8; t++)
        for (int j = 0; j < 4; j++) {
            int32_t mine = r.chosen[t * 4 + j];
            inside &= mine >= 0 && mine < 20;
            for (int i = 0; i < j; i++)
                inside &= mine != r.chosen[t * 4 + i];
        }
    check_that(table, inside && sorted_well(&p, &r),
               "route: NaN and Inf choose distinct experts in range");
    check_that(table,
               check_all_nan(r.probs, 20) && check_all_nan(r.weights, 4) &&
                   check_all_nan(r.dlogits, 20) && r.probs[87] == 1.0f &&
                   r.probs[127] == 0.0f && check_no_nan(r.probs + 120, 40) &&
                   check_no_nan(r.weights + 24, 8) &&
                   check_no_nan(r.dlogits + 120, 40),
               "route: NaN reaches its row and no other");
    check_release();
}

/* --- rows to experts and back --- */

/* out, y, h, dh and dweights of the three ops on the choices of `r`. */
struct rows {
    float *gathered, *combined, *summed, *h, *dh, *dweights;
};

static struct rows rows_run(const struct kernels *table,
                            const struct problem *p, const struct result *r,
                            int64_t d, int threads)
{
    struct kernel_ctx ctx = { .threads = threads };
    int64_t n = p->route.n, c = choices(p);
    float *x = check_random(n * d, 11, 1), *y = check_random(c * d, 12, 1);
    struct rows w = { check_poisoned(c * d),      check_poisoned(n * d),
                      check_poisoned(n * d),      check_random(c * d, 13, 1),
                      check_random(c * d, 14, 1), check_poisoned(c) };
    table->expert_gather(&ctx, DTYPE_F32, &p->route, d, r->source, x,
                         w.gathered);
    table->expert_combine(&ctx, DTYPE_F32, &p->route, d, r->place, r->weights,
                          y, w.combined);
    table->expert_combine(&ctx, DTYPE_F32, &p->route, d, r->place, NULL, y,
                          w.summed);
    table->expert_weigh(&ctx, DTYPE_F32, &p->route, d, r->source, r->weights,
                        w.h, w.dh, w.dweights);
    return w;
}

static double rows_error(const struct problem *p, const struct result *r,
                         int64_t d, const struct rows *got)
{
    int64_t n = p->route.n, k = p->route.top_k, c = choices(p);
    double *gathered = check_f64(c * d), *combined = check_f64(n * d);
    double *summed = check_f64(n * d), *dweights = check_f64(c);
    double *h = check_f64(c * d), *dh = check_f64(c * d);
    float *x = check_random(n * d, 11, 1), *y = check_random(c * d, 12, 1);
    float *a = check_random(c * d, 13, 1), *b = check_random(c * d, 14, 1);
    for (int64_t i = 0; i < c; i++)
        for (int64_t j = 0; j < d; j++) {
            int64_t at = r->place[i] * d + j;
            double w = (double)r->weights[i];
            gathered[at] = (double)x[i / k * d + j];
            combined[i / k * d + j] += w * (double)y[at];
            summed[i / k * d + j] += (double)y[at];
            dweights[i] += (double)a[at] * (double)b[at];
            h[at] = w * (double)a[at];
            dh[at] = w * (double)b[at];
        }
    double error = check_error(got->gathered, gathered, c * d);
    error = fmax(error, check_error(got->combined, combined, n * d));
    error = fmax(error, check_error(got->summed, summed, n * d));
    error = fmax(error, check_error(got->dweights, dweights, c));
    error = fmax(error, check_error(got->h, h, c * d));
    error = fmax(error, check_error(got->dh, dh, c * d));
    return error;
}

static void check_rows_moved(const struct kernels *table,
                             const struct route_case *shape, int64_t d)
{
    char what[64];
    struct problem p = problem_create(shape);
    struct result r = run(table, &p, 1);
    struct rows one = rows_run(table, &p, &r, d, 1);
    int64_t n = shape->n * d, c = choices(&p) * d;
    bool same = true;
    for (int threads = 2; threads <= CHECK_THREADS_MAX; threads++) {
        struct rows w = rows_run(table, &p, &r, d, threads);
        same &= check_same(w.gathered, one.gathered, c) &&
                check_same(w.combined, one.combined, n) &&
                check_same(w.summed, one.summed, n) &&
                check_same(w.h, one.h, c) && check_same(w.dh, one.dh, c) &&
                check_same(w.dweights, one.dweights, choices(&p));
    }
    snprintf(what, sizeof what, "%lld tokens of %lld, %d of %d",
             (long long)shape->n, (long long)d, shape->top_k, shape->experts);
    check_below(table, "gather, combine, weigh", what,
                rows_error(&p, &r, d, &one), 2e-6);
    check_that(table, same,
               "gather, combine, weigh: %s, same bits on 1, 2, 3 "
               "threads",
               what);
    check_release();
}

/* No tokens: offsets and sums are still written. */
static void check_no_tokens(const struct kernels *table)
{
    const struct route_case shape = { 0, 5, 2, 1, 1 };
    struct problem p = problem_create(&shape);
    struct result r = run(table, &p, 2);
    (void)rows_run(table, &p, &r, 7, 2);
    bool zero = true;
    for (int e = 0; e < 5; e++)
        zero &= r.offsets[e] == 0 && r.sums[e] == 0;
    check_that(table, zero && r.offsets[5] == 0, "route: no tokens");
    check_release();
}

int main(void)
{
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++) {
        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
            check_case(*t, &cases[i]);
        check_ties(*t);
        check_one_expert(*t);
        check_not_finite(*t);
        check_no_tokens(*t);
        check_rows_moved(*t, &cases[0], 1);
        check_rows_moved(*t, &cases[1], 7);
        check_rows_moved(*t, &cases[2], 64);
        check_rows_moved(*t, &cases[3], 331);
        check_rows_moved(*t, &cases[5], 19);
    }
    return tap_done();
}
