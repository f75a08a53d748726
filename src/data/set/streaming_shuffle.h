/* The shuffles of the Streaming library: which sample is at each place of an
 * epoch, the same as its get_shuffle() gives. What each of them does is told in
 * streaming_shuffle.c. */
#pragma once

#include <stdint.h>

#include "src/base/err.h"

enum streaming_algorithm {
    STREAMING_PY1E,
    STREAMING_PY1S,
    STREAMING_PY1BR,
    STREAMING_PY2S,
    STREAMING_NAIVE,
    STREAMING_UNSHUFFLED
};

struct streaming_shuffle {
    enum streaming_algorithm algorithm; /* 0, 1, 2, ... if unshuffled */
    int64_t nodes;                      /* canonical, > 0 */
    int64_t block; /* of py1br and py1e, at least 2 and 1 */
    uint64_t seed, epoch;
};

/* ids[] has the sum of units[count], each > 0, and becomes a permutation of it.
 * py1e needs a sample for each node. ERR_MEMORY. */
enum err streaming_shuffle(const struct streaming_shuffle *shuffle,
                           const int64_t *units, int64_t count, int64_t *ids);
