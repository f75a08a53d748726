/* The unigram entropy of a data set, from one pass over its tokens. */
#include "src/data/entropy.h"

#include <math.h>
#include <stdlib.h>

#include "src/data/scan.h"

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

enum err entropy_unigram(struct dataset *dataset, double *nats)
{
    enum err rc = ERR_OK;
    struct scan_result result;
    int64_t size = dataset_vocab_size(dataset);
    int64_t *counts = calloc((size_t)size, sizeof *counts);
    if (counts == NULL)
        return err_set(ERR_MEMORY, "no memory to count %lld tokens",
                       (long long)size);
    TRY_OUT(scan_samples(dataset, counts, false, NULL, &result));
    *nats = entropy_of_counts(counts, size);
out:
    free(counts);
    return rc;
}
