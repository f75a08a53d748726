/* grouped_gemm in bf16 on every table that has it, against fp64 on the same
 * bf16 numbers and against each group alone. C is bf16 and off by one rounding
 * at most; that of TN is fp32. */
#include "tests/bf16_tensor.h"
#include "tests/pairwise.h"

#include <stdio.h>

#define GROUPS_MAX 8
/* Of a rounding to 8 significant bits, with room for the fp32 error before. */
#define ROUNDING 0x1.002p-8

struct group_case {
    const char *name;
    int groups;
    int64_t rows[GROUPS_MAX];
    int64_t m, n, k;
};

/* Tiles are 128 x 128 and k is taken in steps of 32. */
static const struct group_case cases[] = {
    { "1 row in all", 2, { 0, 1 }, 5, 7, 3 },
    { "no rows", 3, { 0, 0, 0 }, 5, 7, 3 },
    { "1 element each", 4, { 1, 1, 1, 1 }, 1, 1, 1 },
    { "empty ones between", 6, { 0, 5, 0, 64, 1, 0 }, 30, 100, 67 },
    { "whole tiles", 3, { 128, 0, 256 }, 128, 256, 96 },
    { "vectors, ragged", 4, { 31, 1, 0, 161 }, 136, 264, 40 },
    { "odd", 4, { 13, 130, 3, 33 }, 129, 131, 257 },
    { "odd k, whole n", 3, { 129, 7, 64 }, 128, 128, 33 },
    { "whole k, odd n", 3, { 40, 128, 72 }, 127, 135, 64 },
};

enum { CASES = sizeof(cases) / sizeof(*cases) };

static const char *const forms[] = { "NT", "NN", "TN" };
/* of form, case and += what emulated tables compute; others compute all */
static bool chosen[3 * CASES * 2];

