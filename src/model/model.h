/* The MPT language model: forward and backward by explicit gradients over the
 * op table, one leaf at a time.
 *
 * Block: x = x + out_proj(attention(Wqkv(norm_1(x)))); x = x +
 * down_proj(gelu(up_proj(norm_2(x)))). Logits are norm_f(x) wte^T (tied). Saved
 * for backward per block: its input, qkv, attention output and lse, the middle
 * of the residual stream, up_proj's output; norms' and GELU's outputs are
 * computed again. Logits are made MODEL_LOGIT_ROWS rows at a time and never
 * kept. All activations live in one planned arena. */
#ifndef TESSERA_MODEL_MODEL_H
#define TESSERA_MODEL_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "src/base/err.h"
#include "src/model/model_config.h"
#include "src/model/params.h"

#define MODEL_LOGIT_ROWS 128

struct model;

/* One leaf: row-major [samples, seq_len]; labels < 0 bear no loss;
 * sequence_ids may be NULL. */
struct leaf {
    int64_t samples;
    int64_t seq_len;
    const int32_t *tokens;
    const int32_t *labels;
    const int32_t *sequence_ids;
};

/* For leaves of up to `samples` rows of up to `seq_len` tokens; seq_len <=
 * config->max_seq_len. params and kernels are borrowed. */
enum err model_create(const struct model_config *config,
                      const struct params *params,
                      const struct kernels *kernels, int threads,
                      int64_t samples, int64_t seq_len, struct model **out);
void model_destroy(struct model *model);

/* Bytes of activations and scratch that model_create() allocates. */
size_t model_bytes(const struct model *model);

/* The context (threads, scratch) for ops that run between leaves. Lent. */
const struct kernel_ctx *model_ctx(const struct model *model);

/* *loss_sum: sum over loss-bearing tokens of -log p(label), in fp64.
 * Gradients of that sum (not of the mean) are accumulated. */
enum err model_train_leaf(struct model *model,
                          const struct param_access *access,
                          const struct leaf *leaf, double *loss_sum);

/* Forward only. */
enum err model_eval_leaf(struct model *model, const struct param_access *access,
                         const struct leaf *leaf, double *loss_sum);

#endif
