/* What a transformer block computes, forward, where training (model_*.c) and
 * inference (src/infer) do the same, which is all but attention itself: a table
 * of its linear layers, and its parts, which both walk through in turn: before
 * attention, after it, and the other half, an MLP or experts. Each walker has
 * memory of its own for what lies between them, products of its own (of
 * weights in 16 bits, in 8, in panels), and training what it draws and
 * exchanges. So an option of the model is written here once. */
#pragma once

#include "kernels/kernels.h"
#include "src/base/arena.h"
#include "src/model/lora.h"
#include "src/model/params.h"

/* Linear layers of a block; products of those before LINEARS_FP8 may be in 8
 * bits. */
enum linear {
    LINEAR_QKV,
    LINEAR_OUT,    /* of attention */
    LINEAR_HIDDEN, /* MLP's up, or gate and up: one matrix of 2 f rows */
    LINEAR_DOWN,
    LINEARS_FP8,
    LINEAR_ROUTER = LINEARS_FP8,
    LINEAR_NONE /* an adapter's */
};

struct block_linear {
    enum param_role weight, bias; /* PARAM_ROLES: it never has one */
    int64_t out, in;
    int lora, lora_end; /* of enum lora_layer: adapters that can belong to it */
};
struct block_linear block_linear(const struct model_config *config,
                                 enum linear linear);

/* Where each token goes. */
struct routing {
    float *probs;     /* [n, experts] */
    int32_t *chosen;  /* [n, top_k] */
    float *weights;   /* [n, top_k] */
    int32_t *place;   /* [n top_k] */
    int32_t *source;  /* [n top_k] */
    int64_t *offsets; /* [experts + 1] */
    int64_t *served;  /* [degree, experts / degree + 1] offsets of the rows that
                         each place of the group sends here; NULL: no group */
    int64_t *host_offsets, *host_served; /* the same for the host, with a
                                            group; on CPU the same memory */
};

/* Rows in the experts' order: all of a leaf, or those that one place of the
 * group sends to this one. */
struct expert_rows {
    int64_t count;
    int experts;
    const int64_t *offsets; /* [experts + 1] */
    void *x;                /* [count, d] tokens; their results, or the tokens'
                               gradient, take their place */
    const void *dy;         /* [count, d] the results' gradient, not weighed */
    const int32_t *source;  /* [count] where a row's weight is, in ... */
    const float *weights;
    float *dweights;
    int place; /* of the group, whose leaf it is */
};

/* What adapters need; nothing of it is there without. */
struct block_lora {
    int64_t rank; /* 0: none */
    double alpha;
    void *low;   /* [n, rank] (alpha / rank) x A^T */
    void *slice; /* [n, out] columns of a product; only where one has more */
    void *part;  /* [n, out] what is added */
};

/* What a walker does in his own way; arg is struct block's. */
struct block_walker {
    /* A vector of the block; NULL: the model has none. */
    const void *(*vector)(const void *arg, enum param_role role);
    /* y[n, out] = x[n, in] W^T + bias, of any matrix; a router's y is fp32. */
    enum err (*product)(void *arg, enum linear linear, enum param_role role,
                        int64_t out, int64_t in, const void *x,
                        const void *bias, void *y);
    /* Each expert's own rows: y[count, out] from x[count, in]. */
    enum err (*experts)(void *arg, const struct expert_rows *rows,
                        enum param_role role, int64_t out, int64_t in,
                        const void *x, void *y);
    /* For training, else NULL. *x as an adapter, or the router, sees it; */
    enum err (*adapter_input)(void *arg, enum lora_layer layer, const void **x);
    enum err (*router_input)(void *arg, const void **x);
    /* ... each token's experts are known; all rows to their results, where
   * ranks may share the experts; */
    enum err (*routed)(void *arg);
    enum err (*serve)(void *arg, const struct expert_rows *rows);
    /* ... and `branch`, of attention or of the other half, before it is added
   * to the stream. */
    enum err (*branch)(void *arg, bool attention);
};

