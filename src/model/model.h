/* The language model: forward and backward by explicit gradients over the op
 * table, one leaf at a time.
 *
 * A leaf's sequences may be cut into chunks of equal length, which a group of
 * ranks computes together. Chunks are dealt in zigzag, a first one and a last
 * one in turn, because late queries have more keys: place p has chunk
 * model_chunk_at(chunks, p), and a rank has neighbouring places. An op sees the
 * rows of one chunk, each chunk has a loss, gradients and random numbers of its
 * own, and what is added across chunks is added in the order of places: so the
 * bits of a chunk depend on the number of chunks, not on the number of ranks.
 * Only attention looks across chunks (model_sequence.c).
 *
 * Gradients are made of what trains only, and backward ends with the lowest
 * layer of which something does.
 *
 * Block: x = x + s attention(norm_1(x)); x = x + s ffn(norm_2(x)), s the
 * residual scale, ffn an MLP, a gated one or a mixture of experts. Logits are
 * norm_f(x) W^T, W the embedding when tied. What forward keeps for backward,
 * computes again or packs into fewer bits: model_memory.h. Logits are made some
 * rows at a time and never kept. All activations live in one planned arena. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "src/base/err.h"
#include "src/model/group_access.h"
#include "src/model/model_config.h"
#include "src/model/model_memory.h"
#include "src/model/params.h"

/* Rows of logits at a time; fewer of a wide vocabulary, whose logits take much
 * memory. A device needs many: with few its products have too few tiles, and
 * each time the gradient of the matrix is read and written. */
#define MODEL_LOGIT_ROWS_DEVICE 8192
#define MODEL_LOGIT_ROWS 256
#define MODEL_LOGIT_ROWS_WIDE 128
#define MODEL_LOGIT_WIDTH 32768 /* a vocabulary above it is wide */

struct model;

/* One leaf: row-major [samples, seq_len]; labels < 0 bear no loss;
 * sequence_ids may be NULL. The host's memory, free when a call returns. */
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
    int64_t seq_len; /* ... of up to so many tokens, over all chunks */
    uint64_t seed;   /* of dropout and jitter */
    void *stream;    /* on which all is done (kernel_memory.h); borrowed; NULL
                        on CPU */
    /* The type of weights and activations: DTYPE_F32 or DTYPE_BF16. Gradients
     * of weights, statistics, losses, the router's probabilities and what it
     * weighs with are fp32. ERR_UNSUPPORTED where the table lacks it. */
    enum dtype dtype;
    /* With DTYPE_BF16: products of blocks' linear layers but the router and the
     * experts have their operands in 8 bits. Each of these layers' rows and
     * columns and a chunk's rows are multiples of 16. ERR_UNSUPPORTED where the
     * table lacks it. */
    bool fp8;
    struct model_memory memory;
    bool frozen;              /* params has frozen tensors */
    struct lora_options lora; /* of params' adapters; not with fp8 */
    struct target target;     /* of training; evaluation has the plain one */
    /* In training the last layer's halves are left out of a sample with this
     * probability, < 1, those below it with less, in proportion to their
     * number, and otherwise what they add is divided by the rest of it
     * (stochastic depth: Huang et al. 2016). What is drawn depends on the
     * sample alone. */
    double drop_depth;
    /* The share of its gradient that the embedding, of tokens and positions,
     * does not get; not of the head's where they are one matrix. 0: all of it
     * is its own. */
    double embedding_shrink;
    /* That is told of blocks, and of ops by kernels->profiled; while it is on
     * there are no graphs. Borrowed; NULL: nobody is. */
    struct kernel_profile *profile;
    bool graphs; /* of leaves, where there can be some (model_graph.c) */
    /* Expert parallelism: a group of so many ranks shares each block's experts,
     * the place s of it has [s experts / degree, (s + 1) experts / degree). 0
     * or 1: no group */
    int expert_degree;
    const struct group_access *experts; /* the group; borrowed */
    int chunks;     /* that sequences are cut into; 0 is as 1, in one piece;
                       divides the seq_len of every leaf */
    int own_chunks; /* of these, this rank's; divides chunks; 0 with chunks 0 */
    int first_place; /* of its first one: rank * own_chunks */
    const struct group_access *sequence; /* the ranks that have the others, in
                                            order; borrowed; NULL: nobody */
};

/* Version of the order in which a sequence's chunks meet and are added, raised
 * whenever that gives other bits. Checkpoints of runs with several record it. */
#define MODEL_CHUNKS 2
/* The chunk at a place: 0, chunks - 1, 1, chunks - 2 and so on. */
int model_chunk_at(int chunks, int place);

/* options->seq_len <= config->max_seq_len; options->expert_degree divides
 * config->experts. params and kernels are borrowed. */
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
    size_t scratch;   /* of the ops */
    size_t attention; /* ... of which a library's attention takes so much */
    size_t total;     /* tensors that model_create() allocates */
    size_t host;      /* of the host's memory besides, for a device */
};

