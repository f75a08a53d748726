/* What a transformer block computes, forward, where training (model_*.c) and
 * inference (src/infer) do the same: its linear layers, norms, activations and
 * positions. Each has memory of its own between them. */
#pragma once

#include "kernels/kernels.h"
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
    LINEAR_ROUTER = LINEARS_FP8
};

struct block_linear {
    enum param_role weight, bias; /* PARAM_ROLES: it never has one */
    int64_t out, in;
    int lora, lora_end; /* of enum lora_layer: adapters that can belong to it */
};
struct block_linear block_linear(const struct model_config *config,
                                 enum linear linear);

/* The norms of the stream; those of the queries, or of the keys, inside packed
 * qkv. */
struct norm block_norm(const struct model_config *config, int64_t rows);
struct norm block_heads_norm(const struct model_config *config, int64_t rows,
                             int64_t heads);

/* Where ups begin in the hidden layer: beside each row's gates, or, `apart`,
 * behind those of all rows; where it begins itself if there are no gates. */
void *block_up(const struct model_config *config, enum dtype dtype,
               int64_t rows, bool apart, const void *hidden);
/* act[rows, f] of the hidden layer. */
enum err block_activate(const struct model_config *config,
                        const struct kernels *kernels,
                        const struct kernel_ctx *ctx, enum dtype dtype,
                        int64_t rows, bool apart, const void *hidden,
                        void *act);

/* The table of rotary positions [0, count), or ALiBi's slopes, where it is not
 * NULL, to a device. Waits. */
enum err block_positions(const struct model_config *config,
                         const struct kernels *kernels, void *stream,
                         int64_t count, float *rope, float *slopes);
