/* Medians of a few doubles, without NaNs. */
#include "src/base/median.h"

#include <assert.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void median_sort(double *values, int count)
{
    assert(count >= 0);
    qsort(values, (size_t)count, sizeof *values, compare);
}

double median_upper(double *values, int count)
{
    assert(count > 0);
    median_sort(values, count);
    return values[count / 2];
}

double median_of(double *values, int count)
{
    double upper = median_upper(values, count);
    return (values[(count - 1) / 2] + upper) / 2;
}