/* Rows on their way through a block: where everything lies. */
struct block {
    const struct model_config *config;
    const struct params *params;
    const struct kernels *kernels;
    const struct kernel_ctx *ctx;
    enum dtype dtype;
    int64_t small;     /* ops of fewer elements have one thread */
    int number;        /* of params' blocks */
    int64_t n, seq;    /* rows, of samples of `seq` */
    const float *rope; /* [seq, 2, head_dim / 2]; NULL: not rotary */
    bool owes;         /* x lacks the branch of the block before */
    void *x, *mid;     /* [n, d] the stream: input, and after attention */
    void *branch;      /* [n, d] what is added to it */
    void *norm;        /* [n, d] a norm's output, of these statistics: */
    float *mean, *rstd;
    void *qkv;   /* [n, qkv] clipped */
    void *ready; /* [n, qkv] as attention reads it: qkv itself, or another */
    float *q_mean, *q_rstd, *k_mean, *k_rstd;
    void *attended; /* [n, queries] */
    void *hidden;   /* before the activation: MLP [n, hidden], experts apart:
                       gates [r, f], then ups [r, f] */
    void *act;      /* [r, f] after it */
    void *sorted;   /* [n top_k, d] tokens in the experts' order */
    const struct routing *routing;
    struct block_lora lora;
    const struct block_walker *walker;
    void *arg;
};

/* The parts, in this order; attention, from `ready` to `attended`, is between
 * the first two. After: `norm` is that of the other half, which ends with
 * `branch`. */
enum err block_before(const struct block *b);
enum err block_after(const struct block *b);
enum err block_ffn(const struct block *b);

/* --- parts of them, which training needs for its way back, too --- */

/* y[n, out] = x[n, in] W^T + bias, and what adapters add. */
enum err block_apply(const struct block *b, enum linear linear, const void *x,
                     void *y);

/* The norms of the stream; those of the queries, or of the keys, inside packed
 * qkv. */
struct norm block_norm(const struct model_config *config, int64_t rows);
struct norm block_heads_norm(const struct model_config *config, int64_t rows,
                             int64_t heads);
/* y = the norm whose weight has this role, of x; y may be x. */
enum err block_norm_of(const struct block *b, enum param_role role,
                       const void *x, void *y);
/* The norm of a half's branch, by the half's other norm; where a half has one
 * norm alone they are the same. */
enum param_role block_after_role(const struct model_config *config,
                                 enum param_role role);
/* What this half of the block reads of x, the stream: its norm, or itself. */
const void *block_input(const struct block *b, const void *x);
/* sum = x + residual_scale * branch, and its norm. */
enum err block_add_norm(const struct block *b, enum param_role role,
                        const void *x, const void *branch, void *sum);

/* ready, of qkv; queries and keys turned by their positions, or back. */
enum err block_make_ready(const struct block *b);
enum err block_rotate(const struct block *b, bool inverse, void *qkv);

/* Where ups begin in the hidden layer: beside each row's gates, or, `apart`,
 * behind those of all rows; where it begins itself if there are no gates. */
void *block_up(const struct model_config *config, enum dtype dtype,
               int64_t rows, bool apart, const void *hidden);
/* act[rows, f] of the hidden layer. */
enum err block_activate(const struct block *b, int64_t rows, bool apart);

struct route block_route(const struct block *b);
/* x[n, d] in the experts' order. */
enum err block_sort_rows(const struct block *b, const void *x, void *sorted);
/* rows->x to `hidden`, and on to the results in its place. */
enum err block_rows_hidden(const struct block *b,
                           const struct expert_rows *rows);
enum err block_rows(const struct block *b, const struct expert_rows *rows);

/* What ops need scratch for: rows at a time, but nothing of samples. */
struct kernel_limits block_limits(const struct model_config *config,
                                  int threads, int64_t rows);
/* Memory for the experts' choices of n rows. */
void block_routing_layout(struct routing *routing,
                          const struct model_config *config, int64_t n,
                          struct arena *arena);
/* Memory for adapters of lora->rank, of rows of so many bytes a number, where
 * params has some; or, params is NULL, for both ways through a model whose
 * layers with adapters `targets` names. *in: the widest input of any; 0: there
 * are none. */
void block_lora_layout(struct block_lora *lora,
                       const struct model_config *config,
                       const struct params *params, const char *targets,
                       size_t row, struct arena *arena, int64_t *in);
/* low = (alpha / rank) x A^T. */
enum err block_lora_low(const struct block *b, enum lora_layer layer,
                        const void *x);
/* x[n, rank] *= alpha / rank. */
enum err block_lora_scale(const struct block *b, void *x);
/* slice = columns of rows that are shape->width wide. */
enum err block_lora_slice(const struct block *b, const struct lora_shape *shape,
                          const void *rows);
