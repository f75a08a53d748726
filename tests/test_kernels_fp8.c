/* 8-bit floats on every table that has them: quantize against the nearest of
 * all codes, bit by bit, and gemm_fp8 against an fp64 sum of the codes' values.
 * The values come from the formats' definition, not from the kernels. */
#include "tests/bf16_tensor.h"

/* Of a sum's terms: in fp32, and on tensor cores that keep fewer bits of it. */
#define SUMMED 2e-6
#define SUMMED_SHORT 0x1p-11
#define CODES 256

struct format {
    const char *name;
    enum fp8 type;
    int mantissa, bias, largest;
};

static const struct format formats[] = { { "e4m3", FP8_E4M3, 3, 7, 0x7e },
                                         { "e5m2", FP8_E5M2, 2, 15, 0x7b } };

/* A NaN for NaN, +-Inf for the infinities of e5m2. */
static double value_of(const struct format *f, int code)
{
    int size = code & 0x7f, exponent = size >> f->mantissa;
    int fraction = size & ((1 << f->mantissa) - 1);
    double x = ldexp(fraction + (exponent > 0 ? 1 << f->mantissa : 0),
                     (exponent > 0 ? exponent : 1) - f->bias - f->mantissa);
    if (size > f->largest)
        x = f->type == FP8_E5M2 && fraction == 0 ? INFINITY : NAN;
    return code & 0x80 ? -x : x;
}

/* The nearest finite code, the even one of two. */
static int code_of(const struct format *f, double x)
{
    int sign = signbit(x) ? 0x80 : 0, below = 0;
    double size = fabs(x);
    if (isnan(x))
        return -1;
    if (size >= value_of(f, f->largest))
        return sign | f->largest;
    while (value_of(f, below + 1) <= size)
        below++;
    double down = size - value_of(f, below), up = value_of(f, below + 1) - size;
    return sign |
           (down < up || (down == up && below % 2 == 0) ? below : below + 1);
}

static bool is_nan(const struct format *f, int code)
{
    return isnan(value_of(f, code));
}

static uint8_t *codes_poisoned(int64_t n)
{
    return memset(check_alloc((size_t)n), 0x55, (size_t)n);
}

static void name(const struct kernels *table, const struct format *f,
                 const char *what)
{
    tap_note("%s/%s %s, %s", table->backend, table->kernel_set, f->name, what);
}

/* --- quantize --- */

/* What the outputs must be for x[rows, cols], an element at a time. */
static void check_codes(const struct format *f, int64_t rows, int64_t cols,
                        const uint16_t *x, float scale, const uint8_t *y,
                        const uint8_t *across)
{
    int64_t wrong = 0, astray = 0;
    for (int64_t i = 0; i < rows * cols; i++) {
        int want = code_of(f, (double)(widened(x[i]) * scale));
        if (y != NULL)
            wrong += want < 0 ? !is_nan(f, y[i]) : y[i] != want;
        if (across == NULL)
            continue;
        int turned = across[i % cols * rows + i / cols];
        astray += want < 0 ? !is_nan(f, turned) : turned != want;
    }
    tap_is_int(wrong, 0, "codes are the nearest ones");
    tap_is_int(astray, 0, "so are those of the transpose");
}

static void check_quantize(const struct kernels *table, const struct format *f,
                           int64_t rows, int64_t cols, const uint16_t *values,
                           float by, bool straight, bool across)
{
    struct kernel_ctx ctx = { .threads = 1 };
    int64_t n = rows * cols;
    uint16_t *x = check_held(values, (size_t)n * sizeof *x);
    uint8_t *y = straight ? codes_poisoned(n) : NULL;
    uint8_t *turned = across ? codes_poisoned(n) : NULL;
    float *scale = CHECK_HELD(float, by), *largest = CHECK_HELD(float, 0);
    float want = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(widened(x[i])))
            want = fmaxf(want, fabsf(widened(x[i])));
    tap_is_int(table->quantize(&ctx, f->type, rows, cols, x, scale, y, turned,
                               largest),
               ERR_OK, "quantize %lld x %lld by %g", (long long)rows,
               (long long)cols, (double)by);
    check_codes(f, rows, cols, x, by, y, turned);
    tap_ok(*largest == want, "the largest is %g", (double)want);
    *largest = want + 1;
    table->quantize(&ctx, f->type, rows, cols, x, scale, y, turned, largest);
    tap_ok(*largest == want + 1, "or what was there before");
}

/* Every number that bf16 has, among them zeros, NaNs, ties and what is too
 * large. */
static void check_all_values(const struct kernels *table,
                             const struct format *f)
{
    static const float scales[] = { 1, 0.25f, 0x1p-20f, 0x1p9f, 0x1p-9f, 1.7f };
    uint16_t *all = check_alloc((1 << 16) * sizeof *all);
    for (int i = 0; i < 1 << 16; i++)
        all[i] = (uint16_t)i;
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        check_quantize(table, f, 256, 256, all, scales[i], true, true);
    check_release();
}

