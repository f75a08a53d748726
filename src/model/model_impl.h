/* Shared by the model's own files only: what lies where, and the parts of a
 * pass over one leaf. */
#pragma once

#include <assert.h>

#include "src/base/arena.h"
#include "src/model/block.h"
#include "src/model/block_embed.h"
#include "src/model/block_tables.h"
#include "src/model/model.h"

/* What backward needs from forward, per transformer block and chunk; n rows of
 * a chunk, r rows of its hidden layer: n, or with experts the most that one
 * rank has of them, n min(top_k, experts / degree). */
enum saved {
    SAVED_X,      /* [n, d] the block's input */
    SAVED_QKV,    /* [n, qkv] clipped, and rotated unless pass.qkv is there */
    SAVED_ATT,    /* [n, queries] attention's output */
    SAVED_LSE,    /* [samples, heads, seq] */
    SAVED_MID,    /* [n, d] residual stream after attention */
    SAVED_HIDDEN, /* before the activation: MLP [n, hidden], gate and up side by
                     side; experts gate [r, f], then up [r, f] */
    SAVED_KINDS
};

/* A transformer block's own memory for one chunk. */
struct layer {
    void *live[SAVED_KINDS];   /* own, or the pass's when it is packed or
                                  computed again */
    void *packed[SAVED_KINDS]; /* NULL: not packed */
    bool recompute[SAVED_KINDS];
    bool keeps_act;
    void *act; /* [n, f] after the activation: own where it is kept, ws.act */
    struct routing routing;
    uint64_t dropout_attention, dropout_ffn, dropout_probs,
        jitter; /* streams */
    uint64_t dropout_lora[LORA_LAYERS];
    uint64_t drop_depth; /* the same of all chunks */
};

/* What experts on other ranks need besides; nothing without a group. */
#define DISPATCH_BUFFERS 2
struct expert_dispatch {
    int64_t rows;      /* s, at most so many of a leaf come to one rank */
    int32_t *identity; /* [s] 0, 1, 2, ... */
    void *dy;          /* [n top_k, d] the results' gradient, sorted */
    float *weights;    /* [n top_k] sorted */
    float *dweights;   /* [n top_k] sorted */
    /* buffers for what other ranks send, taken in turn; one more for tokens,
     * because their results leave from there */
    void *in_x[DISPATCH_BUFFERS + 1];      /* [s, d] */
    void *in_dy[DISPATCH_BUFFERS];         /* [s, d] */
    float *in_weights[DISPATCH_BUFFERS];   /* [s] */
    float *out_dweights[DISPATCH_BUFFERS]; /* [s] */
    void *offsets_read;                    /* event: the host has them */
};

/* Memory for products in 8 bits; nothing of it is there in other precisions. */
struct fp8_products {
    /* [n_layers, LINEARS_FP8, 3] of activations, weights, gradients */
    float *scale, *unscale; /* by which operands are multiplied, and products */
    float *largest;         /* magnitudes since they were cleared */
    float *uncounted;       /* [1] those of leaves without loss tokens */
    void *x;  /* [n, in], in backward its transpose; of all linear layers */
    void *w;  /* [out, in], in backward its transpose */
    void *dy; /* [n, out] */
    void *dy_across; /* [out, n] */
};

/* What adapters need besides; nothing of it is there without. */
struct lora_products {
    struct block_lora block;
    void *x;    /* [n, in] after dropout; NULL: there is none */
    void *dlow; /* [n, rank] */
};

/* Used by all blocks and all chunks in turn. */
struct workspace {
    void *norm;             /* [n, d] a norm's output */
    float *mean, *rstd;     /* [n] */
    void *branch;           /* [n, d] what is added to the stream */
    void *act;              /* [r, f] after the activation */
    float *losses;          /* [n] */
    void *logits;           /* [model_logit_rows, V] */
    void *dbranch;          /* [n, d] where it differs from dx */
    void *dnorm;            /* [n, d] */
    float *unused;          /* [d] gradients of frozen norms' weights, which
                               nobody reads; NULL: nothing is frozen */
    void *dact;             /* [r, f] */
    void *dhidden;          /* [r, hidden]; without gates the same as dact */
    void *rows;             /* [r, d] tokens in the experts' order */
    void *router_in;        /* [n, d] with jitter */
    void *router_logits;    /* [n, experts] and their gradient, in bf16 */
    void *drouter;          /* [n, d] */
    float *dlogits;         /* [n, experts] */
    float *dweights;        /* [n, top_k] */
    float *dprobs;          /* [experts] */
    double *prob_sums;      /* [experts] */
    int64_t *expert_counts; /* [n_layers, experts] of all own chunks */
    int64_t *host_expert_counts; /* the same for the host; on CPU the same
                                    memory */
    struct expert_dispatch dispatch;
};

