/* With what a block's gradients begin: nothing is zeroed that a product writes
 * first. */
#pragma once

#include "kernels/kernels.h"
#include "src/base/err.h"
#include "src/model/params.h"

/* The block's gradient is zero: with `begun` all but its matrices, which the
 * leaf's products begin (params.h). */
static inline enum err gradient_zero(const struct kernels *kernels,
                                     const struct kernel_ctx *ctx,
                                     const struct params *params, int block,
                                     bool begun, float *gradient)
{
    const struct param_block *b = &params->blocks[block];
    int64_t at = 0;
    for (int i = 0; i < params->count && begun; i++) {
        const struct param *param = &params->list[i];
        int64_t begin = param->offset - b->offset;
        if (param->block != block || !param_multiplies(param))
            continue;
        if (begin > at)
            TRY(kernels->zero(ctx, DTYPE_F32, begin - at, gradient + at));
        at = begin + param->numel;
    }
    return b->elements > at
               ? kernels->zero(ctx, DTYPE_F32, b->elements - at, gradient + at)
               : ERR_OK;
}
