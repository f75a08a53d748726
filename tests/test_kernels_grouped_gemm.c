/* grouped_gemm on every table against fp64, and against each group alone. */
#include "tests/kernel_check.h"
#include "tests/pairwise.h"

#include <stdio.h>

#define GROUPS_MAX 8

struct group_case {
    const char *name;
    int groups;
    int64_t rows[GROUPS_MAX];
    int64_t m, n, k;
};

static const struct group_case cases[] = {
    { "1 row in all", 2, { 0, 1 }, 5, 7, 3 },
    { "no rows", 3, { 0, 0, 0 }, 5, 7, 3 },
    { "1 group", 1, { 33 }, 17, 129, 40 },
    { "1 element each", 4, { 1, 1, 1, 1 }, 1, 1, 1 },
    { "empty ones between", 6, { 0, 5, 0, 64, 1, 0 }, 30, 100, 67 },
    { "all in one", 5, { 0, 0, 201, 0, 0 }, 65, 96, 300 },
    { "odd tails", 4, { 13, 27, 3, 12 }, 47, 61, 515 },
    { "many tiles", 3, { 64, 9, 300 }, 200, 515, 140 },
    { "large", 3, { 40, 520, 72 }, 150, 530, 133 },
};

enum { CASES = sizeof(cases) / sizeof(*cases) };

static const char *const forms[] = { "NT", "NN", "TN" };
/* of form, case and += what emulated tables compute; others compute all */
static bool chosen[3 * CASES * 2];

struct problem {
    struct grouped_gemm g;
    int64_t *offsets; /* [groups + 1] */
    int64_t a_size, b_size, c_size;
    float *a, *b, *before, *c;
    double *want;
};

/* Rows, columns and inner dimension of one group, and where it starts. */
struct part {
    int64_t m, n, k, a, b, c;
};

static struct part part_of(const struct grouped_gemm *g, int64_t group)
{
    int64_t first = g->offsets[group];
    int64_t rows = g->offsets[group + 1] - first;
    if (g->form == GEMM_TN)
        return (struct part){ g->m,         g->n,         rows,
                              first * g->m, first * g->n, group * g->m * g->n };
    return (struct part){
        rows, g->n, g->k, first * g->k, group * g->n * g->k, first * g->n
    };
}

static void reference(struct problem *p)
{
    for (int64_t i = 0; i < p->c_size; i++)
        p->want[i] = p->g.accumulate ? (double)p->before[i] : 0;
    for (int64_t group = 0; group < p->g.groups; group++) {
        struct part q = part_of(&p->g, group);
        const float *a = p->a + q.a, *b = p->b + q.b;
        for (int64_t i = 0; i < q.m; i++)
            for (int64_t j = 0; j < q.n; j++)
                for (int64_t l = 0; l < q.k; l++)
                    p->want[q.c + i * q.n + j] +=
                        (double)a[p->g.form == GEMM_TN ? l * q.m + i
                                                       : i * q.k + l] *
                        (double)
                            b[p->g.form == GEMM_NT ? j * q.k + l : l * q.n + j];
    }
}

static struct problem problem_create(const struct group_case *shape,
                                     enum gemm_form form, bool accumulate)
{
    struct problem p = { .g = { .form = form,
                                .groups = shape->groups,
                                .n = shape->n,
                                .accumulate = accumulate } };
    p.offsets = check_alloc((GROUPS_MAX + 1) * sizeof(*p.offsets));
    p.offsets[0] = 0;
    for (int i = 0; i < shape->groups; i++)
        p.offsets[i + 1] = p.offsets[i] + shape->rows[i];
    int64_t rows = p.offsets[shape->groups];
    p.g.m = form == GEMM_TN ? shape->m : 0;
    p.g.k = form == GEMM_TN ? 0 : shape->k;
    p.a_size = rows * (form == GEMM_TN ? shape->m : shape->k);
    p.b_size =
        form == GEMM_TN ? rows * shape->n : shape->groups * shape->n * shape->k;
    p.c_size =
        form == GEMM_TN ? shape->groups * shape->m * shape->n : rows * shape->n;
    p.a = check_random(p.a_size, 1, 1);
    p.b = check_random(p.b_size, 2, 1);
    p.before =
        accumulate ? check_random(p.c_size, 3, 1) : check_poisoned(p.c_size);
    p.c = check_poisoned(p.c_size);
    p.want = check_f64(p.c_size);
    p.g.a = p.a;
    p.g.b = p.b;
    return p;
}

static void problem_free(struct problem *p)
{
    free(p->want);
    free(p->c);
    free(p->before);
    free(p->b);
    free(p->a);
    free(p->offsets);
}

