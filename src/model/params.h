/* The parameters of a model: names, shapes and places in flat arenas.
 *
 * Parameters are grouped in blocks: first the embeddings, then the layers, last
 * the final norm and, when it is not tied, the output layer. A layer is one
 * block; with experts each kind of their matrices is a block of its own after
 * it, so that experts can lie elsewhere than the rest of the layer. A block is
 * one contiguous arena, padded to a multiple of KERNEL_CHUNK; blocks
 * follow each other in the flat parameter space of `elements` floats, in which
 * shards are intervals. Padding is zero and stays zero. Tensors start at
 * multiples of 64 bytes. Names are those of LLM Foundry's MPT and DBRX models.
 *
 * Some of them may be frozen: then they are in a table and a space of their
 * own, with the same blocks, and what is trained, added up, exchanged and saved
 * knows nothing of them. Adapters (lora.h) are parameters of the layer whose
 * product they add to. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/model/lora.h"
#include "src/model/model_config.h"

/* Variance of a fresh model's logits with Kaiming's initialization: its loss is
 * half of it, 0.1 nats, above that of a uniform guess. */
#define PARAM_LOGIT_VARIANCE 0.2

/* What a tensor is within its block; a configuration has some of them. */
enum param_role {
    PARAM_WTE,           /* [V, d] */
    PARAM_WPE,           /* [S, d] */
    PARAM_NORM_1_WEIGHT, /* [d] */
    PARAM_NORM_1_BIAS,
    PARAM_WQKV_WEIGHT, /* [(h + 2 kv) head_dim, d] */
    PARAM_WQKV_BIAS,
    PARAM_Q_NORM_WEIGHT, /* [h head_dim] or [head_dim] */
    PARAM_Q_NORM_BIAS,
    PARAM_K_NORM_WEIGHT, /* [kv head_dim] or [head_dim] */
    PARAM_K_NORM_BIAS,
    PARAM_OUT_WEIGHT, /* [d, d] */
    PARAM_OUT_BIAS,
    PARAM_NORM_2_WEIGHT,
    PARAM_NORM_2_BIAS,
    PARAM_AFTER_1_WEIGHT, /* norms behind the branches of NORM_AROUND */
    PARAM_AFTER_1_BIAS,
    PARAM_AFTER_2_WEIGHT,
    PARAM_AFTER_2_BIAS,
    PARAM_GATE_WEIGHT, /* [f, d]; followed by UP without a gap */
    PARAM_UP_WEIGHT,   /* [f, d] */
    PARAM_GATE_BIAS,   /* [f]; followed by UP's without a gap */
    PARAM_UP_BIAS,
    PARAM_DOWN_WEIGHT, /* [d, f] */
    PARAM_DOWN_BIAS,
    PARAM_ROUTER,       /* [E, d] */
    PARAM_EXPERTS_GATE, /* [E f, d]: expert by expert */
    PARAM_EXPERTS_UP,   /* [E f, d] */
    PARAM_EXPERTS_DOWN, /* [E f, d], each expert's is transposed: [f, d] */
    PARAM_NORM_F_WEIGHT,
    PARAM_NORM_F_BIAS,
    PARAM_LM_HEAD, /* [V, d] */
    /* For each adapted layer A [rank, in], then B [out, rank] (lora.h). */
    PARAM_LORA,
    PARAM_ROLES = PARAM_LORA + 2 * LORA_LAYERS
};

static inline enum param_role param_lora_a(enum lora_layer layer)
{
    return (enum param_role)(PARAM_LORA + 2 * (int)layer);
}

static inline enum param_role param_lora_b(enum lora_layer layer)
{
    return (enum param_role)(PARAM_LORA + 2 * (int)layer + 1);
}

enum param_init {
    PARAM_INIT_NORMAL,
    PARAM_INIT_UNIFORM,
    PARAM_INIT_ZERO,
    PARAM_INIT_ONE
};

