/* The vectors that all CPU kernels are written with, as the compiler's default
 * processor has them (the generic set's): fused multiply-adds against libm's,
 * exp and log against long double. */
#include "kernels/cpu/cpu_math.h"

#include <float.h>

#include "tests/kernel_check.h"

#define TRIPLES 10000000
#define DRAWS 2000000

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* splitmix64 */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Operands of one of several kinds: any bits; about 1; short mantissas, whose
 * sums end in the middle between two floats; what underflows. */
static void triple(uint64_t *state, float x[3])
{
    static const float odd[] = { 0.0f,         -0.0f,     0x1p-149f,
                                 -0x1p-149f,   0x1p-126f, 0x1.fffffep127f,
                                 -INFINITY,    INFINITY,  NAN,
                                 0x1.fffffep0f };
    uint64_t kind = draw(state);
    for (int i = 0; i < 3; i++) {
        uint32_t bits = (uint32_t)(draw(state) >> 16);
        uint32_t mantissa = bits & 0x807fffffu;
        uint32_t spread = (uint32_t)(kind >> (8 + 6 * i)) & 63;
        if (kind % 4 == 0)
            x[i] = float_of(bits);
        else if (kind % 4 == 1)
            x[i] = float_of(mantissa | (95 + spread) << 23);
        else if (kind % 4 == 2)
            x[i] =
                float_of((mantissa & 0x807c0003u) | (111 + spread / 2) << 23);
        else
            x[i] = float_of(mantissa | (i < 2 ? 40 + spread / 2 : spread / 2)
                                           << 23);
        if ((kind >> (32 + 6 * i)) % 64 == 0)
            x[i] = odd[draw(state) % (sizeof odd / sizeof odd[0])];
    }
    /* the sum almost vanishes, or ends one bit beside a middle */
    if ((kind >> 56) % 4 == 0)
        x[2] = float_of(bits_of(-(x[0] * x[1])) + (uint32_t)(kind >> 58) % 3);
    else if ((kind >> 56) % 16 == 1)
        x[2] = float_of(bits_of(x[0] * x[1]) + (12u << 23));
    /* a product in the middle between two floats, and almost nothing */
    if ((kind >> 56) % 16 == 3) {
        x[0] = (float)(4097 + (kind >> 8) % 1600 / 2 * 2);
        x[1] = (float)(4097 + (kind >> 24) % 1600 / 2 * 2);
        x[2] = (kind >> 60) % 2 != 0 ? 0x1p-60f : -0x1p-60f;
    }
    /* the product ends beside the middle between two denormal numbers */
    if ((kind >> 56) % 16 == 2) {
        float off = (float)((int)(kind >> 60) - 8) * 0x1p-23f;
        x[0] = (1.0f + off) * 0x1p-75f;
        x[1] = (1.0f - off) * 0x1p-75f;
        x[2] = float_of(bits_of(x[2]) & 0x807fffffu);
    }
}

static void check_fma(void)
{
    uint64_t state = 1;
    int64_t wrong = 0;
    for (int64_t i = 0; i < TRIPLES; i += VEC_LANES) {
        vec a = { 0 }, b = { 0 }, c = { 0 };
        for (int lane = 0; lane < VEC_LANES; lane++) {
            float x[3];
            triple(&state, x);
            a[lane] = x[0];
            b[lane] = x[1];
            c[lane] = x[2];
        }
        vec got = vec_fma(a, b, c);
        for (int lane = 0; lane < VEC_LANES; lane++) {
            float want = fmaf(a[lane], b[lane], c[lane]);
            bool same = isnan(want) ? isnan(got[lane])
                                    : bits_of(want) == bits_of(got[lane]);
            if (!same && wrong++ < 5)
                tap_note("fma(%a, %a, %a) = %a, not %a", (double)a[lane],
                         (double)b[lane], (double)c[lane], (double)got[lane],
                         (double)want);
        }
    }
    tap_is_int(wrong, 0, "%d fused multiply-adds are rounded once", TRIPLES);
}

/* In units of the last bit of the result. */
static double ulps(float got, long double want)
{
    int exponent;
    frexpl(want, &exponent);
    if (exponent < FLT_MIN_EXP)
        exponent = FLT_MIN_EXP;
    return (double)ldexpl(fabsl((long double)got - want),
                          FLT_MANT_DIG - exponent);
}

static void check_functions(void)
{
    double exp_worst = 0, log_worst = 0, near_worst = 0;
    uint64_t state = 2;
    for (int64_t i = 0; i < DRAWS; i++) {
        float x = (float)(87.0 * check_uniform(3, i));
        float y = float_of((uint32_t)(draw(&state) % 0x7f7fffffu) + 1);
        float near = 1.0f + (float)(0.4 * check_uniform(4, i));
        exp_worst = fmax(exp_worst,
                         ulps(vec_exp(vec_splat(x))[0], expl((long double)x)));
        log_worst = fmax(log_worst, ulps(cpu_log(y), logl((long double)y)));
        near_worst =
            fmax(near_worst, ulps(cpu_log(near), logl((long double)near)));
    }
    if (!tap_ok(exp_worst <= 2 && log_worst <= 2 && near_worst <= 2,
                "exp and log within 2 ulp"))
        tap_note("%.3f, %.3f, near 1 %.3f", exp_worst, log_worst, near_worst);
}

static void check_special(void)
{
    tap_ok(cpu_log(0.0f) == -INFINITY && cpu_log(-0.0f) == -INFINITY &&
               cpu_log(INFINITY) == INFINITY && isnan(cpu_log(check_nan())) &&
               isnan(cpu_log(-1.0f)) && isnan(cpu_log(-INFINITY)) &&
               bits_of(cpu_log(1.0f)) == 0,
           "log of 0, Inf, NaN, negative numbers and 1");
    vec a = vec_splat(1.0f), b = vec_splat(2.0f), nan = vec_splat(check_nan());
    tap_ok(vec_max(a, b)[0] == 2.0f && vec_max(b, a)[0] == 2.0f &&
               vec_max(nan, b)[0] == 2.0f && isnan(vec_max(a, nan)[0]) &&
               bits_of(vec_max(vec_splat(0.0f), vec_splat(-0.0f))[0]) ==
                   0x80000000u,
           "the maximum is a > b ? a : b");
}

int main(void)
{
    check_fma();
    check_functions();
    check_special();
    return tap_done();
}
