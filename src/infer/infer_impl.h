/* Shared by the engine's own files only: what lies where, and the parts of a
 * pass of some rows through the model. */
#pragma once

#include "src/base/arena.h"
#include "src/infer/infer.h"
#include "src/model/block.h"
#include "src/model/block_embed.h"
#include "src/model/block_tables.h"

/* Rows that have their logits at a time. */
#define INFER_LOGIT_ROWS 128

/* Tensors that a pass of at most R = options.rows rows works in, besides those
 * of a block. */
struct infer_work {
    int32_t *tokens, *positions, *slots; /* [R] */
    int32_t *wanted;                     /* [R] rows whose logits are wanted */
    float *rotation, *rotation_apart; /* [R, head_dim] of the rows' positions */
    struct routing routing;
    /* the head's, of L = infer_logit_rows() rows */
    float *logits;   /* [L, V] */
    float *losses;   /* [L] */
    int32_t *labels; /* [L] */
};

/* The same for the host: where ops cannot read what the host writes, copies go
 * from and to here; on CPU it is the tensors themselves. */
struct infer_host {
    int32_t *tokens, *positions, *slots, *wanted, *labels;
    float *logits, *losses;
};

/* A block between enter and leave, as fp32: NULL where it has no such part. */
struct infer_lent {
    const float *trains, *frozen;
};

/* A parameter in the form in which it is held: panels, or as it is. */
struct infer_held {
    struct panels shape; /* of a matrix */
    size_t at;           /* in the arena */
    int64_t elements;    /* copied as they are; 0: a matrix in panels */
    bool there;
};

/* Where what is wanted of a row goes: which of the wanted ones of a slot's. */
struct infer_target {
    const struct infer_tokens *tokens;
    int64_t at;
};

struct infer {
    struct model_config config;
    struct infer_options options;
    const struct params *params;
    const struct kernels *kernels;
    struct kernel_ctx ctx;
    int64_t head_dim, qkv_width, hidden_width;
    int64_t capacity;     /* positions of a slot, whole vectors of keys */
    int64_t cache_floats; /* of all keys, and of all values */
    struct arena tensors, host_memory;
    struct infer_work work;
    struct block b; /* what all rows of a pass go through, in fp32 */
    struct infer_host host;
    struct block_tables tables; /* of `capacity` positions */
    float *keys, *values;       /* [n_layers] caches of all slots */
    int64_t *length;            /* [sequences] tokens that a slot holds */
    bool *busy;                 /* [sequences] has tokens in the call at hand */
    struct infer_held *held;    /* [block_count, PARAM_ROLES]; NULL: not held */
    struct arena weights;       /* what is held */
    struct arena widened;       /* blocks that were lent in bf16, as fp32 */
    /* the call at hand */
    const struct param_access *access;
    struct infer_lent *lent; /* [block_count] */
    char *experts;           /* all of a layer's, of which parts are lent */
    struct infer_target *targets; /* [R] of its wanted rows */
};

/* The options of a model that the engine computes, or that decide nothing here
 * (model_config.h). */
extern const char infer_known[];

/* Rows of the logits' buffer. */
int64_t infer_logit_rows(const struct infer *infer);

/* The places of all parameters; counts in `arena` if it has no memory. */
void infer_hold_layout(const struct infer *infer, enum infer_weights weights,
                       struct infer_held *held, struct arena *arena);

/* What infer_hold() has taken; after a failure, too. */
void infer_hold_drop(struct infer *infer);

/* Gathers blocks [first, first + count) unless weights are held; `leave`
 * releases them. Nothing is asked of a block that has none. What was lent in bf16
 * is widened to fp32 from element `at` of a buffer on, what trains of a block
 * before what is frozen. */
enum err infer_enter(struct infer *infer, int first, int count, int64_t at);
enum err infer_leave(struct infer *infer, int first, int count);
/* Elements of a block, of both kinds. */
int64_t infer_block_elements(const struct infer *infer, int block);
/* A parameter of a block that was entered; NULL: the model has none. */
const float *infer_lent(const struct infer *infer, int block,
                        enum param_role role);
/* A vector of a block that was entered; NULL: the model has none. */
const float *infer_vector(const struct infer *infer, int block,
                          enum param_role role);
/* y[rows, out] = x[rows, in] W^T + bias, of any matrix. */
enum err infer_product(struct infer *infer, int block, enum param_role role,
                       int64_t rows, int64_t out, int64_t in, const float *x,
                       const float *bias, float *y);
/* Room for the experts of a layer of which ranks have parts; none where all are
 * lent. */
void infer_experts_layout(struct infer *infer, struct arena *arena);
/* What a block asks of who walks it (block.h). */
extern const struct block_walker infer_walker;
/* out[count, d]: rows of the token embedding. */
enum err infer_embedding(struct infer *infer, int64_t count,
                         const int32_t *rows, float *out);

/* An op of fewer elements has one thread: waking another takes longer. */
#define INFER_SMALL 16384
static inline struct kernel_ctx infer_ctx(const struct infer *infer,
                                          int64_t elements)
{
    struct kernel_ctx ctx = infer->ctx;
    if (elements < INFER_SMALL)
        ctx.threads = 1;
    return ctx;
}