/* Rows of the embeddings' gradient that are staged (model_staged_rows.c); NULL
 * where none can be. */
struct staged_rows {
    bool open;     /* the leaf adds to the embedding's gradient in place */
    int32_t *rows; /* [n], of which `count` are the leaf's tokens, each once */
    int64_t count;
    float *tokens;    /* [n, d] */
    float *positions; /* [seq_len, d]; NULL: they are not learned */
};

/* What attention across chunks needs; nothing of it is there for a sequence in
 * one piece. A set is keys and values of a rank's chunks, one chunk after the
 * other as in the sequence: [own_chunks][n, 2 kv_heads, head_dim]. */
struct ring {
    void *kv;       /* the own set */
    void *kv_in[2]; /* another rank's, or its first chunks, in turn */
    float *dkv[2]; /* gradient of a set, complete up to this rank's queries; one
                       is worked on, the other travels */
    float *sums;   /* [own_chunks][n, queries] SAVED_ATT, then the queries'
                    gradient; NULL in fp32, where these are sums themselves */
};

/* A leaf's numbers as ops read them; nothing of it is there where they read the
 * caller's. A device gets them from one of two sets of the host's, so that the
 * host is two leaves ahead at most. */
#define INPUT_SETS 2
struct input {
    int64_t stride;   /* between chunks */
    int32_t *numbers; /* tokens [own_chunks][n], labels [own_chunks][n], and
                         sequence_ids of the whole leaf [chunks][n] */
    int32_t *sets[INPUT_SETS];  /* the same; NULL on CPU */
    void *uploaded[INPUT_SETS]; /* events */
    int next;
};

struct model {
    struct model_config config;
    struct model_options options;
    const struct params *params;
    const struct kernels *kernels;
    struct kernel_ctx ctx;
    struct arena arena;   /* of tensors */
    size_t spare;         /* where in it a leaf's own begins, until the end */
    struct arena host;    /* for copies from and to a device; none on CPU */
    struct pass *passes;  /* [own_chunks] */
    struct layer *layers; /* [own_chunks][n_layers] */
    struct workspace ws;
    struct staged_rows staged;
    bool begins; /* products begin the matrices of the gradients at hand */
    struct fp8_products fp8;
    struct lora_products lora;
    struct ring ring;
    struct input input;
    const struct stream_look *look; /* NULL: nobody looks */
    struct model_graphs *graphs;    /* NULL: leaves are not kept */
    bool capturing;                 /* the calls of a leaf are kept */
    bool draws; /* random numbers: model_random() was asked for some */
    struct leaf_loss *graph_loss; /* a tensor, of the leaf at work as a graph */
    int64_t loss_tokens;          /* of the whole leaf: labels >= 0 */
    struct block_tables tables;   /* of seq_len positions */
    int64_t head_dim;
    int64_t qkv_width;    /* (n_heads + 2 n_kv_heads) head_dim */
    int64_t hidden_width; /* ffn_width, twice that with gates */
};

/* One chunk of a leaf on its way through the model: its own memory, then what
 * it is of this leaf, then where in the model it is, by block. The chunks go
 * through a block together, because attention looks from one to another. */
struct pass {
    struct model *model;
    int place;                  /* among the own ones */
    int chunk;                  /* its number in the whole sequence */
    struct layer *layers;       /* [n_layers] */
    void *live[SAVED_KINDS];    /* where some block has none of its own */
    void *qkv;                  /* [n, qkv] normed and rotated; there only where
                                   backward needs it before that, too */
    float *q_mean, *q_rstd;     /* [n, heads] */
    float *k_mean, *k_rstd;     /* [n, kv_heads] */
    void *x_last;               /* [n, d] input of the final norm; backward
                                   [n, queries] gradient of SAVED_ATT */
    void *dx;                   /* [n, d] gradient of the stream */
    void *dqkv;                 /* [n, qkv] */
    uint64_t dropout_embedding; /* stream */

