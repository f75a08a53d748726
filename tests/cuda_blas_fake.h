/* A cuBLASLt for tests: it keeps what it is told and multiplies on the
 * processor, as the real one's documentation says (columns first). Algorithm i
 * of those it offers has 100 + i in its first word. */
#pragma once

#include <stdbool.h>

#include "kernels/cuda/libraries/cuda_blas_library.h"

#define FAKE_VERSION 130100
#define FAKE_FASTEST 3 /* of the algorithms offered, in the fake's time */
#define FAKE_REFUSED 2 /* multiplying with this one is not supported */

struct fake_preference {
    uint64_t workspace;
    uint32_t reductions;
    uint32_t alignment[4]; /* A, B, C, D */
};

struct fake {
    int offered;    /* algorithms that there are */
    bool refuses;   /* any multiplication */
    bool no_device; /* create fails */
    int alive;      /* objects that were made and not destroyed */
    int heuristics, products;
    uint64_t used;   /* the first word of the last algorithm */
    uintptr_t asked; /* the bias's address at the last heuristic */
    bool scaled;     /* whether operands had scales then */
    bool fast;       /* the last product */
    struct fake_preference preference; /* of the last heuristic */
};

/* What the fake counts and does; one per process. */
extern struct fake fake;

extern const struct cuda_blas_library fake_library;