/* bf16 holds every code's value. */
static void check_round_trip(const struct kernels *table,
                             const struct format *f)
{
    struct kernel_ctx ctx = { .threads = 1 };
    struct tensor x = tensor_random(CODES, 1, 1);
    uint8_t *y = codes_poisoned(CODES);
    float *scale = CHECK_HELD(float, 1), *largest = CHECK_HELD(float, 0);
    int wrong = 0;
    for (int i = 0; i < CODES; i++)
        x.wide[i] = (float)value_of(f, i);
    tensor_narrow(&x);
    table->quantize(&ctx, f->type, 16, 16, x.half, scale, y, NULL, largest);
    for (int i = 0; i < CODES; i++)
        wrong += isfinite(value_of(f, i)) ? y[i] != i
                 : is_nan(f, i)           ? !is_nan(f, y[i])
                                          : y[i] != (i & 0x80) + f->largest;
    tap_is_int(wrong, 0, "codes come back");
    check_release();
}

static void check_shapes(const struct kernels *table, const struct format *f)
{
    static const int64_t shapes[][2] = {
        { 16, 16 },  { 16, 208 }, { 208, 16 },
        { 128, 64 }, { 144, 80 }, { 272, 144 }
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int64_t rows = shapes[i][0], cols = shapes[i][1];
        struct tensor x = tensor_random(rows * cols, 7 + i, 300);
        check_quantize(table, f, rows, cols, x.half, 2, true, true);
    }
    struct tensor x = tensor_random(144 * 80, 5, 2);
    check_quantize(table, f, 144, 80, x.half, 1, true, false);
    check_quantize(table, f, 144, 80, x.half, 1, false, true);
    memset(x.half, 0, 144 * 80 * sizeof *x.half);
    check_quantize(table, f, 144, 80, x.half, 1, true, true);
    check_release();
}

/* --- products --- */

struct product {
    int64_t m, n, k;
    const struct format *a, *b;
    enum dtype c_type;
    bool accumulate, bias, fast;
};

/* Codes of finite numbers, of which those of e5m2 stay below 2. */
static uint8_t *codes_random(const struct format *f, int64_t n, uint64_t seed)
{
    uint8_t *codes = check_alloc((size_t)n);
    int most = f->type == FP8_E4M3 ? f->largest + 1 : 0x40;
    for (int64_t i = 0; i < n; i++) {
        int code = (int)(fabs(check_uniform(seed, i)) * most);
        codes[i] =
            (uint8_t)(code | (check_uniform(seed + 1, i) < 0 ? 0x80 : 0));
    }
    return codes;
}

/* C as fp64, and in *room how far off an element may be: products are exact,
 * their sum is not, by `summed` of the terms. */
static double element(const struct product *p, const uint8_t *a,
                      const uint8_t *b, double unscale, double before,
                      double bias, double summed, double *room)
{
    double sum = 0, sizes = 0;
    for (int64_t l = 0; l < p->k; l++) {
        double term = value_of(p->a, a[l]) * value_of(p->b, b[l]);
        sum += term;
        sizes += fabs(term);
    }
    sum = sum * unscale + before + bias;
    *room = summed * (sizes * fabs(unscale) + fabs(before) + fabs(bias));
    if (p->c_type == DTYPE_BF16)
        *room += BF16_ROUNDING * fabs(sum);
    return sum;
}

static void check_product(const struct kernels *table, const struct product *p,
                          float unscale_a, float unscale_b)
{
    struct kernel_ctx ctx = { .threads = 1 };
    bool bf16 = p->c_type == DTYPE_BF16;
    double summed =
        strcmp(table->kernel_set, "emulated") == 0 ? SUMMED : SUMMED_SHORT;
    uint8_t *a = codes_random(p->a, p->m * p->k, 1);
    uint8_t *b = codes_random(p->b, p->n * p->k, 3);
    struct tensor bias = tensor_random(p->n, 5, 100);
    struct tensor c = tensor_random(p->m * p->n, 6, 100);
    float *again = check_poisoned(p->m * p->n);
    float *before = check_copy(c.wide, c.n);
    float *by_a = CHECK_HELD(float, unscale_a),
          *by_b = CHECK_HELD(float, unscale_b);
    struct gemm_fp8 g = {
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .a_type = p->a->type,
        .b_type = p->b->type,
        .c_type = p->c_type,
        .a = a,
        .b = b,
        .c = bf16 ? (void *)c.half : c.wide,
        .unscale_a = by_a,
        .unscale_b = by_b,
        .accumulate = p->accumulate,
        .bias = p->bias ? bias.half : NULL,
        .fast = p->fast,
    };
    double worst = 0, room;
    if (p->accumulate)
        memcpy(again, before, (size_t)c.n * sizeof *again);
    else
        memset(g.c, 0xff, (size_t)c.n * dtype_bytes(p->c_type));
    tap_is_int(table->gemm_fp8(&ctx, &g), ERR_OK, "gemm_fp8");
    for (int64_t i = 0; i < c.n; i++) {
        double want =
            element(p, a + i / p->n * p->k, b + i % p->n * p->k,
                    (double)unscale_a * (double)unscale_b,
                    p->accumulate ? (double)before[i] : 0,
                    p->bias ? (double)bias.wide[i % p->n] : 0, summed, &room);
        double got = (double)(bf16 ? widened(c.half[i]) : c.wide[i]);
        double off = fabs(got - want);
        worst = isnan(off) ? INFINITY : fmax(worst, off / (room + 1e-30));
    }
    if (!check_that(table, worst <= 1, "%s x %s, %lld x %lld x %lld, %s%s%s%s",
                    p->a->name, p->b->name, (long long)p->m, (long long)p->n,
                    (long long)p->k, dtype_name(p->c_type),
                    p->accumulate ? " +=" : "", p->bias ? " with bias" : "",
                    p->fast ? ", fast" : ""))
        tap_note("%.3f of the tolerance", worst);
    g.c = again;
    ctx.threads = 3;
    table->gemm_fp8(&ctx, &g);
    tap_ok(memcmp(again, bf16 ? (void *)c.half : (void *)c.wide,
                  (size_t)c.n * dtype_bytes(p->c_type)) == 0,
           "the same bits again, whatever the threads");
    check_release();
}

