/* The load-balance loss on every table: the bits of its definition in fp64. */
#include "tests/kernel_check.h"

#define EXPERTS_MAX 700
#define SCALE 0.37

static const struct balance_case {
    int64_t n;
    int experts, top_k;
} cases[] = { { 1, 1, 1 },     { 7, 8, 2 },      { 1000, 16, 4 },
              { 513, 256, 8 }, { 4096, 257, 1 }, { 333, EXPERTS_MAX, 16 },
              { 0, 5, 2 } };

struct problem {
    struct route route;
    int64_t offsets[EXPERTS_MAX + 1], before[EXPERTS_MAX + 1];
    double sums[EXPERTS_MAX];
};

/* Every third expert has no choices, the last one has what is left. */
static struct problem *problem_create(const struct balance_case *shape)
{
    struct problem *p = check_alloc(sizeof *p);
    p->route = (struct route){ shape->n, shape->experts, shape->top_k, 0 };
    int64_t total = shape->n * shape->top_k, at = 0;
    for (int e = 0; e < shape->experts; e++) {
        int64_t share = 2 * total / shape->experts;
        double part = (1 + check_uniform(5, e)) / 2;
        p->offsets[e] = at;
        if (e % 3 != 1)
            at += (int64_t)((double)share * part);
        at = at < total ? at : total;
        p->sums[e] = (double)shape->n * (1 + check_uniform(6, e));
        p->before[e] = 1000 + e;
    }
    p->offsets[shape->experts] = total;
    p->before[shape->experts] = -1; /* behind the end */
    return p;
}

static void check_forward(const struct kernels *table, const struct problem *p)
{
    int experts = p->route.experts;
    bool counted = true, same = true;
    double sum = 0, want = 2.5;
    for (int e = 0; e < experts; e++) {
        int64_t count = p->offsets[e + 1] - p->offsets[e];
        if (p->route.n > 0)
            sum += (double)count * p->sums[e] / (double)p->route.n;
    }
    want += SCALE * sum;
    for (int threads = 1; threads <= CHECK_THREADS_MAX; threads++) {
        struct kernel_ctx ctx = { .threads = threads };
        int64_t *counts = check_held(p->before, sizeof p->before);
        double *loss = CHECK_HELD(double, 2.5);
        table->balance_forward(&ctx, &p->route, SCALE, p->offsets, p->sums,
                               counts, loss);
        for (int e = 0; e < experts; e++)
            counted &=
                counts[e] == p->before[e] + p->offsets[e + 1] - p->offsets[e];
        counted &= counts[experts] == -1;
        same &= *loss == want;
    }
    check_that(table, counted,
               "balance_forward: %d experts, counts +=", experts);
    check_that(table, same, "balance_forward: %d experts, the loss's bits",
               experts);
}

static void check_backward(const struct kernels *table, const struct problem *p)
{
    int experts = p->route.experts;
    bool same = true;
    for (int threads = 1; threads <= CHECK_THREADS_MAX; threads++) {
        struct kernel_ctx ctx = { .threads = threads };
        float *got = check_poisoned(experts + 1);
        table->balance_backward(&ctx, &p->route, SCALE, p->offsets, got);
        for (int e = 0; e < experts; e++) {
            int64_t count = p->offsets[e + 1] - p->offsets[e];
            double n = p->route.n > 0 ? (double)p->route.n : 1;
            same &= got[e] == (float)(SCALE * (double)count / n);
        }
        same &= isnan(got[experts]);
    }
    check_that(table, same, "balance_backward: %d experts, rounded once",
               experts);
}

static void check_nan_sum(const struct kernels *table)
{
    struct problem *p = problem_create(&cases[3]);
    struct kernel_ctx ctx = { .threads = 2 };
    double *loss = CHECK_HELD(double, 0);
    p->sums[200] = (double)check_nan();
    table->balance_forward(&ctx, &p->route, SCALE, p->offsets, p->sums,
                           p->before, loss);
    check_that(table, isnan(*loss), "balance_forward: NaN reaches the loss");
}

int main(void)
{
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++) {
        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
            struct problem *p = problem_create(&cases[i]);
            check_forward(*t, p);
            check_backward(*t, p);
            check_release();
        }
        check_nan_sum(*t);
        check_release();
    }
    return tap_done();
}
