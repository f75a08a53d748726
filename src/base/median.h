/* Medians. Every function sorts the values; count > 0 but where it says so. */
#pragma once

/* The mean of the two in the middle where the count is even. */
double median_of(double *values, int count);
/* The upper one of the two. */
double median_upper(double *values, int count);
/* Ascending; count >= 0. */
void median_sort(double *values, int count);
