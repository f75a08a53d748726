/* What embeddings are multiplied by (block.h), of training and of inference. */
#pragma once

#include "kernels/kernels.h"
#include "src/model/model_config.h"

/* x *= model.embedding_scale, of the stream's first value or of its gradient. */
enum err block_embed_scale(const struct kernels *kernels,
                           const struct kernel_ctx *ctx,
                           const struct model_config *config, enum dtype dtype,
                           int64_t elements, void *x);
