/* An adapter's pair of matrices, added to the weight beside which it was
 * trained. */
#pragma once

#include <stdint.h>

struct weights_pair {
    float *a, *b; /* [rank, in], [out, rank] */
    int64_t rank;
    double scale; /* of the product: alpha / rank */
    int64_t in, out;
    int64_t row; /* of the tensor that its first row belongs to */
};

/* All of them; *count becomes 0. */
void weights_pairs_drop(struct weights_pair *pairs, int *count);

/* out += scale B A, of elements [begin, end) of the tensor, which out has; sums
 * are fp64 and rounded once. */
void weights_pairs_add(const struct weights_pair *pair, int64_t begin,
                       int64_t end, float *out);
