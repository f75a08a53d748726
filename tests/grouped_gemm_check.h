/* grouped_gemm of one element type on one table: against fp64, each group
 * alone, and how far a NaN reaches. A program has its cases and its tables. */
#pragma once

#include "tests/bf16_tensor.h"
#include "tests/pairwise.h"

#define GROUPS_MAX 8
#define GROUP_CASES 9

struct group_case {
    const char *name;
    int groups;
    int64_t rows[GROUPS_MAX];
    int64_t m, n, k;
};

static const char *const group_forms[] = { "NT", "NN", "TN" };

/* Everything in elements of `dtype`, but C of TN, which is fp32. The last
 * element of C is behind its end. */
struct grouped {
    enum dtype dtype, c_dtype;
    struct grouped_gemm g;
    struct operand a, b, c; /* c: before */
    double *want, *room;    /* and how far off C may be */
    char what[96];
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

/* The result, and fp32 sums in any order of products whose sizes add up to
 * `size`; then a rounding, where C is bf16. */
static void grouped_reference(struct grouped *p)
{
    bool turned = p->g.form == GEMM_TN, rows = p->g.form == GEMM_NT;
    for (int64_t group = 0; group < p->g.groups; group++) {
        struct part q = part_of(&p->g, group);
        const double *a = p->a.value + q.a, *b = p->b.value + q.b;
        for (int64_t at = 0; at < q.m * q.n; at++) {
            int64_t i = at / q.n, j = at % q.n;
            double sum =
                p->g.accumulate && !p->g.begins ? p->c.value[q.c + at] : 0;
            double size = fabs(sum);
            for (int64_t l = 0; l < q.k; l++) {
                double x = a[turned ? l * q.m + i : i * q.k + l] *
                           b[rows ? j * q.k + l : l * q.n + j];
                sum += x;
                size += fabs(x);
            }
            p->want[q.c + at] = sum;
            p->room[q.c + at] =
                2e-6 * size +
                (p->c_dtype == DTYPE_BF16 ? BF16_ROUNDING * fabs(sum) : 0);
        }
    }
}

static struct grouped grouped_create(enum dtype dtype, enum gemm_form form,
                                     const struct group_case *shape,
                                     bool accumulate)
{
    bool tn = form == GEMM_TN;
    int64_t groups = shape->groups;
    int64_t *offsets = check_alloc((GROUPS_MAX + 1) * sizeof(*offsets));
    offsets[0] = 0;
    for (int i = 0; i < groups; i++)
        offsets[i + 1] = offsets[i] + shape->rows[i];
    int64_t rows = offsets[groups];
    int64_t size = tn ? groups * shape->m * shape->n : rows * shape->n;
    struct grouped p = { .dtype = dtype, .c_dtype = tn ? DTYPE_F32 : dtype };
    p.a = operand_random(dtype, rows * (tn ? shape->m : shape->k), 1, 1);
    p.b = operand_random(
        dtype, tn ? rows * shape->n : groups * shape->n * shape->k, 2, 1);
    p.c = operand_random(p.c_dtype, size + 1, 3, 1);
    for (int64_t i = accumulate ? size : 0; i <= size; i++)
        operand_poison(&p.c, i);
    p.want = check_f64(size);
    p.room = check_f64(size);
    p.g = (struct grouped_gemm){ .form = form,
                                 .groups = shape->groups,
                                 .offsets = offsets,
                                 .m = tn ? shape->m : 0,
                                 .n = shape->n,
                                 .k = tn ? 0 : shape->k,
                                 .a = p.a.data,
                                 .b = p.b.data,
                                 .accumulate = accumulate || tn,
                                 .begins = !accumulate && tn };
    snprintf(p.what, sizeof(p.what), "%s grouped_gemm: %s %s%s",
             dtype == DTYPE_F32 ? "fp32" : "bf16", group_forms[form],
             shape->name,
             accumulate ? " +="
             : tn       ? " 0 +="
                        : "");
    return p;
}

/* C on 1, 2 and 3 threads, in bf16, which devices alone compute, on one; `same`:
 * the bits do not depend on them. */
static char *grouped_run(const struct kernels *table, struct grouped *p,
                         bool *same)
{
    char *first = NULL;
    *same = true;
    for (int threads = 1;
         threads <= (p->dtype == DTYPE_F32 ? check_runs(table) : 1);
         threads++) {
        struct kernel_ctx ctx = check_ctx_of(table, threads);
        char *c = operand_part(&p->c, 0, p->c.n, 0);
        p->g.c = c;
        *same &= table->grouped_gemm(&ctx, p->dtype, &p->g) == ERR_OK;
        first = threads == 1 ? c : first;
        *same &= memcmp(c, first, (size_t)p->c.n * p->c.bytes) == 0;
    }
    return first;
}

/* Each group by itself, its tensors `skip` times 3, 5 and 7 elements behind
 * where they would be aligned, gives the same bits. */
static bool same_alone(const struct kernels *table, const struct grouped *p,
                       const char *c, int64_t skip)
{
    bool same = true;
    for (int64_t group = 0; group < p->g.groups; group++) {
        struct part q = part_of(&p->g, group);
        struct kernel_ctx ctx = check_ctx_of(table, 2);
        struct grouped_gemm g = p->g;
        size_t in = p->a.bytes, out = p->c.bytes;
        char *alone = operand_part(&p->c, q.c, q.m * q.n, 7 * skip);
        const int64_t *from = p->g.offsets + group;
        g.groups = 1;
        g.offsets = CHECK_HELD(int64_t, 0, from[1] - from[0]);
        g.a = operand_part(&p->a, q.a, q.m * q.k, 3 * skip) +
              3 * (size_t)skip * in;
        g.b = operand_part(&p->b, q.b, q.n * q.k, 5 * skip) +
              5 * (size_t)skip * in;
        g.c = alone + 7 * (size_t)skip * out;
        same &= table->grouped_gemm(&ctx, p->dtype, &g) == ERR_OK;
        same &=
            memcmp(g.c, c + (size_t)q.c * out, (size_t)(q.m * q.n) * out) == 0;
        for (int64_t i = 0; i < 7 * skip; i++)
            same &= isnan(element_at(alone, p->c_dtype, i));
    }
    return same;
}

static void check_grouped(const struct kernels *table, enum dtype dtype,
                          enum gemm_form form, const struct group_case *shape,
                          bool accumulate)
{
    struct grouped p = grouped_create(dtype, form, shape, accumulate);
    double worst = 0;
    bool same;
    grouped_reference(&p);
    char *c = grouped_run(table, &p, &same);
    for (int64_t i = 0; i < p.c.n - 1; i++) {
        double off = fabs(element_at(c, p.c_dtype, i) - p.want[i]);
        if (isnan(off) || off > p.room[i])
            worst = isnan(off) ? INFINITY : fmax(worst, off / p.room[i]);
    }
    if (!check_that(table, worst == 0, "%s", p.what))
        tap_note("%.3f of the tolerance", worst);
    check_that(table, same && isnan(element_at(c, p.c_dtype, p.c.n - 1)),
               "%s, same bits on 1, 2, 3 threads, nothing behind it", p.what);
    check_that(table,
               (dtype == DTYPE_F32 || same_alone(table, &p, c, 0)) &&
                   same_alone(table, &p, c, 1),
               "%s, same bits of each group alone, wherever it lies", p.what);
    check_release();
}

/* A NaN stays in its row (NT, NN) and its group (TN). */
static void check_nan_group(const struct kernels *table, enum dtype dtype,
                            enum gemm_form form)
{
    static const struct group_case shape = { "with a NaN", 3,  { 20, 64, 150 },
                                             40,           72, 60 };
    struct grouped p = grouped_create(dtype, form, &shape, false);
    bool tn = form == GEMM_TN, right;
    int64_t first = (tn ? shape.m + 11 : 30) * shape.n;
    operand_poison(&p.a, 30 * (tn ? shape.m : shape.k) + 11);
    char *c = grouped_run(table, &p, &right);
    for (int64_t i = 0; i < p.c.n - 1; i++)
        right &= (bool)isnan(element_at(c, p.c_dtype, i)) ==
                 (i >= first && i < first + shape.n);
    check_that(table, right, "%s, which reaches its row and no other", p.what);
    check_release();
}

/* Every case plain and +=; of emulated tables so many that each two values of
 * form, case and += meet. */
static void check_groups(const struct kernels *table, enum dtype dtype,
                         const struct group_case cases[GROUP_CASES])
{
    const int sizes[] = { 3, GROUP_CASES, 2 };
    bool chosen[3 * GROUP_CASES * 2];
    tap_note("%d of %d cases emulated", pairwise(3, sizes, chosen),
             3 * GROUP_CASES * 2);
    for (int i = 0; i < 3 * GROUP_CASES * 2; i++)
        if (!check_emulated(table) || chosen[i])
            check_grouped(table, dtype, (enum gemm_form)(i / 2 / GROUP_CASES),
                          &cases[i / 2 % GROUP_CASES], i % 2 == 1);
    for (int form = GEMM_NT; form <= GEMM_TN; form++)
        check_nan_group(table, dtype, (enum gemm_form)form);
}