struct param {
    char name[96];
    enum param_role role;
    int dims;
    int64_t shape[2];
    int64_t numel;
    int64_t offset; /* in the flat space, elements */
    int block;
    enum param_init init;
    double init_std; /* of NORMAL; half the width of UNIFORM */
    int64_t tail;    /* elements from here on, keys and values in Wqkv, ... */
    double tail_std; /* ... have this instead */
};

/* The weight to whose product the adapter adds. */
static inline enum param_role param_lora_weight(enum lora_layer layer)
{
    static const enum param_role roles[LORA_LAYERS] = {
        [LORA_Q] = PARAM_WQKV_WEIGHT,    [LORA_K] = PARAM_WQKV_WEIGHT,
        [LORA_V] = PARAM_WQKV_WEIGHT,    [LORA_OUT] = PARAM_OUT_WEIGHT,
        [LORA_GATE] = PARAM_GATE_WEIGHT, [LORA_UP] = PARAM_UP_WEIGHT,
        [LORA_DOWN] = PARAM_DOWN_WEIGHT,
    };
    return roles[layer];
}

/* At most so many kinds of matrices do experts have. */
#define PARAM_EXPERT_KINDS 3

enum param_block_kind {
    PARAM_BLOCK_EMBEDDING,
    PARAM_BLOCK_LAYER,
    PARAM_BLOCK_EXPERTS, /* one tensor: gate, up or down of all experts */
    PARAM_BLOCK_HEAD
};

struct param_block {
    enum param_block_kind kind;
    int64_t offset;             /* in the flat space, elements */
    int64_t elements;           /* with padding */
    int64_t place[PARAM_ROLES]; /* of a tensor within the block; -1: none */
};

struct params {
    struct param *list;
    int count;
    struct param_block *blocks;
    int block_count;
    int layer_blocks; /* of a layer: 1, with experts 1 + their kinds */
    int64_t numel;    /* without padding: the published number */
    int64_t elements; /* with padding */
    /* Those that do not train: as many blocks of the same kinds, of which each
     * has what the one here lacks; NULL: there are none. Some blocks have no
     * elements then, here or there. */
    struct params *frozen;
    int64_t lora_rank; /* of adapters; 0: there are none */
};

/* What of a model trains. Globs are those of globs.h. */
struct params_tuning {
    const char *freeze;  /* of names of parameters; "": none, or with adapters
                            all but these; adapters train in any case */
    const char *targets; /* of linear layers that get adapters (lora.h) */
    int64_t rank;        /* of adapters; 0: none */
};

/* A matrix that is multiplied with, not a table of positions: its gradient is
 * a product. */
static inline bool param_multiplies(const struct param *param)
{
    return param->dims == 2 && param->role != PARAM_WPE;
}

/* The table only: no element is allocated. */
enum err params_create(const struct model_config *config, struct params **out);
/* The same with what does not train apart. ERR_USAGE: a glob matches nothing,
 * or an expert's matrix alone; nothing is left to train; of gate and up, which
 * are one product, one trains and the other does not; positions do and tokens
 * do not. */
enum err params_create_tuned(const struct model_config *config,
                             const struct params_tuning *tuning,
                             struct params **out);
void params_destroy(struct params *params);

/* For params.c alone: whether a parameter, of which name and role are known, is
 * frozen (tuning NULL: nothing is); before the table is made, what does not
 * depend on it; after it, whether each glob has matched, something trains, and
 * what goes together is together. */
bool params_tuning_freezes(const struct params_tuning *tuning,
                           const struct param *param);
enum err params_tuning_check(const struct model_config *config,
                             const struct params_tuning *tuning);
enum err params_tuning_fits(const struct params_tuning *tuning,
                            const struct params *params);

/* The first block of a layer, counted from 0; the experts' follow. */
static inline int params_layer_block(const struct params *params, int layer)
{
    return 1 + layer * params->layer_blocks;
}

/* The layer that a block belongs to, neither the first block nor the last. */
static inline int params_layer(const struct params *params, int block)
{
    return (block - 1) / params->layer_blocks;
}

