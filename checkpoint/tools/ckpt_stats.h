/* What the values of a tensor look like. */
#pragma once

#include "checkpoint/tools/ckpt_tensor.h"

/* Everything from min on is over the finite values; NaN when there are none.
 * std is that of the whole population, l2 the square root of the sum of
 * squares. */
struct ckpt_stats {
    int64_t elements;
    int64_t nan, inf, zero;
    double min, max, mean, std, l2;
};

/* The value of element number i of an array. */
double ckpt_stats_value(enum dtype dtype, const void *data, int64_t i);

/* Streams the tensor; every byte is checked. */
enum err ckpt_stats_tensor(struct ckpt_tensor_reader *reader,
                           const struct ckpt_manifest *manifest, int tensor,
                           struct ckpt_stats *out);