    const struct param_access *access;
    struct leaf leaf;       /* as ops see it */
    int64_t first;          /* position of its first token in the sequence */
    bool training;          /* dropout and jitter */
    bool backward;          /* through the layer at hand */
    int64_t n;              /* rows: samples * seq_len */
    int64_t loss_tokens;    /* labels >= 0 */
    struct leaf_loss *loss; /* a tensor */

    int number; /* of the layer */
    struct layer *layer;
    int block;           /* of params, between enter and leave: */
    const void *weights; /* ... its weights, those that train */
    const void *frozen;  /* and the others */
    float *gradient;     /* this chunk's; NULL in forward, and where nothing
                            of the block trains */
    /* of the experts' blocks, by role from PARAM_EXPERTS_GATE on */
    const void *expert_weights[PARAM_EXPERT_KINDS];
    float *expert_gradient[PARAM_EXPERT_KINDS]; /* NULL as above */
};

/* Gather the block's weights for all chunks and, with `gradient`, find its
 * gradients. */
enum err model_enter(struct model *model, int block, bool gradient);
enum err model_leave(struct model *model);
/* The same for a layer and its experts' blocks. The experts are left first,
 * and do nothing where there are none. */
enum err model_enter_layer(struct model *model, int layer, bool gradient);
enum err model_leave_experts(struct model *model);
/* Whether products begin the matrices of the block's gradient; asked before it
 * is found. */
bool model_begins(const struct model *model, int block);
/* The frozen part of a block alone, where it has one. */
enum err model_frozen(const struct model *model, int block,
                      const void **weights);
/* Find the gradients only. */
enum err model_enter_gradient(struct model *model, int block);

/* Where an op draws numbers for the pass's rows, each with probability p or as
 * far from 1; 0: it draws none. Whatever draws asks here and nowhere else: so
 * the model knows that leaves draw, and keeps none as a graph, which would draw
 * the same each time. */
static inline struct random_place model_random(const struct pass *pass,
                                               double p, uint64_t stream)
{
    if (p == 0.0)
        return (struct random_place){ 0 };
    assert(!pass->model->capturing);
    pass->model->draws = true;
    return (struct random_place){ .seed = pass->model->options.seed,
                                  .stream = stream,
                                  .first_sample = pass->leaf.first_sample };
}

/* The host waits for an event of the model's stream, among messages of other
 * ranks: never by the memory's own waits, which have no deadline. */
static inline enum err model_reach(const struct model *model,
                                   const struct param_access *access,
                                   void *event)
{
    return access->reach != NULL ? access->reach(access->arg, event)
                                 : model->kernels->memory->event_wait(event);
}

/* An element of weights or activations. */
static inline void *at(const struct model *model, const void *base,
                       int64_t element)
{
    return (char *)base + element * (int64_t)dtype_bytes(model->options.dtype);
}

/* Back from ws.dact to ws.dhidden. */
enum err model_activate_backward(const struct model *model, int64_t rows,
                                 bool apart, const void *hidden);

/* A tensor of the block that was entered; NULL: this configuration has none. */
static inline const void *pass_weight(const struct pass *pass,
                                      enum param_role role)
{
    const struct params *params = pass->model->params;
    int64_t place = params->blocks[pass->block].place[role];
    if (place >= 0)
        return at(pass->model, pass->weights, place);
    if (params->frozen == NULL)
        return NULL;
    place = params->frozen->blocks[pass->block].place[role];
    return place < 0 ? NULL : at(pass->model, pass->frozen, place);
}

/* Queries, keys and values as attention reads them. */
static inline const void *pass_ready(const struct pass *pass)
{
    return pass->qkv != NULL ? pass->qkv : pass->layer->live[SAVED_QKV];
}

/* NULL too where it is frozen. */
static inline float *pass_gradient(const struct pass *pass,
                                   enum param_role role)
{
    int64_t place = pass->model->params->blocks[pass->block].place[role];
    return place < 0 ? NULL : pass->gradient + place;
}

/* Gradient of a norm's weight, which the op always adds to. */
static inline float *pass_norm_gradient(const struct pass *pass,
                                        enum param_role role)
{
    float *gradient = pass_gradient(pass, role);
    return gradient != NULL ? gradient : pass->model->ws.unused;
}

