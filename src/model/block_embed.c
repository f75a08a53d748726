/* What embeddings are multiplied by: sqrt(d_model) in Gemma. */
#include "src/model/block_embed.h"

#include <math.h>

/* In bf16 transformers has the factor in bf16 as well. */
static float factor_of(const struct model_config *config, enum dtype dtype)
{
    int exponent;
    float factor = (float)config->embedding_scale;
    float part = frexpf(factor, &exponent);
    return dtype == DTYPE_BF16
               ? ldexpf(nearbyintf(ldexpf(part, 8)), exponent - 8)
               : factor;
}

enum err block_embed_scale(const struct kernels *kernels,
                           const struct kernel_ctx *ctx,
                           const struct model_config *config, enum dtype dtype,
                           int64_t elements, void *x)
{
    const struct random_place none = { 0 };
    if (config->embedding_scale == 1.0)
        return ERR_OK;
    return kernels->dropout(ctx, dtype, 1, elements, 0.0f, &none,
                            factor_of(config, dtype), x, x);
}