struct problem {
    struct grouped_gemm g;
    int64_t *offsets;      /* [groups + 1] */
    struct tensor a, b, c; /* c before */
    double *want, *room;
    bool floats; /* C is fp32 */
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

/* The result and how far off it may be: fp32 sums in any order of products
 * whose sizes add up to `size`, then a rounding. */
static void reference(struct problem *p)
{
    for (int64_t group = 0; group < p->g.groups; group++) {
        struct part q = part_of(&p->g, group);
        const float *a = p->a.wide + q.a, *b = p->b.wide + q.b;
        bool turned = p->g.form == GEMM_TN, rows = p->g.form == GEMM_NT;
        for (int64_t at = 0; at < q.m * q.n; at++) {
            int64_t i = at / q.n, j = at % q.n;
            double sum = p->g.accumulate ? (double)p->c.wide[q.c + at] : 0;
            double size = fabs(sum);
            for (int64_t l = 0; l < q.k; l++) {
                double x = (double)a[turned ? l * q.m + i : i * q.k + l] *
                           (double)b[rows ? j * q.k + l : l * q.n + j];
                sum += x;
                size += fabs(x);
            }
            p->want[q.c + at] = sum;
            p->room[q.c + at] = 2e-6 * size;
            if (!p->floats)
                p->room[q.c + at] += ROUNDING * fabs(sum);
        }
    }
}

static struct problem problem_create(const struct group_case *shape,
                                     enum gemm_form form, bool accumulate)
{
    bool tn = form == GEMM_TN;
    struct problem p = { .g = { .form = form,
                                .groups = shape->groups,
                                .m = tn ? shape->m : 0,
                                .n = shape->n,
                                .k = tn ? 0 : shape->k,
                                .accumulate = accumulate },
                         .floats = tn };
    p.offsets = check_alloc((size_t)(shape->groups + 1) * sizeof(*p.offsets));
    p.offsets[0] = 0;
    for (int i = 0; i < shape->groups; i++)
        p.offsets[i + 1] = p.offsets[i] + shape->rows[i];
    int64_t rows = p.offsets[shape->groups], groups = shape->groups;
    int64_t size = tn ? groups * shape->m * shape->n : rows * shape->n;
    p.a = tensor_random(rows * (tn ? shape->m : shape->k), 1, 1);
    p.b = tensor_random(tn ? rows * shape->n : groups * shape->n * shape->k, 2,
                        1);
    p.c = tensor_random(size + 1, 3, 1); /* a guard behind the end */
    p.want = check_f64(size);
    p.room = check_f64(size);
    for (int64_t i = accumulate ? size : 0; i <= size; i++) {
        p.c.wide[i] = check_nan();
        p.c.half[i] = 0x7fc1;
    }
    return p;
}

static void problem_free(struct problem *p)
{
    free(p->offsets);
    free(p->room);
    free(p->want);
    tensor_free(&p->c);
    tensor_free(&p->b);
    tensor_free(&p->a);
}

static size_t element_bytes(const struct problem *p)
{
    return p->floats ? sizeof(float) : sizeof(uint16_t);
}

/* `count` elements of C as it was before, from element `at` on, with `skip`
 * elements in front. */
static char *before(const struct problem *p, int64_t at, int64_t count,
                    int64_t skip)
{
    size_t bytes = element_bytes(p);
    char *c = check_alloc((size_t)(skip + count) * bytes);
    const char *from =
        p->floats ? (const char *)p->c.wide : (const char *)p->c.half;
    memcpy(c + (size_t)skip * bytes, from + (size_t)at * bytes,
           (size_t)count * bytes);
    return c;
}

static char *run(const struct kernels *table, struct problem *p)
{
    struct kernel_ctx ctx = { .threads = 1 };
    char *c = before(p, 0, p->c.n, 0);
    p->g.offsets = p->offsets;
    p->g.a = p->a.half;
    p->g.b = p->b.half;
    p->g.c = c;
    tap_is_int(table->grouped_gemm(&ctx, DTYPE_BF16, &p->g), ERR_OK,
               "grouped_gemm in bf16");
    return c;
}

static double element(const struct problem *p, const char *c, int64_t i)
{
    return p->floats ? (double)((const float *)c)[i]
                     : (double)widened(((const uint16_t *)c)[i]);
}

static double worst(const struct problem *p, const char *c)
{
    double most = 0;
    for (int64_t i = 0; i < p->c.n - 1; i++) {
        double off = fabs(element(p, c, i) - p->want[i]);
        if (isnan(off) || off > p->room[i])
            most = isnan(off) ? INFINITY : fmax(most, off / p->room[i]);
    }
    return most;
}

/* Each group by itself, its tensors `skip` elements behind where they would be
 * aligned, gives the same bits. */
static bool same_alone(const struct kernels *table, const struct problem *p,
                       const char *c, int64_t skip)
{
    bool same = true;
    size_t bytes = element_bytes(p);
    for (int64_t group = 0; group < p->g.groups; group++) {
        struct part q = part_of(&p->g, group);
        struct kernel_ctx ctx = { .threads = 1 };
        struct grouped_gemm g = p->g;
        int64_t *offsets =
            CHECK_HELD(int64_t, 0, p->offsets[group + 1] - p->offsets[group]);
        uint16_t *a = check_alloc((size_t)(q.m * q.k + skip) * sizeof(*a));
        uint16_t *b = check_alloc((size_t)(q.n * q.k + skip) * sizeof(*b));
        char *alone = before(p, q.c, q.m * q.n, skip);
        memcpy(a + skip, p->a.half + q.a, (size_t)(q.m * q.k) * sizeof(*a));
        memcpy(b + skip, p->b.half + q.b, (size_t)(q.n * q.k) * sizeof(*b));
        g.groups = 1;
        g.offsets = offsets;
        g.a = a + skip;
        g.b = b + skip;
        g.c = alone + (size_t)skip * bytes;
        same &= table->grouped_gemm(&ctx, DTYPE_BF16, &g) == ERR_OK;
        same &= memcmp(g.c, c + (size_t)q.c * bytes,
                       (size_t)(q.m * q.n) * bytes) == 0;
        free(alone);
        free(b);
        free(a);
        free(offsets);
    }
    return same;
}

static void check_case(const struct kernels *table, enum gemm_form form,
                       const struct group_case *shape, bool accumulate)
{
    struct problem p = problem_create(shape, form, accumulate);
    p.g.offsets = p.offsets;
    reference(&p);
    char *c = run(table, &p);
    double off = worst(&p, c);
    if (!tap_ok(off == 0, "%s/%s bf16 grouped_gemm: %s %s%s", table->backend,
                table->kernel_set, forms[form], shape->name,
                accumulate ? " +=" : ""))
        tap_note("%.3f of the tolerance", off);
    tap_ok(isnan(element(&p, c, p.c.n - 1)) && same_alone(table, &p, c, 0) &&
               same_alone(table, &p, c, 3),
           "%s/%s bf16 grouped_gemm: %s %s%s, same bits of each group alone, "
           "wherever it lies",
           table->backend, table->kernel_set, forms[form], shape->name,
           accumulate ? " +=" : "");
    free(c);
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
static void check_nan_group(const struct kernels *table, enum gemm_form form)
{
    static const struct group_case shape = {
        "", 3, { 20, 64, 150 }, 40, 72, 60
    };
    struct problem p = problem_create(&shape, form, false);
    bool tn = form == GEMM_TN, right = true;
    int64_t first = tn ? (shape.m + 11) * shape.n : 30 * shape.n;
    p.a.half[tn ? 30 * shape.m + 11 : 30 * shape.k + 11] = 0x7fc1;
    char *c = run(table, &p);
    for (int64_t i = 0; i < p.c.n - 1; i++)
        right &= (bool)isnan(element(&p, c, i)) ==
                 (i >= first && i < first + shape.n);
    tap_ok(right, "%s/%s bf16 grouped_gemm: %s, NaN reaches its row only",
           table->backend, table->kernel_set, forms[form]);
    free(c);
    problem_free(&p);
}

int main(void)
{
    const int sizes[] = { 3, CASES, 2 };
    int tables = 0;
    tap_note("%d of %d cases emulated", pairwise(3, sizes, chosen),
             3 * CASES * 2);
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++) {
        if (strcmp((*t)->backend, "cpu") == 0)
            continue;
        tables++;
        for (int form = GEMM_NT; form <= GEMM_TN; form++) {
            check_form(*t, form);
            check_nan_group(*t, (enum gemm_form)form);
        }
    }
    if (tables == 0)
        tap_skip("no table has bf16: the CUDA kernels are emulated only where "
                 "a C++ compiler is");
    return tap_done();
}