/* Whether something of the block trains. The model does not ask for the others,
 * nor goes backward below the lowest that does. */
static inline bool params_trains(const struct params *params, int block)
{
    return params->blocks[block].elements > 0;
}

/* The lowest block that trains. */
static inline int params_lowest(const struct params *params)
{
    int block = 0;
    while (!params_trains(params, block))
        block++;
    return block;
}

/* The lowest layer that backward goes through; as many as there are: none. */
static inline int params_lowest_layer(const struct params *params)
{
    int lowest = params_lowest(params);
    return lowest > 0 ? params_layer(params, lowest) : 0;
}

/* Whether the head multiplies by the embedding, and this trains. */
static inline bool params_tied(const struct params *params)
{
    const struct params *frozen = params->frozen;
    int last = params->block_count - 1;
    return params->blocks[0].place[PARAM_WTE] >= 0 &&
           params->blocks[last].place[PARAM_LM_HEAD] < 0 &&
           (frozen == NULL || frozen->blocks[last].place[PARAM_LM_HEAD] < 0);
}

/* Elements [begin, end) of the flat space as a fresh run has them: matrices by
 * config->init, but for what PARAM_LOGIT_VARIANCE says, biases 0, norms 1. A
 * function of (seed, name, element), so that every rank can fill its own
 * interval. `data` points at `begin`. */
void params_init(const struct params *params, uint64_t seed, int64_t begin,
                 int64_t end, float *data);

/* How a model reaches its parameters and gradients; who implements it decides
 * what is resident where (src/parallel). Calls are per block.
 *
 * Where a group of D > 1 ranks shares the experts, a block of kind
 * PARAM_BLOCK_EXPERTS has only those of this rank, [experts / D ffn_width, d],
 * and its gradient is D such tensors one after the other, of zeros at first: to
 * number s is added what comes from the leaf of the group's place s. */
struct param_access {
    void *arg;
    /* Weights of the block, of the type that the model computes in, valid until
     * the matching release. */
    enum err (*gather)(void *arg, int block, const void **weights);
    enum err (*release)(void *arg, int block);
    /* What is frozen of the block, of the same type, as it lies in params'
     * frozen table; valid as long as the access is. NULL: nothing is frozen. */
    enum err (*frozen)(void *arg, int block, const void **weights);
    /* Where the block's gradients are accumulated: those of this rank's leaves
     * (model.h: of its chunks) one after the other, each of the block's
     * `elements`. */
    enum err (*gradient)(void *arg, int block, float **gradient);
    /* Asked before `gradient`: if this leaf adds to each element of the block's
     * gradient once, a finished sum, may it be to those of former leaves?
     * false, or NULL: `gradient` answers what it would. */
    bool (*once)(void *arg, int block);
    /* Asked before `gradient`: if this leaf fills each matrix of the block by
     * products of which one begins it (struct gemm), may the matrices hold
     * anything? Then they do; all else is zero as ever. false, or NULL: they
     * hold what they must be added to. */
    bool (*begins)(void *arg, int block);
    /* Nothing more is added to the block's gradients. */
    enum err (*gradient_done)(void *arg, int block);
    /* The host waits for an event on the model's stream, which may wait for
     * other ranks before it: ERR_COMM names those that don't come in time.
     * NULL: there is nobody to wait for. */
    enum err (*reach)(void *arg, void *event);
    /* The model enters a block: the host waits until it is not too far ahead of
     * the device, as `reach` does. Not while calls are kept (`fixed`). NULL: it
     * may be. */
    enum err (*pace)(void *arg);
    /* A number that decides, with the block of each call, what the calls of the
     * leaf at hand answer and enqueue. A later leaf with the same number may do
     * without the calls if what they have enqueued is done once more
     * (model_graph.c), and a leaf's calls may be made again from the first on.
     * NULL: there is no such number, for exchanges happen. */
    int64_t (*fixed)(void *arg);
};