/* C's rows are single codes of A, times one. */
static void check_values(const struct kernels *table, const struct format *f)
{
    struct kernel_ctx ctx = { .threads = 1 };
    uint8_t *a = memset(check_alloc(CODES * 16), 0, CODES * 16);
    uint8_t *ones = memset(check_alloc(16 * 16), 0, 16 * 16);
    float *c = check_poisoned(CODES * 16), *one = CHECK_HELD(float, 1);
    struct gemm_fp8 g = { .m = CODES,
                          .n = 16,
                          .k = 16,
                          .a_type = f->type,
                          .b_type = FP8_E4M3,
                          .c_type = DTYPE_F32,
                          .a = a,
                          .b = ones,
                          .c = c,
                          .unscale_a = one,
                          .unscale_b = one };
    int wrong = 0;
    for (int i = 0; i < CODES; i++)
        a[i * 16 + i % 16] = (uint8_t)i;
    memset(ones, code_of(&formats[0], 1), 16 * 16);
    for (int swapped = 0; swapped < 2; swapped++) {
        tap_is_int(table->gemm_fp8(&ctx, &g), ERR_OK, "gemm_fp8");
        for (int i = 0; i < CODES * 16; i++) {
            double want = value_of(f, swapped ? i % CODES : i / 16);
            wrong += isnan(want) ? !isnan(c[i]) : (double)c[i] != want;
        }
        g.m = 16;
        g.n = CODES;
        g.a = ones;
        g.b = a;
        g.a_type = FP8_E4M3;
        g.b_type = f->type;
    }
    tap_is_int(wrong, 0, "every code has its value, on either side");
    check_release();
}

static void check_products(const struct kernels *table)
{
    const struct format *e4m3 = &formats[0], *e5m2 = &formats[1];
    const struct product products[] = {
        { 1, 16, 16, e4m3, e4m3, DTYPE_BF16, false, false, true },
        { 67, 48, 80, e4m3, e4m3, DTYPE_BF16, false, true, true },
        { 67, 48, 80, e4m3, e4m3, DTYPE_F32, false, false, false },
        { 130, 144, 48, e5m2, e4m3, DTYPE_BF16, false, false, false },
        { 130, 144, 48, e5m2, e4m3, DTYPE_F32, true, false, false },
        { 48, 272, 128, e4m3, e5m2, DTYPE_F32, true, false, false },
        { 48, 272, 128, e4m3, e5m2, DTYPE_BF16, false, true, false },
        { 128, 128, 32, e4m3, e4m3, DTYPE_F32, true, false, true },
    };
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        check_product(table, &products[i], 0.37f, 0x1p-5f);
    check_product(table, &products[1], 1, 1);
}

/* --- tables --- */

/* Also of tables that can only say so when they are asked. */
static bool lacks(const struct kernels *table)
{
    if (table->quantize == NULL || table->gemm_fp8 == NULL) {
        check_that(table, table->quantize == NULL && table->gemm_fp8 == NULL,
                   "has neither op");
        return true;
    }
    struct kernel_ctx ctx = { .threads = 1 };
    uint16_t *x = memset(check_alloc(512), 0, 512);
    uint8_t *y = codes_poisoned(CODES);
    float *scale = CHECK_HELD(float, 1), *largest = CHECK_HELD(float, 0);
    return check_lacks(table, table->quantize(&ctx, FP8_E4M3, 16, 16, x, scale,
                                              y, NULL, largest));
}

int main(void)
{
    int tables = 0;
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++) {
        if (lacks(*t))
            continue;
        for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
            name(*t, &formats[i], "all codes and values");
            check_round_trip(*t, &formats[i]);
            check_values(*t, &formats[i]);
            check_all_values(*t, &formats[i]);
            name(*t, &formats[i], "shapes");
            check_shapes(*t, &formats[i]);
        }
        check_products(*t);
        tables++;
    }
    if (tables == 0)
        tap_skip("no table has 8-bit floats: the CUDA kernels are emulated "
                 "only where a C++ compiler is");
    return tap_done();
}
