/* The routed expression as a whole, on every table: out = sum over the chosen
 * experts of w_j f_e(x), f_e(x) = W2_e gelu(W1_e x), weights and choices from
 * the logits R x. Forward against fp64 loops over tokens, every gradient
 * against central differences of them. */
#include "tests/kernel_check.h"

#define N 21
#define D 10
#define WIDTH 37
#define EXPERTS 5
#define TOP_K 2
#define ROWS (N * TOP_K)
#define UNUSED 3 /* the expert that nobody chooses */

enum parameter { X, ROUTER, W1, W2, PARAMETERS };

static const char *const names[] = { "dx", "drouter", "dw1", "dw2" };
static const int64_t sizes[] = { N * D, EXPERTS *D, EXPERTS *WIDTH *D,
                                 EXPERTS *D *WIDTH };

struct problem {
    float *value[PARAMETERS];
    float *dout, *dprobs;
};

struct result {
    float *out, *gradient[PARAMETERS];
    int32_t *chosen;
};

static struct problem problem_create(void)
{
    struct problem p;
    for (int i = 0; i < PARAMETERS; i++)
        p.value[i] = check_random(sizes[i], (uint64_t)i + 1, 0.7);
    for (int64_t i = 0; i < N * D; i++)
        p.value[X][i] = 0.2f + fabsf(p.value[X][i]);
    for (int64_t i = 0; i < D; i++)
        p.value[ROUTER][UNUSED * D + i] = -1;
    p.dout = check_random(N * D, 11, 1);
    p.dprobs = check_random(EXPERTS, 12, 1);
    return p;
}

/* --- fp64 --- */

static void expert_add(const double *w1, const double *w2, const double *x,
                       double weight, double *out)
{
    for (int i = 0; i < WIDTH; i++) {
        double z = 0;
        for (int j = 0; j < D; j++)
            z += w1[i * D + j] * x[j];
        double h = z / 2 * (1 + erf(z / sqrt(2)));
        for (int j = 0; j < D; j++)
            out[j] += weight * w2[j * WIDTH + i] * h;
    }
}

/* out, and the loss dout . out + dprobs . probs; choices stand still. */
static double reference(const struct problem *p, double *const *value,
                        const int32_t *chosen, double *out)
{
    double loss = 0;
    for (int64_t t = 0; t < N; t++) {
        const double *x = value[X] + t * D;
        double probs[EXPERTS], total = 0, norm = 0;
        for (int e = 0; e < EXPERTS; e++) {
            double logit = 0;
            for (int j = 0; j < D; j++)
                logit += value[ROUTER][e * D + j] * x[j];
            total += probs[e] = exp(logit);
        }
        for (int e = 0; e < EXPERTS; e++)
            loss += (probs[e] /= total) * (double)p->dprobs[e];
        for (int j = 0; j < TOP_K; j++)
            norm += probs[chosen[t * TOP_K + j]];
        memset(out + t * D, 0, D * sizeof(double));
        for (int j = 0; j < TOP_K; j++) {
            int32_t e = chosen[t * TOP_K + j];
            expert_add(value[W1] + e * WIDTH * D, value[W2] + e * D * WIDTH, x,
                       probs[e] / norm, out + t * D);
        }
        for (int j = 0; j < D; j++)
            loss += out[t * D + j] * (double)p->dout[t * D + j];
    }
    return loss;
}

/* --- the ops --- */

/* What the forward pass leaves to the backward one. */
struct state {
    struct kernel_ctx ctx;
    int32_t *place, *source;
    int64_t *offsets;
    float *probs, *weights, *x, *y, *z, *h, *dh, *dweights, *dlogits;
};

static const struct route route = { N, EXPERTS, TOP_K, 1 };

static struct state state_create(const struct kernels *table, int threads)
{
    struct kernel_limits limits = {
        .tokens = N, .seq = 1, .experts = EXPERTS, .top_k = TOP_K
    };
    struct state s = { .ctx = check_ctx(table, limits, threads) };
    s.place = check_alloc(ROWS * sizeof(*s.place));
    s.source = check_alloc(ROWS * sizeof(*s.source));
    s.offsets = check_alloc((EXPERTS + 1) * sizeof(*s.offsets));
    s.probs = check_poisoned(N * EXPERTS);
    s.dlogits = check_poisoned(N * EXPERTS);
    s.weights = check_poisoned(ROWS);
    s.dweights = check_poisoned(ROWS);
    s.x = check_poisoned(ROWS * D);
    s.y = check_poisoned(ROWS * D);
    s.z = check_poisoned(ROWS * WIDTH);
    s.h = check_poisoned(ROWS * WIDTH);
    s.dh = check_poisoned(ROWS * WIDTH);
    return s;
}

/* m is for TN, k for the others. */
static void grouped(const struct kernels *table, struct state *s,
                    enum gemm_form form, int64_t m, int64_t n, int64_t k,
                    const float *a, const float *b, float *c)
{
    struct grouped_gemm g = { .form = form,
                              .groups = EXPERTS,
                              .offsets = s->offsets,
                              .m = m,
                              .n = n,
                              .k = k,
                              .a = a,
                              .b = b,
                              .c = c };
    table->grouped_gemm(&s->ctx, DTYPE_F32, &g);
}

