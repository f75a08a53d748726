/* exp, log and erf on vectors, accurate to about 1e-7, without libm: the bits
 * then depend on this file alone. NaN in gives NaN out. */
#pragma once

#include "kernels/cpu/cpu_vec.h"

/* exp(x) within 2 ulp; exactly 0 below -87.3, +Inf above 88.3.
 *
 * x = k ln 2 + r with |r| <= ln 2 / 2; exp(r) = 1 + r + r^2 P(r), where P
 * interpolates at the Chebyshev nodes (relative error 1.0e-8). ln 2 is split so
 * that k * high is exact. Adding 1.5 * 2^23 rounds x / ln 2 and leaves k in the
 * low bits, from where it becomes an exponent. A product, not an addition to
 * the exponent of p, so that no payload turns a NaN into a number. */
static inline vec vec_exp(vec x)
{
    const vec rounder = vec_splat(12582912.0f);
    vec shifted = vec_fma(x, vec_splat(1.44269504f), rounder);
    vec k = shifted - rounder;
    vec r = vec_fma(k, vec_splat(-0.693145751953125f), x);
    r = vec_fma(k, vec_splat(-1.42860682e-6f), r);
    vec p = vec_fma(vec_splat(1.392621347e-3f), r, vec_splat(8.363202972e-3f));
    p = vec_fma(p, r, vec_splat(4.166655444e-2f));
    p = vec_fma(p, r, vec_splat(1.666657685e-1f));
    p = vec_fma(p, r, vec_splat(0.5f));
    p = vec_fma(p, r * r, r) + 1.0f;
    vec y = p * (vec)(((vec_u32)shifted + 127) << 23);
    y = vec_select(x < -87.3f, (vec){ 0 }, y);
    return vec_select(x > 88.3f, vec_splat(__builtin_inff()), y);
}

/* log(x) within 2 ulp, denormal numbers too; -Inf of 0, NaN of what is below.
 *
 * x = 2^k (1 + f) with 1 + f between sqrt(1/2) and sqrt(2). With s = f / (2 +
 * f), log(1 + f) = 2 artanh(s) = f - s (f - R), R = 2/3 s^2 + 2/5 s^4 + 2/7 s^6
 * + 2/9 s^8, of which the first term that is left out is 5e-9 of f. Taking the
 * bits of sqrt(1/2) away leaves k above the mantissa. */
static inline vec vec_log(vec x)
{
    vec_i32 tiny = x < 0x1p-126f;
    vec scaled = vec_select(tiny, x * 0x1p24f, x);
    vec_u32 bits = (vec_u32)scaled;
    vec_i32 k = (vec_i32)(bits - 0x3f3504f3) >> 23;
    vec f = (vec)(bits - ((vec_u32)k << 23)) - 1.0f;
    vec power = __builtin_convertvector(k + (tiny & -24), vec);
    vec s = f / (f + 2.0f);
    vec z = s * s;
    vec r = vec_fma(vec_splat(2.0f / 9), z, vec_splat(2.0f / 7));
    r = vec_fma(r, z, vec_splat(2.0f / 5));
    r = vec_fma(r, z, vec_splat(2.0f / 3)) * z;
    vec low = vec_fma(power, vec_splat(1.42860682e-6f), s * (r - f));
    vec y = vec_fma(power, vec_splat(0.693145751953125f), low + f);
    y = vec_select(x == 0.0f, vec_splat(-__builtin_inff()), y);
    y = vec_select(x < __builtin_inff(), y, x);
    return vec_select(x < 0.0f, vec_splat(__builtin_nanf("")), y);
}

static inline float cpu_log(float x)
{
    return vec_log(vec_splat(x))[0];
}

/* erf(z) within 1e-7 absolute; exactly +-1 for |z| > 3.919, where erf is within
 * 3e-8 of it: z P(z^2) / Q(z^2) through erf at Chebyshev nodes of [-3.919,
 * 3.919] (error 6.7e-8). All coefficients are positive: nothing cancels. */
static inline vec vec_erf(vec z)
{
    vec u = z * z;
    vec p = vec_fma(vec_splat(2.106437055e-6f), u, vec_splat(2.785185482e-4f));
    p = vec_fma(p, u, vec_splat(3.458971298e-3f));
    p = vec_fma(p, u, vec_splat(5.17675907e-2f));
    p = vec_fma(p, u, vec_splat(1.831792191e-1f));
    p = vec_fma(p, u, vec_splat(1.128379167f));
    vec q = vec_fma(vec_splat(3.835558531e-5f), u, vec_splat(1.089966999e-3f));
    q = vec_fma(q, u, vec_splat(1.434133939e-2f));
    q = vec_fma(q, u, vec_splat(1.11101789e-1f));
    q = vec_fma(q, u, vec_splat(4.95671688e-1f));
    q = vec_fma(q, u, vec_splat(1.0f));
    vec y = z * p / q;
    y = vec_select(z > 3.919f, vec_splat(1.0f), y);
    return vec_select(z < -3.919f, vec_splat(-1.0f), y);
}
