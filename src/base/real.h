/* Elementary functions of doubles whose bits depend on this file alone, for
 * whatever decides the bits of a run: libm's change with its version and with
 * the processor; and medians. Only + - * / and functions that are exact everywhere (frexp,
 * ldexp) are used, no fused multiply-add, which is a slow call where the
 * processor has none. Within 1 ulp, real_pow within 1 + |y log x| / 16: tests
 * hold that against long double.
 *
 * NaN in gives NaN out; overflow Inf, underflow what ldexp makes of it. */
#pragma once

/* Larger angles would need more digits of pi than there are here. */
#define REAL_ANGLE_MAX 0x1p27

double real_exp(double x);
/* -Inf of 0, NaN of what is below. */
double real_log(double x);
/* x^y: 1 of y = 0 and of x = 1, NaN of x below 0. */
double real_pow(double x, double y);
/* For |x| <= REAL_ANGLE_MAX, in radians. */
double real_sin(double x);
double real_cos(double x);

/* Medians of doubles without NaNs, which they sort; count > 0. The mean of the
 * two in the middle where the count is even, or the upper one of them. */
double real_median(double *values, int count);
double real_median_upper(double *values, int count);
/* The lower one, without sorting: moves the values, in O(count) on average. */
double real_median_lower(double *values, int count);
/* Ascending; count >= 0. */
void real_sort(double *values, int count);
