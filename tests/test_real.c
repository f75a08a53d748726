/* Elementary functions against long double's of libm, over the ranges that
 * programs use and at what is special; medians. */
#include "src/base/real.h"

#include <float.h>

#include "src/base/digest.h"
#include "src/base/rng.h"
#include "tests/tap.h"

#define DRAWS 400000

static double uniform(uint64_t stream, uint64_t i, double low, double high)
{
    return low + (high - low) * rng_uniform(1, stream, i);
}

/* In units of the last bit of the result as a double. */
static double ulps(double got, long double want)
{
    int exponent;
    if (!isfinite(got) || !isfinite((double)want))
        return got == (double)want ? 0.0 : INFINITY;
    frexpl(want, &exponent);
    if (exponent < DBL_MIN_EXP)
        exponent = DBL_MIN_EXP;
    return (double)ldexpl(fabsl((long double)got - want),
                          DBL_MANT_DIG - exponent);
}

struct worst {
    double ulps, x, y;
};

static void look(struct worst *worst, double got, long double want, double x,
                 double y)
{
    double off = ulps(got, want);
    if (!(off <= worst->ulps))
        *worst = (struct worst){ off, x, y };
}

static void report(struct worst worst, double bound, const char *what)
{
    if (!tap_ok(worst.ulps <= bound, "%s: within %.2f ulp", what, bound))
        tap_note("%.3f ulp at %a, %a", worst.ulps, worst.x, worst.y);
}

static void check_exp(void)
{
    struct worst near = { 0 }, far = { 0 };
    for (uint64_t i = 0; i < DRAWS; i++) {
        double x = uniform(1, i, -2, 2), y = uniform(2, i, -746, 710);
        look(&near, real_exp(x), expl((long double)x), x, 0);
        look(&far, real_exp(y), expl((long double)y), y, 0);
    }
    report(near, 0.85, "exp of -2 to 2");
    report(far, 0.85, "exp of all that neither overflows nor vanishes");
}

static void check_log(void)
{
    struct worst near = { 0 }, far = { 0 };
    for (uint64_t i = 0; i < DRAWS; i++) {
        double x = uniform(3, i, 0.5, 2);
        double y = ldexp(x, (int)uniform(4, i, -1074, 1023));
        double unit = (double)(i + 1) * 0x1p-53; /* as rng_normal's */
        look(&near, real_log(x), logl((long double)x), x, 0);
        look(&near, real_log(unit), logl((long double)unit), unit, 0);
        look(&near, real_log(1 - unit), logl((long double)(1 - unit)), unit, 0);
        look(&far, real_log(y), logl((long double)y), y, 0);
    }
    report(near, 0.55, "log near 1, and of the random numbers' radii");
    report(far, 0.55, "log of all that there is");
}

static void check_pow(void)
{
    struct worst betas = { 0 }, rope = { 0 }, whole = { 0 }, far = { 0 };
    for (uint64_t i = 0; i < DRAWS; i++) {
        double beta = i % 2 != 0 ? 0.9 : uniform(5, i, 0.5, 1);
        double theta = exp(uniform(6, i, 0, log(1e12)));
        double t = floor(uniform(7, i, 1, 2000));
        double part = -uniform(8, i, 0, 1);
        double x = exp(uniform(9, i, -1, 1) * (i % 2 != 0 ? 700 : 1));
        double y = uniform(10, i, -700, 700) / fabs(log(x));
        /* 1 - beta^t is what is used: the last bit of 1, not of beta^t */
        look(&betas, 1 + real_pow(beta, t), 1 + powl((long double)beta, t),
             beta, t);
        look(&rope, real_pow(theta, part), powl((long double)theta, part),
             theta, part);
        look(&whole, real_pow(2, 8 * part), exp2l(8 * (long double)part), 2,
             8 * part);
        double off = ulps(real_pow(x, y), powl((long double)x, y));
        off -= fabs(y * log(x)) / 16;
        if (!(off <= far.ulps))
            far = (struct worst){ off, x, y };
    }
    report(betas, 0.9, "powers of the betas");
    report(rope, 0.9, "powers of rope's theta");
    report(whole, 0.9, "powers of 2, as of ALiBi's slopes");
    report(far, 1.0, "powers of 1e-300 to 1e300, less what they may lose");
    bool exact = true;
    for (int i = -1074; i <= 1023; i++)
        exact = exact && real_pow(2, i) == ldexp(1, i);
    tap_ok(exact, "whole powers of 2 are exact");
}

