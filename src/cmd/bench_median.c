#include "src/cmd/bench_median.h"

#include <assert.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, int count)
{
    assert(count > 0);
    qsort(values, (size_t)count, sizeof values[0], compare);
    return count % 2 == 1 ? values[count / 2]
                          : (values[count / 2 - 1] + values[count / 2]) / 2.0;
}