/* Without creating one; of the groups only the degrees are looked at. A leaf of
 * more rows than products take (INT_MAX) counts as ARENA_BYTES_MAX. */
enum err model_plan(const struct model_config *config,
                    const struct kernels *kernels,
                    const struct model_options *options,
                    struct model_bytes *out);

/* Model FLOPs of one sequence of `seq_len` tokens, forward and backward, of a
 * model of which not all trains: what model_config.h counts, by its two
 * conventions, without what such a model does not compute, and with its
 * adapters: the basis of `mfu`, and of `mfu_causal`.
 *
 * A matrix has three products: forward, its input's gradient and its own. Those
 * that are frozen lack the last one; below the lowest block that trains there
 * is only forward, of attention too. The embedding, where it is the output
 * layer, is multiplied above all layers. Adapters (lora.h) have all three, of
 * each of their matrices. Where all trains it is the same number, to the
 * bit. */
double model_flops_per_sequence(const struct model_config *config,
                                const struct params *params, int64_t seq_len);
double model_flops_per_sequence_causal(const struct model_config *config,
                                       const struct params *params,
                                       int64_t seq_len);

/* Forget all kinds of leaves that are kept as graphs (model_graph.c): to be
 * called when the ops do otherwise than before (kernels->choose). Waits for the
 * stream. */
enum err model_graph_forget(struct model *model);
/* Leaves that were launched as graphs so far. */
int64_t model_graph_launches(const struct model *model);
/* Kinds of a model; leaves of more of them are enqueued op by op. */
#define MODEL_GRAPHS_MAX 64

/* The context (threads, scratch) for ops that run between leaves. Lent. */
const struct kernel_ctx *model_ctx(const struct model *model);

/* Tensors of the device in which a leaf keeps what it has computed: between
 * leaves nothing of it is needed, and it may be written. Lent, 256-byte
 * aligned. */
void model_spare(const struct model *model, void **memory, size_t *bytes);

/* Sums over the loss-bearing tokens of a leaf, in fp64. A tensor: a device has
 * written it when its stream has come there. */
struct leaf_loss {
    double cross_entropy; /* of -log p(label) */
    double balance;       /* weighted load-balance loss times those tokens; 0
                             without experts */
};

/* The leaf is the whole one, also where other ranks have some of its chunks;
 * they make the same call. loss[own_chunks]. Gradients of cross_entropy +
 * balance (sums, not means) are accumulated, each chunk's into a buffer of its
 * own (params.h).
 *
 * With expert parallelism this and model_eval_leaf() are collective in the
 * group: every rank of it has a leaf of its own, possibly of another size
 * within the same options, and the bits are those of a rank alone. Who has
 * nothing to compute calls with labels < 0.
 *
 * After an error from a group exchanges may still be under way in it, and the
 * model, which has their buffers, must stay until the group is gone. */
enum err model_train_leaf(struct model *model,
                          const struct param_access *access,
                          const struct leaf *leaf, struct leaf_loss *loss);

/* Forward only, without dropout and jitter. */
enum err model_eval_leaf(struct model *model, const struct param_access *access,
                         const struct leaf *leaf, struct leaf_loss *loss);

/* What a block has put out, of one chunk: sums over its elements. */
struct stream_figures {
    double elements, sum, squares, zeros;
    double largest; /* magnitude */
};

/* Where model_train_leaf() puts them. On a device it waits for each block then,
 * and the leaf is no graph. */
struct stream_look {
    struct stream_figures *figures; /* [own_chunks][n_layers] */
    void *host; /* of kernel_memory's host_create(), for a device */
    size_t host_bytes;
    void *event; /* of a device */
};

/* From the next leaf on; lent until another is given, NULL: nobody looks. The
 * bits stay the same. */
void model_look(struct model *model, const struct stream_look *look);

/* Choices of each expert, summed over the own chunks of all leaves since they
 * were cleared, but of those without a loss token: [n_layers, experts]. Nothing
 * happens without experts. */
enum err model_expert_counts_clear(struct model *model);
/* Enqueue the way to the host. */
enum err model_expert_counts_fetch(struct model *model);
/* What was fetched, when the stream has come there; NULL without experts. Lent.
 */
const int64_t *model_expert_counts(const struct model *model);

/* With options.fp8 an operand is multiplied by a scale before it is rounded,
 * and the product by the inverse: one pair for the activations, the weights and
 * the gradients of each linear layer. They are 1 first and the caller's matter
 * from then on (trainer_fp8.h): so many numbers ... */
int64_t model_fp8_count(const struct model_config *config);
/* ... and what the one operand's format goes up to. */
float model_fp8_largest(int64_t number);
/* Enqueue the way of new ones to the device, [count] each. */
enum err model_fp8_upload(struct model *model, const float *scale,
                          const float *unscale);
/* The operands' largest finite magnitudes, [count], before they are scaled,
 * over all leaves since they were cleared, but of those without a loss token;
 * both are enqueued. Without options.fp8 there is nothing to clear. */
enum err model_fp8_clear(struct model *model);
enum err model_fp8_download(struct model *model, float *largest);
