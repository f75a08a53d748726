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

static void problem_free(struct problem *p)
{
    for (int i = 0; i < PARAMETERS; i++)
        free(p->value[i]);
    free(p->dprobs);
    free(p->dout);
}

/* --- fp64 ------------------------------------------------------------------
 */

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

/* --- the ops ---------------------------------------------------------------
 */

static struct result run(const struct kernels *table, const struct problem *p,
                         int threads)
{
    const struct route route = { N, EXPERTS, TOP_K, 1 };
    struct kernel_limits limits = {
        .tokens = N, .seq = 1, .experts = EXPERTS, .top_k = TOP_K
    };
    struct kernel_ctx ctx = check_ctx(table, limits, threads);
    struct result r;
    int32_t place[ROWS], source[ROWS];
    int64_t offsets[EXPERTS + 1];
    float *probs = check_poisoned(N * EXPERTS);
    float *dlogits = check_poisoned(N * EXPERTS);
    float *weights = check_poisoned(ROWS), *dweights = check_poisoned(ROWS);
    float *x = check_poisoned(ROWS * D), *y = check_poisoned(ROWS * D);
    float *z = check_poisoned(ROWS * WIDTH), *h = check_poisoned(ROWS * WIDTH);
    float *dh = check_poisoned(ROWS * WIDTH);
    r.out = check_poisoned(N * D);
    r.chosen = (int32_t *)check_poisoned(ROWS);
    for (int i = 0; i < PARAMETERS; i++)
        r.gradient[i] = check_poisoned(sizes[i]);

    struct gemm logits = { .form = GEMM_NT, .m = N, .n = EXPERTS, .k = D };
    logits.a = p->value[X];
    logits.b = p->value[ROUTER];
    logits.c = probs;
    table->gemm(&ctx, DTYPE_F32, &logits);
    table->route_forward(&ctx, &route, probs, r.chosen, weights);
    table->route_sort(&ctx, &route, r.chosen, offsets, place, source);
    table->expert_gather(&ctx, DTYPE_F32, &route, D, source, p->value[X], x);
    struct grouped_gemm up = { GEMM_NT, EXPERTS, offsets,      0, WIDTH,
                               D,       x,       p->value[W1], z, false };
    table->grouped_gemm(&ctx, DTYPE_F32, &up);
    table->activation_forward(&ctx, DTYPE_F32, ACTIVATION_GELU, ROWS * WIDTH, z,
                              h);
    struct grouped_gemm down = { GEMM_NT, EXPERTS, offsets,      0, D,
                                 WIDTH,   h,       p->value[W2], y, false };
    table->grouped_gemm(&ctx, DTYPE_F32, &down);
    table->expert_combine(&ctx, DTYPE_F32, &route, D, place, weights, y, r.out);

    table->expert_gather(&ctx, DTYPE_F32, &route, D, source, p->dout, y);
    struct grouped_gemm down_dh = { GEMM_NN, EXPERTS, offsets,      0,  WIDTH,
                                    D,       y,       p->value[W2], dh, false };
    table->grouped_gemm(&ctx, DTYPE_F32, &down_dh);
    table->expert_weigh(&ctx, DTYPE_F32, &route, WIDTH, source, weights, h, dh,
                        dweights);
    struct grouped_gemm down_dw = { GEMM_TN,        EXPERTS, offsets, D,
                                    WIDTH,          0,       y,       h,
                                    r.gradient[W2], false };
    table->grouped_gemm(&ctx, DTYPE_F32, &down_dw);
    table->activation_backward(&ctx, DTYPE_F32, ACTIVATION_GELU, ROWS * WIDTH,
                               z, dh, dh);
    struct grouped_gemm up_dw = { GEMM_TN, EXPERTS, offsets,        WIDTH, D, 0,
                                  dh,      x,       r.gradient[W1], false };
    table->grouped_gemm(&ctx, DTYPE_F32, &up_dw);
    struct grouped_gemm up_dx = { GEMM_NN, EXPERTS, offsets,      0, D,
                                  WIDTH,   dh,      p->value[W1], y, false };
    table->grouped_gemm(&ctx, DTYPE_F32, &up_dx);
    table->expert_combine(&ctx, DTYPE_F32, &route, D, place, NULL, y,
                          r.gradient[X]);
    table->route_backward(&ctx, &route, probs, r.chosen, dweights, p->dprobs,
                          dlogits);
    struct gemm dx = {
        .form = GEMM_NN, .m = N, .n = D, .k = EXPERTS, .accumulate = true
    };
    dx.a = dlogits;
    dx.b = p->value[ROUTER];
    dx.c = r.gradient[X];
    table->gemm(&ctx, DTYPE_F32, &dx);
    struct gemm dr = { .form = GEMM_TN, .m = EXPERTS, .n = D, .k = N };
    dr.a = dlogits;
    dr.b = p->value[X];
    dr.c = r.gradient[ROUTER];
    table->gemm(&ctx, DTYPE_F32, &dr);

    float *used[] = { probs, dlogits, weights, dweights, x, y, z, h, dh };
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        free(used[i]);
    check_ctx_free(&ctx);
    return r;
}

static void result_free(struct result *r)
{
    for (int i = 0; i < PARAMETERS; i++)
        free(r->gradient[i]);
    free(r->chosen);
    free(r->out);
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
        free(want);
    }
    for (int i = 0; i < ROWS; i++)
        unused &= r.chosen[i] != UNUSED;
    tap_ok(unused, "%s/%s experts: one has no rows", table->backend,
           table->kernel_set);
    for (int threads = 2; threads <= CHECK_THREADS_MAX; threads++) {
        struct result again = run(table, p, threads);
        same &= check_same(again.out, r.out, N * D);
        for (int i = 0; i < PARAMETERS; i++)
            same &= check_same(again.gradient[i], r.gradient[i], sizes[i]);
        result_free(&again);
    }
    tap_ok(same, "%s/%s experts: same bits on 1, 2, 3 threads", table->backend,
           table->kernel_set);
    for (int i = 0; i < PARAMETERS; i++)
        free(value[i]);
    free(side);
    free(out);
    result_free(&r);
}

int main(void)
{
    struct problem p = problem_create();
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++)
        check_table(*t, &p);
    problem_free(&p);
    return tap_done();
}
