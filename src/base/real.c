/* exp, log, powers, sine and cosine of doubles with the same bits on every
 * machine, in place of libm's where they decide results.
 *
 * IEEE 754 fixes the bits of + - * / and sqrt alone; what libm gives for exp(x)
 * differs in its last bit between versions and processors (a fused multiply-add
 * is enough). These use + - * / alone: the argument is reduced to a small
 * interval by subtracting a multiple of ln 2 or pi/2 that is kept in several
 * parts, so that nothing is lost, a short series follows, and where one double
 * is not enough a value is a sum of two (Dekker 1971). */
#include "src/base/real.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

_Static_assert(FLT_EVAL_METHOD == 0, "a double must be computed as a double");
#if defined(__FAST_MATH__)
#error "-ffast-math changes what is computed: compile without it"
#endif

/* ln 2 and pi / 2 in parts of so few bits that whole numbers times all but the
 * last one are exact. */
#define LN2_HIGH 0x1.62e42feep-1
#define LN2_LOW 0x1.a39ef35793c76p-33
#define HALF_PI_1 0x1.921fb5p+0
#define HALF_PI_2 0x1.110b46p-26
#define HALF_PI_3 0x1.1a6263p-54
#define HALF_PI_4 0x1.8a2e03707344ap-81

/* Adding this rounds to a whole number. */
#define ROUNDER 0x1.8p52

/* Exponents beyond which exp overflows, or vanishes. */
#define EXP_MAX 710.0
#define EXP_MIN (-746.0)

/* a + b rounded, and what the rounding took away (Knuth 1969). */
static double sum_exact(double a, double b, double *error)
{
    double sum = a + b;
    double taken = sum - a;
    *error = (a - (sum - taken)) + (b - taken);
    return sum;
}

/* A product of two doubles has 106 bits. Halves of 26 have products that are
 * exact, so what rounding took from the whole can be summed up from them.
 *
 * a in two halves of at most 26 bits (Dekker 1971). */
static double upper_half(double a)
{
    double shifted = a * 0x1.0000002p27;
    return shifted - (shifted - a);
}

/* The same of a * b. */
static double product_exact(double a, double b, double *error)
{
    double product = a * b;
    double a1 = upper_half(a), a2 = a - a1;
    double b1 = upper_half(b), b2 = b - b1;
    *error = ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2;
    return product;
}

/* exp(high + low), low being less than high's last bit. With k ln 2 taken away
 * what is left is below 0.35, where the series' first term that is left out is
 * 2^-57. */
static double exp_of(double high, double low)
{
    if (!(high <= EXP_MAX))
        return high + INFINITY; /* a NaN stays one */
    if (high < EXP_MIN)
        return 0.0;
    static const double terms[] = { 1.0 / 479001600.0, 1.0 / 39916800.0,
                                    1.0 / 3628800.0,   1.0 / 362880.0,
                                    1.0 / 40320.0,     1.0 / 5040.0,
                                    1.0 / 720.0,       1.0 / 120.0,
                                    1.0 / 24.0,        1.0 / 6.0 };
    double k = (high * 0x1.71547652b82fep+0 + ROUNDER) - ROUNDER;
    double error;
    double r = sum_exact(high - k * LN2_HIGH, low - k * LN2_LOW, &error);
    double p = 1.0 / 6227020800.0;
    for (int i = 0; i < 10; i++)
        p = p * r + terms[i];
    p = p * r + 0.5;
    return ldexp(1.0 + (r + (p * (r * r) + (error + error * r))), (int)k);
}

/* log(x) of a finite x above 0: returns it rounded, *low is the rest up to
 * 2^-59 of the whole. x = 2^k (1 + f) with 1 + f between sqrt(1/2) and sqrt(2);
 * log(1 + f) = 2 artanh(s), s = f / (2 + f): s is below 0.172, and the series'
 * first term that is left out is 2^-60 of the first one. */
static double log_of(double x, double *low)
{
    static const double terms[] = { 2.0 / 21.0, 2.0 / 19.0, 2.0 / 17.0,
                                    2.0 / 15.0, 2.0 / 13.0, 2.0 / 11.0,
                                    2.0 / 9.0,  2.0 / 7.0,  2.0 / 5.0,
                                    2.0 / 3.0 };
    int exponent;
    double m = frexp(x, &exponent);
    if (m < 0x1.6a09e667f3bcdp-1) {
        m *= 2.0;
        exponent--;
    }
    double k = exponent, f = m - 1.0;
    double divisor_low, error;
    double divisor = sum_exact(f, 2.0, &divisor_low);
    double s = f / divisor;
    double back = product_exact(s, divisor, &error);
    double s_low = (((f - back) - error) - s * divisor_low) / divisor;
    double z = s * s;
    double p = 2.0 / 23.0;
    for (int i = 0; i < 10; i++)
        p = p * z + terms[i];
    double high = sum_exact(k * LN2_HIGH, 2.0 * s, &error);
    double rest = error + (2.0 * s_low + (p * (z * s) + k * LN2_LOW));
    return sum_exact(high, rest, low);
}