/* Looks at the stream behind the pass's layer (model_look.c). */
enum err model_look_at(const struct pass *pass, const void *stream);

/* Lay everything out in the arena (which may only count), by kind. */
void model_layout(struct model *model, struct arena *arena,
                  struct model_bytes *bytes);
/* The same for memory of the host; nothing on CPU. */
void model_layout_host(struct model *model, struct arena *arena);

/* Ranks that share the experts; 1: nobody else. */
static inline int model_expert_degree(const struct model *model)
{
    return model->options.expert_degree > 1 ? model->options.expert_degree : 1;
}

/* How many of the n rows of a chunk have their logits at a time. */
int64_t model_logit_rows(const struct model *model, int64_t n);

/* Rows of what is saved for n rows of a chunk: those that a packed tensor has
 * scales for. */
int64_t model_saved_rows(const struct model *model, enum saved kind, int64_t n);
int64_t model_saved_cols(const struct model *model, enum saved kind);
/* How a kind is stored: not packed where that is what it has. 8 bits only where
 * errors do not feed back into a softmax or a norm's statistics. */
enum packing model_packing(const struct model *model, enum saved kind);

/* Where the parts of the pass's block have everything, forward. */
struct block model_block(struct pass *pass);

/* c[m, n] = a[m, k] b, of GEMM_NT or GEMM_NN. */
enum err model_multiply(const struct model *model, enum gemm_form form,
                        int64_t m, int64_t n, int64_t k, const void *a,
                        const void *b, void *c);
/* c[m, n] += a^T b over k rows, a gradient; or it begins the sum. */
enum err model_add_product(const struct model *model, bool begins, int64_t m,
                           int64_t n, int64_t k, const void *a, const void *b,
                           float *c);

/* dx = dy W, dweight += dy^T x, dbias += column sums of dy, where they train,
 * and the adapters' part of it. */
enum err model_linear_backward(struct pass *pass, enum linear linear,
                               const void *dy, const void *x, void *dx);

/* Leaves as graphs (model_graph.c): a place for the loss; what there is to
 * remember; and a leaf, whose numbers are there, by run(model) or as a graph of
 * it. */
void model_graph_layout(struct model *model, struct arena *arena);
enum err model_graph_create(struct model *model);
void model_graph_destroy(struct model *model);
enum err model_graph_run(struct model *model, enum err (*run)(struct model *));

/* Adapters (model_lora.c): what they take; block_walker's input; dx += theirs,
 * and the gradients of A and B. Nothing happens where a layer has none. */
void model_lora_layout(struct model *model, int64_t n, struct arena *arena);
enum err model_lora_input(void *arg, enum lora_layer layer, const void **x);
enum err model_lora_backward(struct pass *pass, enum linear linear,
                             const void *dy, const void *x, void *dx);

/* Products in 8 bits (model_fp8.c): what they take, scales of 1, and the same
 * two but for the bias's gradient. */
void model_fp8_layout(struct model *model, int64_t n, struct arena *arena);
enum err model_fp8_create(struct model *model);
enum err model_fp8_linear(struct pass *pass, enum linear linear, int64_t out,
                          int64_t in, const void *x, const void *weight,
                          const void *bias, void *y);
enum err model_fp8_linear_backward(struct pass *pass, enum linear linear,
                                   int64_t out, int64_t in, const void *dy,
                                   const void *x, const void *weight, void *dx,
                                   float *dweight);

/* What a half of the block reads of x, the stream (block_input()), again; */
enum err model_input_again(const struct block *b, enum param_role role,
                           const void *x);
/* ... and from its gradient, ws.dnorm, to pass->dx. */
enum err model_input_backward(struct pass *pass, enum param_role role,
                              const void *x);
/* From *dbranch, the gradient of a half's branch as it is added, to that of
 * its last layer's product with x, in ws.dnorm: where norms come after, else
 * they are the same. */
enum err model_branch_norm_backward(struct pass *pass, enum param_role role,
                                    enum linear linear, const void *x,
                                    const void **dbranch);
/* dx += the gradient through it; after block_norm_of() the same x. */
enum err model_norm_backward(struct pass *pass, enum param_role role,
                             const void *x, const void *dnorm, void *dx);

/* The gradient of ws.branch before anything of it was dropped, given dx. */
enum err model_branch_gradient(struct pass *pass, uint64_t stream,
                               const void **dbranch);

