/* Two implementations of attention at one shape, which may be a long one:
 * element for element against each other, and at places by chance against fp64.
 * Scores are of some size, so that a few keys have most of the weight, and
 * errors are relative to the largest element nearby: a wrong sign, slope or
 * stride shows wherever it is. */
#pragma once

#include "kernels/kernels.h"

/* As the ops of a table; `self` is the implementation's own. */
struct attention_side {
    void *self;
    enum err (*forward)(void *self, const struct kernel_ctx *ctx,
                        enum dtype dtype, const struct attention *shape,
                        const void *qkv, void *out, float *lse);
    enum err (*backward)(void *self, const struct kernel_ctx *ctx,
                         enum dtype dtype, const struct attention *shape,
                         const void *qkv, const void *out, const float *lse,
                         const void *dout, void *dqkv);
};

struct attention_pair {
    const struct kernel_memory *memory;
    struct kernel_ctx ctx;
    enum dtype dtype; /* DTYPE_BF16 or DTYPE_F32 */
    struct attention_side sides[2];
};

enum attention_part {
    ATTENTION_OUT,
    ATTENTION_DQ,
    ATTENTION_DK,
    ATTENTION_DV,
    ATTENTION_PARTS
};

struct attention_errors {
    double between[ATTENTION_PARTS]; /* the sides */
    double lse;                      /* ... absolute */
    double from[2][ATTENTION_PARTS]; /* each side and fp64 */
};

/* ALiBi's slopes, if alibi, are those of a model with so many heads. */
enum err attention_pair_run(const struct attention_pair *pair,
                            const struct attention *shape, bool alibi,
                            struct attention_errors *errors);
