/* Adapters of low rank (LoRA, Hu et al. 2021): beside the product of a linear
 * layer y = x W^T + b, whose W need not train,
 *
 *     y += (alpha / rank) dropout(x) A^T B^T,  A [rank, in], B [out, rank].
 *
 * Fresh A is uniform within 1 / sqrt(in), as PEFT's, and B is zero, so that a
 * model begins as its base. Each adapter draws a dropout of its own. Queries,
 * keys and values are one product (Wqkv), and so are gate and up: there each
 * has an adapter of its own, which adds to its columns. Experts and the router
 * have none.
 *
 * A layer's name is its parameter's without what Wqkv is a part of:
 * "transformer.blocks.0.attn.q_proj". Globs are matched against that and
 * against its last part, where out_proj is also called o_proj; so PEFT's
 * target_modules can be given as they are. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/model/model_config.h"

enum lora_layer {
    LORA_Q,
    LORA_K,
    LORA_V,
    LORA_OUT,
    LORA_GATE,
    LORA_UP,
    LORA_DOWN,
    LORA_LAYERS
};

/* What a model knows of its adapters besides their tensors. */
struct lora_options {
    int64_t rank; /* 0: there are none */
    double alpha, dropout;
    const char *targets;
};

/* A linear layer in a block. */
struct lora_shape {
    const char *name; /* within the block: "attn.q_proj" */
    int64_t in, out;
    int64_t at, width; /* its columns in the product that it is a part of */
};

/* false: the model has no such layer, or it is the experts'. */
bool lora_shape(const struct model_config *config, enum lora_layer layer,
                struct lora_shape *out);

/* Whether the layer of this block gets an adapter. */
bool lora_is_target(const char *targets, int block, enum lora_layer layer);

/* Whether each glob has a layer; ERR_USAGE names the one that has not and the
 * layers that there are. */
enum err lora_check(const struct model_config *config, const char *targets);