static void forward(const struct kernels *table, const struct problem *p,
                    struct state *s, struct result *r)
{
    struct gemm logits = { .form = GEMM_NT, .m = N, .n = EXPERTS, .k = D };
    logits.a = p->value[X];
    logits.b = p->value[ROUTER];
    logits.c = s->probs;
    table->gemm(&s->ctx, DTYPE_F32, &logits);
    table->route_forward(&s->ctx, &route, s->probs, r->chosen, s->weights);
    table->route_sort(&s->ctx, &route, r->chosen, s->offsets, s->place,
                      s->source);
    table->expert_gather(&s->ctx, DTYPE_F32, &route, D, s->source, p->value[X],
                         s->x);
    grouped(table, s, GEMM_NT, 0, WIDTH, D, s->x, p->value[W1], s->z);
    table->activation_forward(&s->ctx, DTYPE_F32, ACTIVATION_GELU, ROWS * WIDTH,
                              s->z, s->h);
    grouped(table, s, GEMM_NT, 0, D, WIDTH, s->h, p->value[W2], s->y);
    table->expert_combine(&s->ctx, DTYPE_F32, &route, D, s->place, s->weights,
                          s->y, r->out);
}

static void backward(const struct kernels *table, const struct problem *p,
                     struct state *s, struct result *r)
{
    table->expert_gather(&s->ctx, DTYPE_F32, &route, D, s->source, p->dout,
                         s->y);
    grouped(table, s, GEMM_NN, 0, WIDTH, D, s->y, p->value[W2], s->dh);
    table->expert_weigh(&s->ctx, DTYPE_F32, &route, WIDTH, s->source,
                        s->weights, s->h, s->dh, s->dweights);
    grouped(table, s, GEMM_TN, D, WIDTH, 0, s->y, s->h, r->gradient[W2]);
    table->activation_backward(&s->ctx, DTYPE_F32, ACTIVATION_GELU,
                               ROWS * WIDTH, s->z, s->dh, s->dh);
    grouped(table, s, GEMM_TN, WIDTH, D, 0, s->dh, s->x, r->gradient[W1]);
    grouped(table, s, GEMM_NN, 0, D, WIDTH, s->dh, p->value[W1], s->y);
    table->expert_combine(&s->ctx, DTYPE_F32, &route, D, s->place, NULL, s->y,
                          r->gradient[X]);
    table->route_backward(&s->ctx, &route, s->probs, r->chosen, s->dweights,
                          p->dprobs, s->dlogits);
    struct gemm dx = { .form = GEMM_NN, .m = N, .n = D, .k = EXPERTS };
    dx.accumulate = true;
    dx.a = s->dlogits;
    dx.b = p->value[ROUTER];
    dx.c = r->gradient[X];
    table->gemm(&s->ctx, DTYPE_F32, &dx);
    struct gemm dr = { .form = GEMM_TN, .m = EXPERTS, .n = D, .k = N };
    dr.a = s->dlogits;
    dr.b = p->value[X];
    dr.c = r->gradient[ROUTER];
    table->gemm(&s->ctx, DTYPE_F32, &dr);
}

static struct result run(const struct kernels *table, const struct problem *p,
                         int threads)
{
    struct state s = state_create(table, threads);
    struct result r;
    r.out = check_poisoned(N * D);
    r.chosen = (int32_t *)check_poisoned(ROWS);
    for (int i = 0; i < PARAMETERS; i++)
        r.gradient[i] = check_poisoned(sizes[i]);
    forward(table, p, &s, &r);
    backward(table, p, &s, &r);
    return r;
}

static void check_table(const struct kernels *table, const struct problem *p)
{
    const double step = 1e-5;
    double *value[PARAMETERS], *out = check_f64(N * D),
                               *side = check_f64(N * D);
    struct result r = run(table, p, 1);
    bool same = true, unused = true;
    for (int i = 0; i < PARAMETERS; i++)
        value[i] = check_widened(p->value[i], sizes[i]);
    reference(p, value, r.chosen, out);
    check_below(table, "experts", "out", check_error(r.out, out, N * D), 5e-6);
    for (int i = 0; i < PARAMETERS; i++) {
        double *want = check_f64(sizes[i]);
        for (int64_t j = 0; j < sizes[i]; j++) {
            double at = value[i][j];
            value[i][j] = at + step;
            double up = reference(p, value, r.chosen, side);
            value[i][j] = at - step;
            double down = reference(p, value, r.chosen, side);
            value[i][j] = at;
            want[j] = (up - down) / (2 * step);
        }
        check_below(table, "experts", names[i],
                    check_error(r.gradient[i], want, sizes[i]), 1e-5);
    }
    for (int i = 0; i < ROWS; i++)
        unused &= r.chosen[i] != UNUSED;
    check_that(table, unused, "experts: one has no rows");
    for (int threads = 2; threads <= CHECK_THREADS_MAX; threads++) {
        struct result again = run(table, p, threads);
        same &= check_same(again.out, r.out, N * D);
        for (int i = 0; i < PARAMETERS; i++)
            same &= check_same(again.gradient[i], r.gradient[i], sizes[i]);
    }
    check_that(table, same, "experts: same bits on 1, 2, 3 threads");
}

int main(void)
{
    struct problem p = problem_create();
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++)
        check_table(*t, &p);
    return tap_done();
}
