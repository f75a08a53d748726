/* tessera-bench data: what it costs to find a sample in its order. */
#pragma once

#include <jansson.h>

#include "src/base/err.h"

/* Adds to the result, each from nothing, the longest of several:
 *
 *   seek_1e10_ms            a sample of 10^10 in our order
 *   seek_mixture_1e6_ms     one at step 10^6 of ten data sets
 *   streaming_epoch_1e6_ms  the first of an epoch of 10^6 samples by py1e */
enum err bench_data_order(json_t *result);
