/* Model FLOPs of one sequence of `seq_len` tokens, forward and backward, of a
 * model of which not all trains: what model_config.h counts, by its two
 * conventions, without what such a model does not compute, and with its
 * adapters.
 *
 * A matrix has three products: forward, its input's gradient and its own. Those
 * that are frozen lack the last one; below the lowest block that trains there
 * is only forward, of attention too. The embedding, where it is the output
 * layer, is multiplied above all layers. Adapters (lora.h) have all three, of
 * each of their matrices. Where all trains it is the same number, to the
 * bit. */
#pragma once

#include <stdint.h>

#include "src/model/model_config.h"
#include "src/model/params.h"

/* The basis of `mfu`, and of `mfu_causal`. */
double model_flops_per_sequence(const struct model_config *config,
                                const struct params *params, int64_t seq_len);
double model_flops_per_sequence_causal(const struct model_config *config,
                                       const struct params *params,
                                       int64_t seq_len);
