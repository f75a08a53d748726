/* Matrix products to be timed, with operands whose exact result is known, and
 * the check of a result. */
#include "src/cmd/bench_product.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"

#define SEED 23
#define EXACT_MAX 16777216 /* whole numbers that fp32 holds: up to 2^24 */
#define LARGEST 8191       /* of A's numbers */
#define VECTOR_LARGEST 1000
#define BURST_MAX_S 0.2

struct bench_product bench_product_linear(enum gemm_form form, int64_t tokens,
                                          int64_t outputs, int64_t inputs)
{
    struct bench_product product = { form, 1, tokens, outputs, inputs };
    if (form == GEMM_NN) {
        product.n = inputs;
        product.k = outputs;
    } else if (form == GEMM_TN) {
        product.m = outputs;
        product.n = inputs;
        product.k = tokens;
    }
    return product;
}

const char *bench_product_form(const struct bench_product *product)
{
    return product->form == GEMM_NT   ? "NT"
           : product->form == GEMM_NN ? "NN"
                                      : "TN";
}

double bench_product_flops(const struct bench_product *product)
{
    return 2.0 * (double)product->groups * (double)product->m *
           (double)product->n * (double)product->k;
}

/* The next draw of Weyl's sequence, mixed (Steele, Lea and Flood 2014):
 * millions are drawn, and nothing but their variety counts. */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    return (z ^ (z >> 27)) >> 32;
}

/* A whole number within [-largest, largest]. */
static int64_t draw_within(uint64_t *state, int64_t largest)
{
    uint64_t choices = 2 * (uint64_t)largest + 1;
    return (int64_t)(draw(state) * choices >> 32) - largest;
}

static void fill(float *x, int64_t count, uint64_t state, int64_t largest)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)draw_within(&state, largest);
}

/* Fills a and b, and c with NaN. */
static enum err make_operands(const struct bench_product *product,
                              struct bench_operands *operands)
{
    int64_t a = product->groups * product->m * product->k;
    int64_t b = product->groups * product->n * product->k;
    int64_t c = product->groups * product->m * product->n;
    int64_t largest = EXACT_MAX / product->k;
    size_t bytes = (size_t)(a + b + c) * sizeof(float) + 4096;
    if (bytes > operands->arena.capacity) {
        bench_operands_destroy(operands);
        TRY(arena_create(bytes, &operands->arena));
    }
    operands->arena.used = 0;
    operands->a = arena_take(&operands->arena, (size_t)a * sizeof(float));
    operands->b = arena_take(&operands->arena, (size_t)b * sizeof(float));
    operands->c = arena_take(&operands->arena, (size_t)c * sizeof(float));
    fill(operands->a, a, 1, largest < LARGEST ? largest : LARGEST);
    fill(operands->b, b, 2, 1);
    for (int64_t i = 0; i < c; i++)
        operands->c[i] = NAN;
    return ERR_OK;
}

void bench_operands_destroy(struct bench_operands *operands)
{
    arena_destroy(&operands->arena);
    *operands = (struct bench_operands){ .a = NULL };
}

static bool possible(float value)
{
    return fabsf(value) <= EXACT_MAX && value == truncf(value);
}

/* y = X x of a matrix, or of a transpose that is stored as X^T[columns, rows].
 * false: something is in it that no product of these operands can have. */
static bool times_vector(const float *matrix, int64_t rows, int64_t columns,
                         bool transposed, const int64_t *x, int64_t *y)
{
    int64_t height = transposed ? columns : rows;
    int64_t width = transposed ? rows : columns;
    memset(y, 0, (size_t)rows * sizeof *y);
    for (int64_t i = 0; i < height; i++) {
        const float *row = matrix + i * width;
        int64_t sum = 0;
        for (int64_t j = 0; j < width; j++) {
            if (!possible(row[j]))
                return false;
            if (transposed)
                y[j] += (int64_t)row[j] * x[i];
            else
                sum += (int64_t)row[j] * x[j];
        }
        if (!transposed)
            y[i] = sum;
    }
    return true;
}

/* One group: C r = A (B r); work has 2 m + n + k elements. */
static bool group_right(const struct bench_product *p, const float *a,
                        const float *b, const float *c, int64_t *work)
{
    int64_t *r = work;
    int64_t *inner = r + p->n;
    int64_t *expected = inner + p->k;
    int64_t *got = expected + p->m;
    uint64_t state = SEED;
    bool right = true;
    for (int64_t j = 0; j < p->n; j++)
        r[j] = draw_within(&state, VECTOR_LARGEST);
    times_vector(b, p->k, p->n, p->form == GEMM_NT, r, inner);
    times_vector(a, p->m, p->k, p->form == GEMM_TN, inner, expected);
    if (!times_vector(c, p->m, p->n, false, r, got))
        return false;
    for (int64_t i = 0; i < p->m; i++)
        right = right && got[i] == expected[i];
    return right;
}

static enum err check(const struct bench_product *p,
                      const struct bench_operands *operands)
{
    enum err rc = ERR_OK;
    size_t count = (size_t)(2 * p->m + p->n + p->k);
    int64_t *work = malloc(count * sizeof *work);
    if (work == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    for (int64_t g = 0; g < p->groups && rc == ERR_OK; g++)
        if (!group_right(p, operands->a + g * p->m * p->k,
                         operands->b + g * p->n * p->k,
                         operands->c + g * p->m * p->n, work))
            rc = err_set(ERR_NUMERIC,
                         "its product %s %lld x %lld x %lld is wrong",
                         bench_product_form(p), (long long)p->m,
                         (long long)p->n, (long long)p->k);
    free(work);
    return rc;
}

enum err bench_product_prepare(const struct bench_product *product,
                               const struct bench_multiplier *multiplier,
                               struct bench_operands *operands)
{
    TRY(make_operands(product, operands));
    TRY(multiplier->multiply(multiplier->arg, product, operands));
    return check(product, operands);
}

enum err bench_product_time(const struct bench_product *product,
                            const struct bench_multiplier *multiplier,
                            const struct bench_operands *operands, int calls,
                            double *seconds)
{
    double begin = clock_now(), taken = 0.0;
    int done = 0;
    while (done < calls && taken < BURST_MAX_S) {
        TRY(multiplier->multiply(multiplier->arg, product, operands));
        taken = clock_now() - begin;
        done++;
    }
    *seconds = taken / done;
    return ERR_OK;
}
