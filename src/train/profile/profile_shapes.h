/* On which shapes a rank's ops have spent their time. */
#pragma once

#include "src/base/err.h"
#include "src/base/timeline.h"

#define PROFILE_SHAPES 8

struct profile_shape {
    const char *name;              /* of the op, "gemm NT" */
    struct timeline_detail detail; /* its shape; flop and bytes of all calls */
    int64_t count, ns;
};

/* Those that took longest, the longest first; evaluation's and the like not
 * counted, nor spans that found no room. *count <= PROFILE_SHAPES. */
enum err profile_shapes(const struct timeline *timeline,
                        struct profile_shape out[PROFILE_SHAPES], int *count);
