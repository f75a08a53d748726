/* What forward keeps for backward, what is computed again, what is packed.
 *
 * Always computed again: norms' outputs, and on CPU or with experts activations
 * (memory-bound, a few per cent of a step). By choice, per transformer block
 * (activation checkpointing):
 *
 *   target           computed again in backward            kept
 *   attention        qkv, attention's output and lse       stream around it
 *   norm_attn_norm   the same (norms are anyway)           the same
 *   ffn              the hidden layer before activation    stream before it
 *   activation       the hidden layer after activation     it before that
 *   norm             nothing more
 *   block            all of it                             the block's input
 *
 * The bits of a result do not depend on it: what is computed again is computed
 * the same way. Compression changes them: a saved tensor is stored in fewer
 * bits and backward uses what comes back. int8 is for attention's output and
 * the hidden layer, the others are stored in bf16, which is what a model in
 * bf16 has anyway. Where a group of ranks shares the experts, their hidden
 * layer is computed again in every block, never packed. So with compression
 * both choices decide bits, and a run keeps them (src/train/start/start_fixed.c).
 *
 * Blocks are chosen by "all", "none", a number n (the first n), "first-n",
 * "middle-m" (starting at L/2 - m/2, integers), "last-k", "range-i-j" ([i, j)),
 * or a list of such with commas; -1 is all. Two targets must not name the same
 * block, unless nothing would be computed twice (norm overlaps with nothing).
 * LLM Foundry's activation_checkpointing_target. */
#pragma once

#include <stdint.h>

#include "kernels/kernels.h"
#include "src/base/err.h"
#include "src/model/model_config.h"

static const char *const packing_names[] = { "none", "bf16", "int8", NULL };

enum model_recompute {
    RECOMPUTE_ATTENTION = 1,
    RECOMPUTE_FFN = 2,
    RECOMPUTE_BLOCK = 4,
    RECOMPUTE_ACTIVATION = 8
};

struct model_memory {
    unsigned char recompute[MODEL_LAYERS_MAX]; /* enum model_recompute, or 0 */
    enum packing packing; /* of what is kept, where backward can take it */
};

/* From "target: blocks" pairs separated by ";" ("block: first-4; ffn: last-2"),
 * or a target alone (all blocks), or "none". ERR_USAGE says what is wrong with
 * `text`, and names overlapping targets and blocks. */
enum err model_memory_parse(const char *text, int64_t n_layers,
                            struct model_memory *out);
