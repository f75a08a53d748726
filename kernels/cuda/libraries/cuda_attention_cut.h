/* How cuDNN's backward of attention goes through a batch: what it takes grows
 * with seq squared, so it does as many sequences at a time as the scratch is
 * for or, where not one fits, one sequence in slices of its heads. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* More scratch than this is not asked for. */
#define CUDA_ATTENTION_CUT_SCRATCH_MAX ((size_t)1 << 30)

struct cuda_attention_cut {
    int64_t sequences; /* at a time; divides the batch */
    int64_t slices;    /* of a sequence's heads, more than 1 only where
                          sequences is 1; divides kv_heads; 0: none fits */
};

/* Every part's numbers begin at a multiple of 16 bytes, as plans are told. */
struct cuda_attention_cut cuda_attention_cut_of(const struct attention *shape);

/* Bytes for any batch within the limits, 0 where nothing fits. */
size_t cuda_attention_cut_scratch(const struct kernel_limits *limits);