double real_exp(double x)
{
    return exp_of(x, 0.0);
}

double real_log(double x)
{
    double low;
    if (x == 0.0)
        return -INFINITY;
    if (!(x > 0.0))
        return NAN;
    return x < INFINITY ? log_of(x, &low) : x;
}

double real_pow(double x, double y)
{
    double low, error;
    if (y == 0.0 || x == 1.0)
        return 1.0;
    if (isnan(x) || isnan(y) || x < 0.0)
        return NAN;
    if (x == 0.0 || x == INFINITY)
        return (x == 0.0) == (y > 0.0) ? 0.0 : INFINITY;
    double high = log_of(x, &low);
    if (!(high * y < EXP_MAX && high * y > EXP_MIN))
        return high * y > 0.0 ? INFINITY : 0.0;
    double product = product_exact(high, y, &error);
    return exp_of(product, error + low * y);
}

/* The reduction of Cody and Waite (1980) in four parts: k is below 2^27, the
 * first three have so few bits that k times each is exact, and what a sum loses
 * is carried along.
 *
 * x less the nearest multiple of pi / 2: returned and *low, each rounded;
 * *quarter is the multiple. */
static double angle_of(double x, double *low, int64_t *quarter)
{
    assert(fabs(x) <= REAL_ANGLE_MAX);
    double k = (x * 0x1.45f306dc9c883p-1 + ROUNDER) - ROUNDER;
    double first, second;
    double r = sum_exact(x - k * HALF_PI_1, -k * HALF_PI_2, &first);
    r = sum_exact(r, -k * HALF_PI_3, &second);
    *quarter = (int64_t)k;
    return sum_exact(r, first + (second - k * HALF_PI_4), low);
}

/* The series of |r| < 0.79; the first terms that are left out are below 2^-62.
 */
static double sin_of(double r, double low)
{
    double z = r * r;
    double p = 1.0 / 355687428096000.0;
    p = p * z - 1.0 / 1307674368000.0;
    p = p * z + 1.0 / 6227020800.0;
    p = p * z - 1.0 / 39916800.0;
    p = p * z + 1.0 / 362880.0;
    p = p * z - 1.0 / 5040.0;
    p = p * z + 1.0 / 120.0;
    p = p * z - 1.0 / 6.0;
    return r + (p * (z * r) + low * (1.0 - 0.5 * z));
}

static double cos_of(double r, double low)
{
    double z = r * r;
    double p = -1.0 / 6402373705728000.0;
    p = p * z + 1.0 / 20922789888000.0;
    p = p * z - 1.0 / 87178291200.0;
    p = p * z + 1.0 / 479001600.0;
    p = p * z - 1.0 / 3628800.0;
    p = p * z + 1.0 / 40320.0;
    p = p * z - 1.0 / 720.0;
    p = p * z + 1.0 / 24.0;
    double most = 1.0 - 0.5 * z;
    double error = (1.0 - most) - 0.5 * z;
    return most + (error + (p * (z * z) - r * low));
}

double real_sin(double x)
{
    double low;
    int64_t quarter;
    double r = angle_of(x, &low, &quarter);
    double y = (quarter & 1) != 0 ? cos_of(r, low) : sin_of(r, low);
    return (quarter & 2) != 0 ? -y : y;
}

double real_cos(double x)
{
    double low;
    int64_t quarter;
    double r = angle_of(x, &low, &quarter);
    double y = (quarter & 1) != 0 ? sin_of(r, low) : cos_of(r, low);
    return ((quarter + 1) & 2) != 0 ? -y : y;
}

/* --- medians --- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void real_sort(double *values, int count)
{
    assert(count >= 0);
    qsort(values, (size_t)count, sizeof *values, compare);
}

double real_median_upper(double *values, int count)
{
    assert(count > 0);
    real_sort(values, count);
    return values[count / 2];
}

double real_median(double *values, int count)
{
    double upper = real_median_upper(values, count);
    return (values[(count - 1) / 2] + upper) / 2;
}

double real_median_lower(double *values, int count)
{
    int first = 0, last = count - 1, wanted = (count - 1) / 2;
    assert(count > 0);
    while (first < last) {
        double pivot = values[first + (last - first) / 2];
        int i = first, j = last;
        while (i <= j) {
            while (values[i] < pivot)
                i++;
            while (values[j] > pivot)
                j--;
            if (i <= j) {
                double value = values[i];
                values[i++] = values[j];
                values[j--] = value;
            }
        }
        if (wanted <= j)
            last = j;
        else if (wanted >= i)
            first = i;
        else
            break;
    }
    return values[wanted];
}