/* Runs on 1, 2 and 3 threads into copies of `before`; false if bits differ. */
static bool run(const struct kernels *table, struct problem *p)
{
    bool same = true;
    float *again = check_poisoned(p->c_size);
    p->g.offsets = p->offsets;
    for (int threads = 1; threads <= check_runs(table); threads++) {
        struct kernel_ctx ctx = check_ctx_of(table, threads);
        p->g.c = threads == 1 ? p->c : again;
        memcpy(p->g.c, p->before, (size_t)p->c_size * sizeof(float));
        same &= table->grouped_gemm(&ctx, DTYPE_F32, &p->g) == ERR_OK;
        same &= check_same(p->g.c, p->c, p->c_size);
        check_ctx_free(&ctx);
    }
    free(again);
    return same;
}

/* Each group by itself, its tensors moved to where they are aligned otherwise,
 * gives the same bits. */
static bool same_alone(const struct kernels *table, const struct problem *p)
{
    bool same = true;
    for (int64_t group = 0; group < p->g.groups; group++) {
        struct part q = part_of(&p->g, group);
        struct kernel_ctx ctx = check_ctx_of(table, 2);
        struct grouped_gemm g = p->g;
        int64_t *offsets =
            CHECK_HELD(int64_t, 0, p->offsets[group + 1] - p->offsets[group]);
        float *a = check_poisoned(q.m * q.k + 3);
        float *b = check_poisoned(q.n * q.k + 5);
        float *c = check_poisoned(q.m * q.n + 7);
        memcpy(a + 3, p->a + q.a, (size_t)(q.m * q.k) * sizeof(float));
        memcpy(b + 5, p->b + q.b, (size_t)(q.n * q.k) * sizeof(float));
        memcpy(c + 7, p->before + q.c, (size_t)(q.m * q.n) * sizeof(float));
        g.groups = 1;
        g.offsets = offsets;
        g.a = a + 3;
        g.b = b + 5;
        g.c = c + 7;
        same &= table->grouped_gemm(&ctx, DTYPE_F32, &g) == ERR_OK;
        same &= check_same(c + 7, p->c + q.c, q.m * q.n) && check_all_nan(c, 7);
        check_ctx_free(&ctx);
        free(c);
        free(b);
        free(a);
        free(offsets);
    }
    return same;
}

static void check_case(const struct kernels *table, enum gemm_form form,
                       const struct group_case *shape, bool accumulate)
{
    char what[96];
    struct problem p = problem_create(shape, form, accumulate);
    p.g.offsets = p.offsets;
    reference(&p);
    bool same = run(table, &p);
    int64_t k = form == GEMM_TN ? p.offsets[p.g.groups] : shape->k;
    snprintf(what, sizeof(what), "%s %s%s", forms[form], shape->name,
             accumulate ? " +=" : "");
    check_below(table, "grouped_gemm", what, check_error(p.c, p.want, p.c_size),
                2e-6 * sqrt((double)(k > 0 ? k : 1)));
    tap_ok(same, "%s/%s grouped_gemm: %s, same bits on 1, 2, 3 threads",
           table->backend, table->kernel_set, what);
    tap_ok(same_alone(table, &p),
           "%s/%s grouped_gemm: %s, same bits of each group alone",
           table->backend, table->kernel_set, what);
    problem_free(&p);
}

/* Plain and +=, every case of a form. */
static void check_form(const struct kernels *table, int form)
{
    for (int i = 0; i < CASES * 2; i++)
        if (!check_emulated(table) || chosen[form * CASES * 2 + i])
            check_case(table, (enum gemm_form)form, &cases[i / 2], i % 2 == 1);
}

/* A NaN stays in its row (NT, NN) and its group (TN). */
static void check_nan_group(const struct kernels *table)
{
    static const struct group_case shape = {
        "", 3, { 20, 64, 150 }, 40, 70, 60
    };
    for (int form = GEMM_NT; form <= GEMM_TN; form++) {
        struct problem p = problem_create(&shape, (enum gemm_form)form, false);
        int64_t row = 30, first, size = p.g.n;
        p.a[row * (form == GEMM_TN ? shape.m : shape.k) + 11] = check_nan();
        run(table, &p);
        first = row * p.g.n;
        if (form == GEMM_TN)
            first = shape.m * p.g.n + 11 * p.g.n;
        tap_ok(check_no_nan(p.c, first) && check_all_nan(p.c + first, size) &&
                   check_no_nan(p.c + first + size, p.c_size - first - size),
               "%s/%s grouped_gemm: %s, NaN reaches its row and no other",
               table->backend, table->kernel_set, forms[form]);
        problem_free(&p);
    }
}

int main(void)
{
    const int sizes[] = { 3, CASES, 2 };
    tap_note("%d of %d cases emulated", pairwise(3, sizes, chosen),
             3 * CASES * 2);
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++) {
        if (check_lacks_gemm(*t))
            continue;
        for (int form = GEMM_NT; form <= GEMM_TN; form++)
            check_form(*t, form);
        check_nan_group(*t);
    }
    return tap_done();
}
