/* The language model: forward and backward by explicit gradients over the op
 * table, one leaf at a time.
 *
 * Block: x = x + s attention(norm_1(x)); x = x + s ffn(norm_2(x)), s the
 * residual scale, ffn an MLP, a gated one or a mixture of experts. Logits are
 * norm_f(x) W^T, W the embedding when tied. What forward keeps for backward,
 * computes again or packs into fewer bits: model_memory.h. Logits are made some
 * rows at a time and never kept. All activations live in one planned arena. */
#ifndef TESSERA_MODEL_MODEL_H
#define TESSERA_MODEL_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "src/base/err.h"
#include "src/model/group_access.h"
#include "src/model/model_config.h"
#include "src/model/model_memory.h"
#include "src/model/params.h"

/* Rows of logits at a time; fewer of a wide vocabulary, whose logits take much
 * memory. */
#define MODEL_LOGIT_ROWS 256
#define MODEL_LOGIT_ROWS_WIDE 128
#define MODEL_LOGIT_WIDTH 32768 /* a vocabulary above it is wide */

struct model;

/* One leaf: row-major [samples, seq_len]; labels < 0 bear no loss;
 * sequence_ids may be NULL. */
struct leaf {
    int64_t samples;
    int64_t seq_len;
    const int32_t *tokens;
    const int32_t *labels;
    const int32_t *sequence_ids;
    int64_t first_sample; /* number of the first one in the whole run: what
                             dropout and jitter draw depends on it */
};

struct model_options {
    int threads;
    int64_t samples; /* leaves of up to so many rows ... */
    int64_t seq_len; /* ... of up to so many tokens */
    uint64_t seed;   /* of dropout and jitter */
    struct model_memory memory;
    /* 0 means 1 in what follows */
    int chunks;      /* of a sequence, each of which is a leaf of the sum */
    int own_chunks;  /* of them this rank computes so many ... */
    int first_chunk; /* ... from this one on */
    const struct group_access *sequence; /* the other ranks with chunks; NULL:
                                            none */
    int expert_degree; /* ranks over which the experts are spread */
    const struct group_access *experts; /* these ranks; NULL: it is one */
};

/* options->seq_len <= config->max_seq_len. params and kernels are borrowed. */
enum err model_create(const struct model_config *config,
                      const struct params *params,
                      const struct kernels *kernels,
                      const struct model_options *options, struct model **out);
void model_destroy(struct model *model);

/* Bytes of a model, by kind. */
struct model_bytes {
    size_t saved;     /* kept from forward for backward */
    size_t workspace; /* shared by all blocks */
    size_t logits;
    size_t scratch; /* of the ops */
    size_t total;   /* what model_create() allocates */
};

/* Without creating one. */
enum err model_plan(const struct model_config *config,
                    const struct kernels *kernels,
                    const struct model_options *options,
                    struct model_bytes *out);

/* The context (threads, scratch) for ops that run between leaves. Lent. */
const struct kernel_ctx *model_ctx(const struct model *model);

/* Sums over the loss-bearing tokens of a leaf, in fp64. */
struct leaf_loss {
    double cross_entropy; /* of -log p(label) */
    double balance;       /* weighted load-balance loss times those tokens; 0
                             without experts */
};

/* Gradients of cross_entropy + balance (sums, not means) are accumulated. */
enum err model_train_leaf(struct model *model,
                          const struct param_access *access,
                          const struct leaf *leaf, struct leaf_loss *loss);

/* Forward only, without dropout and jitter. */
enum err model_eval_leaf(struct model *model, const struct param_access *access,
                         const struct leaf *leaf, struct leaf_loss *loss);

/* Choices of each expert in the last leaf: [n_layers, experts]; lent; NULL
 * without experts. */
const int64_t *model_expert_counts(const struct model *model);

#endif
