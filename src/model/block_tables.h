/* Tables by position that blocks read (block.h), of training and of inference. */
#pragma once

#include "kernels/kernels.h"
#include "src/base/arena.h"
#include "src/model/model_config.h"

/* What positions are told by, where each is not NULL. */
struct block_tables {
    float *rope;   /* [count, 2, head_dim / 2] */
    float *apart;  /* the same of layers that turn by an angle of their own */
    float *slopes; /* [n_heads] ALiBi's */
};
/* Memory for `count` positions, and their numbers to a device. The second
 * waits. */
void block_tables_layout(struct block_tables *tables,
                         const struct model_config *config, int64_t count,
                         struct arena *arena);
enum err block_tables_fill(const struct block_tables *tables,
                           const struct model_config *config,
                           const struct kernels *kernels, void *stream,
                           int64_t count);
/* The rotary table of a layer, of two; NULL: positions do not turn there. */
const float *block_tables_rope(const struct model_config *config, int64_t layer,
                               const float *rope, const float *apart);