/* Attention of all chunks together: pass_ready() to SAVED_ATT and LSE. */
enum err model_attention_forward(struct model *model);
/* Back from dx, the gradient of SAVED_MID: that of SAVED_ATT, in x_last, which
 * nobody needs any more; dqkv, all chunks together; dx of SAVED_X. */
enum err model_attention_after_backward(struct pass *pass);
enum err model_attention_backward(struct model *model);
enum err model_attention_before_backward(struct pass *pass);
struct attention model_attention_shape(const struct pass *pass);

/* A leaf's numbers to where ops read them, cut into this rank's chunks, and its
 * loss tokens (model_input.c). */
enum err model_input_create(struct model *model);
void model_input_destroy(struct model *model);
void model_input_layout(struct model *model, int64_t n, struct arena *arena);
void model_input_layout_host(struct model *model, struct arena *arena);
enum err model_input_leaf(struct model *model,
                          const struct param_access *access,
                          const struct leaf *leaf);
const int32_t *model_input_documents(const struct model *model, int chunk);

/* A sequence in more than one chunk: what it takes, and attention across chunks
 * (model_sequence.c). */
void model_sequence_layout(struct model *model, int64_t n, struct arena *arena);
enum err model_sequence_forward(struct model *model);
enum err model_sequence_backward(struct model *model);

/* The other half, an MLP: recompute brings back SAVED_HIDDEN; backward turns dx
 * from the gradient of the block's output into that of SAVED_MID. */
enum err model_mlp_recompute(struct pass *pass);
enum err model_mlp_backward(struct pass *pass);

/* The same with experts, and what block_walker asks of training: the router's
 * input with jitter; the balance of the choices: the sum over experts of
 * (choices of it) (mean probability of it), smallest when both are even (Fedus,
 * Zoph and Shazeer 2021), where choices of a leaf without loss do not count; and
 * rows to results, with the group where one shares the experts. */
enum err model_moe_input(void *arg, const void **x);
enum err model_moe_balance(void *arg);
enum err model_moe_serve(void *arg, const struct expert_rows *rows);
enum err model_moe_recompute(struct pass *pass);
enum err model_moe_backward(struct pass *pass);

/* What experts do with rows: block_walker's product. Backward comes in two
 * parts: down turns rows->dy, given SAVED_HIDDEN, into ws.dhidden and
 * rows->dweights; hidden turns that into the gradient of rows->x, in its place.
 * Both add to the gradients of rows->place. rows->x is not needed before the
 * second part. */
enum err model_experts_product(void *arg, const struct expert_rows *rows,
                               enum param_role role, int64_t out, int64_t in,
                               const void *x, void *y);
enum err model_experts_down_backward(struct pass *pass,
                                     const struct expert_rows *rows);
enum err model_experts_hidden_backward(struct pass *pass,
                                       const struct expert_rows *rows);

/* The same in a group, collectively. Forward turns the sorted tokens in ws.rows
 * into their results; backward, given dispatch.dy and dispatch.weights besides,
 * into their gradient, and fills dispatch.dweights. */
enum err model_experts_exchange_create(struct model *model);
void model_experts_exchange_destroy(struct model *model);
enum err model_experts_exchange_forward(struct pass *pass);
enum err model_experts_exchange_backward(struct pass *pass);

/* All transformer blocks. */
enum err model_blocks_forward(struct model *model);
enum err model_blocks_backward(struct model *model);

/* Whether leaves of this size can add to the embedding's gradient in place. */
bool model_staged_rows_fit(const struct model *model);
void model_staged_rows_layout(struct model *model, struct arena *arena);
/* What the rows hold is staged, and they are zero: [V, d] by this pass's
 * tokens; [seq_len, d] (NULL: there are none). */
void model_staged_rows_take_tokens(struct pass *pass, float *dwte);
void model_staged_rows_take_positions(struct pass *pass, float *dwpe);
/* It is added back, before what they hold now. */
enum err model_staged_rows_add(struct pass *pass, float *dwte, float *dwpe);

/* Tokens to the first block's SAVED_X, and back from dx. */
enum err model_embed(struct model *model);
enum err model_embed_backward(struct model *model);
/* Final norm, logits, loss; with `gradient` also the head's gradients, and dx
 * becomes the gradient of x_last. */
enum err model_head(struct model *model, bool gradient);