static void check_turns(void)
{
    struct worst near = { 0 }, far = { 0 };
    for (uint64_t i = 0; i < DRAWS; i++) {
        double x = uniform(11, i, -7, 7), y = uniform(12, i, -1, 1) * 0x1p27;
        /* where the sine or the cosine almost vanishes */
        double z = floor(uniform(13, i, 0, 0x1p26)) * 1.57079632679489661923;
        look(&near, real_sin(x), sinl((long double)x), x, 0);
        look(&near, real_cos(x), cosl((long double)x), x, 0);
        look(&far, real_sin(y), sinl((long double)y), y, 0);
        look(&far, real_cos(y), cosl((long double)y), y, 0);
        look(&far, real_sin(z), sinl((long double)z), z, 0);
        look(&far, real_cos(z), cosl((long double)z), z, 0);
    }
    report(near, 0.8, "sine and cosine of a turn");
    report(far, 0.8, "sine and cosine up to 2^27");
}

static void check_special(void)
{
    tap_ok(real_exp(0) == 1 && real_exp(-INFINITY) == 0 &&
               real_exp(INFINITY) == INFINITY && isnan(real_exp(NAN)) &&
               real_exp(1e300) == INFINITY && real_exp(-1e300) == 0,
           "exp of 0, Inf, NaN and what is too large");
    tap_ok(real_log(1) == 0 && real_log(0) == -INFINITY &&
               real_log(INFINITY) == INFINITY && isnan(real_log(-1)) &&
               isnan(real_log(NAN)),
           "log of 1, 0, Inf, NaN and a negative number");
    tap_ok(real_pow(3, 0) == 1 && real_pow(1, 1e300) == 1 &&
               real_pow(0, 2) == 0 && real_pow(0, -2) == INFINITY &&
               real_pow(INFINITY, 2) == INFINITY && real_pow(INFINITY, -1) == 0,
           "powers of 0, 1 and Inf");
    tap_ok(isnan(real_pow(NAN, 2)) && isnan(real_pow(-1, 2)) &&
               isnan(real_pow(2, NAN)) && real_pow(10, 400) == INFINITY &&
               real_pow(10, -400) == 0 && real_pow(10, 1e300) == INFINITY,
           "powers that are NaN, overflow or vanish");
    tap_ok(real_pow(0.5, INFINITY) == 0 && real_pow(1, INFINITY) == 1 &&
               real_pow(2, INFINITY) == INFINITY &&
               real_pow(2, -INFINITY) == 0 &&
               real_pow(0.5, -INFINITY) == INFINITY && real_pow(NAN, 0) == 1 &&
               real_pow(1, NAN) == 1,
           "powers of Inf and those that are 1");
    tap_ok(real_sin(0) == 0 && real_cos(0) == 1 && real_sin(-0.5) < 0 &&
               real_sin(2) > 0 && real_sin(4) < 0 && real_cos(2) < 0 &&
               real_cos(4) < 0 && real_cos(6) > 0 && real_cos(-2) < 0,
           "the quadrants of sine and cosine");
}

/* The bits themselves, of whatever compiler and processor. */
static void check_bits(void)
{
    uint32_t crc = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        double x = uniform(14, i, 0, 30), y = uniform(15, i, -30, 30);
        const double all[] = { real_exp(y), real_log(x), real_pow(x, y),
                               real_sin(y), real_cos(y), rng_normal(2, 3, i) };
        crc = crc32c(crc, all, sizeof all);
    }
    tap_is_int(crc, 3064636149, "the bits of 120000 results");
}

static void check_medians(void)
{
    double one[] = { 3 };
    double odd[] = { 9, -1, 4, 4, 100 };
    double even[] = { 8, 2, -INFINITY, 5 };
    tap_ok(real_median(one, 1) == 3 && real_median_upper(one, 1) == 3,
           "one value");
    tap_ok(real_median(odd, 5) == 4 && real_median_upper(odd, 5) == 4,
           "odd count");
    tap_ok(real_median(even, 4) == 3.5, "even count: the mean of two");
    tap_ok(real_median_upper(even, 4) == 5, "or the upper one");
    tap_ok(even[0] == -INFINITY && even[3] == 8, "which sort the values");
    real_sort(odd, 0);
    tap_ok(odd[0] == -1, "nothing to sort");
}

int main(void)
{
    check_exp();
    check_log();
    check_pow();
    check_turns();
    check_special();
    check_bits();
    check_medians();
    return tap_done();
}
