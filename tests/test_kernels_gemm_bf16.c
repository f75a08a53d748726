/* gemm in bf16 on every table that has it. Inputs are bf16 numbers; what
 * is right is the first CPU table's fp32 result on the same numbers. C is bf16 and off by one rounding at most, that of TN is fp32. */
#include "tests/bf16_tensor.h"

static const struct kernels *cpu;
static const char *const forms[] = { "NT", "NN", "TN" };

/* Against c->wide: c->half, or `floats` where C is fp32. */
static void check_result(const struct kernels *table, const char *what,
                         const struct tensor *c, const float *floats, int64_t k)
{
    double largest = 1e-30, worst = 0;
    double exact = 2e-6 * sqrt((double)(k > 0 ? k : 1));
    for (int64_t i = 0; i < c->n; i++)
        largest = fmax(largest, fabs((double)c->wide[i]));
    for (int64_t i = 0; i < c->n; i++) {
        double want = (double)c->wide[i];
        double got = (double)(floats ? floats[i] : widened(c->half[i]));
        double room =
            exact * largest + (floats ? 0 : BF16_ROUNDING * fabs(want));
        double off = fabs(got - want);
        worst = isnan(off) ? INFINITY : fmax(worst, off / room);
    }
    if (!check_that(table, worst <= 1, "bf16 %s, %s", what,
                    floats ? "C in fp32" : "one rounding"))
        tap_note("%.3f of the tolerance", worst);
}

static void check_gemm(const struct kernels *table, enum gemm_form form,
                       int64_t m, int64_t n, int64_t k, bool accumulate,
                       bool with_bias)
{
    struct kernel_ctx ctx = check_ctx_of(table, 1), host = check_ctx_of(cpu, 1);
    struct tensor a = tensor_random(m * k, 1, 1),
                  b = tensor_random(n * k, 2, 1);
    struct tensor bias = tensor_random(n, 3, 1), c = tensor_random(m * n, 4, 1);
    float *floats = form == GEMM_TN ? check_copy(c.wide, m * n) : NULL;
    struct gemm g = { form,   m,          n,
                      k,      a.wide,     b.wide,
                      c.wide, accumulate, with_bias ? bias.wide : NULL,
                      false };
    char what[96];
    cpu->gemm(&host, DTYPE_F32, &g);
    g.a = a.half;
    g.b = b.half;
    g.c = floats != NULL ? (void *)floats : (void *)c.half;
    g.bias = with_bias ? bias.half : NULL;
    tap_is_int(table->gemm(&ctx, DTYPE_BF16, &g), ERR_OK, "gemm in bf16");
    snprintf(what, sizeof(what), "gemm %s %lldx%lldx%lld%s%s", forms[form],
             (long long)m, (long long)n, (long long)k, accumulate ? " +=" : "",
             with_bias ? " with bias" : "");
    check_result(table, what, &c, floats, k);
    check_release();
}

static void check_table(const struct kernels *table)
{
    for (int f = GEMM_NT; f <= GEMM_TN; f++) {
        enum gemm_form form = (enum gemm_form)f;
        check_gemm(table, form, 1, 1, 1, false, false);
        check_gemm(table, form, 67, 131, 77, false, false);
        check_gemm(table, form, 67, 131, 77, true, false);
        check_gemm(table, form, 67, 131, 77, false, true);
        check_gemm(table, form, 128, 192, 96, false, false);
        check_gemm(table, form, 136, 264, 72, true, false);
    }
}

int main(void)
{
    const struct kernels *table = bf16_table();
    cpu = kernels_all()[0];
    if (table != NULL)
        check_table(table);
    return tap_done();
}
