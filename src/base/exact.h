/* Sums of squares without rounding: whole numbers in units of 2^-304, so that
 * they are the same in whatever order, and wherever, they were added, and sums
 * of sums are sums of integers. A value is rounded once, when it is read. */
#pragma once

#include <stdint.h>

#define EXACT_WORDS 22

/* Begins as zeros. Word by word the sum of two is their sum, of 2^30 values
 * altogether at most. */
struct exact {
    int64_t word[EXACT_WORDS];
};

/* x >= 0, or NaN. What is below 2^-304 is dropped, which no sum of squares of
 * floats has; 2^300 and more counts as infinite. */
void exact_add(struct exact *sum, double x);

/* The nearest double; infinite or NaN where a value was, NaN before infinite. */
double exact_value(const struct exact *sum);
