/* The unigram entropy of counted tokens. */
#include "src/data/prepare/entropy.h"

#include <math.h>

double entropy_of_counts(const int64_t *counts, int64_t size)
{
    double total = 0, sum = 0;
    for (int64_t i = 0; i < size; i++)
        total += (double)counts[i];
    for (int64_t i = 0; i < size; i++) {
        double p = counts[i] > 0 ? (double)counts[i] / total : 1;
        sum -= p * log(p);
    }
    return fabs(sum);
}
