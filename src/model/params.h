/* The parameters of a model: names, shapes and places in flat arenas.
 *
 * Parameters are grouped in blocks: 0 the embeddings, 1..L the transformer
 * blocks, L+1 the final norm. A block is one contiguous arena, padded to a
 * multiple of KERNEL_CHUNK; blocks follow each other in the flat parameter
 * space of `elements` floats, in which shards are intervals. Padding is zero
 * and stays zero. Tensors start at multiples of 64 bytes. Names are those of
 * the Hugging Face MPT model. */
#ifndef TESSERA_MODEL_PARAMS_H
#define TESSERA_MODEL_PARAMS_H

#include <stdint.h>

#include "src/base/err.h"
#include "src/model/model_config.h"

enum param_init { PARAM_INIT_NORMAL, PARAM_INIT_ZERO, PARAM_INIT_ONE };

struct param {
    char name[96];
    int dims;
    int64_t shape[2];
    int64_t numel;
    int64_t offset; /* in the flat space, elements */
    int block;
    enum param_init init;
    double init_std; /* of PARAM_INIT_NORMAL */
};

struct param_block {
    int64_t offset;   /* in the flat space, elements */
    int64_t elements; /* with padding */
};

struct params {
    struct param *list;
    int count;
    struct param_block *blocks;
    int block_count;
    int64_t numel;    /* without padding: the published number */
    int64_t elements; /* with padding */
};

enum err params_create(const struct model_config *config, struct params **out);
void params_destroy(struct params *params);

/* Elements [begin, end) of the flat space as a fresh run has them:
 * kaiming-normal (fan in, ReLU gain), projections into the residual stream
 * divided by sqrt(2 L), biases 0, norms 1. A function of (seed, name, element),
 * so that every rank can fill its own interval. `data` points at `begin`. */
void params_init(const struct params *params, uint64_t seed, int64_t begin,
                 int64_t end, float *data);

/* How a model reaches its parameters and gradients; who implements it decides
 * what is resident where (src/parallel). Calls are per block. */
struct param_access {
    void *arg;
    /* Weights of the block, valid until the matching release. */
    enum err (*gather)(void *arg, int block, const float **weights);
    enum err (*release)(void *arg, int block);
    /* Where the block's gradient is accumulated. */
    enum err (*gradient)(void *arg, int block, float **gradient);
    /* This leaf adds nothing more to the block's gradient. */
    enum err (*gradient_done)(void *arg, int block);
};

#endif
