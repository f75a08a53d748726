/* tessera-bench memory: what checkpointing and compression of activations save,
 * what they cost, and what compression does to the gradient.
 *
 * One leaf of 4 x 256 tokens, forward and backward, of mpt-125m's shapes; per
 * way "neither", "checkpoint" (every block), "bf16", "int8", and "both"
 * (checkpoint and int8):
 *
 *   *_bytes       all activations: what model_plan() says and model_create()
 *                 allocates, with workspace, logits and the ops' scratch
 *   *_ratio       those of neither / those of this way
 *   *_time        median time / that of neither
 *   *_difference  L2 norm of the difference of the whole gradient to that of
 *                 neither / that of neither
 *   activation_ratio, activation_time  of both
 *
 * The ways take turns, each time in a process of its own, after one leaf that
 * is not counted.
 *
 * tessera-bench context: memory and time of long sequences, as one leaf,
 * forward and backward: 2 layers of 128, RoPE, 4096 to 32768 tokens.
 *
 *   bytes_*, seconds_*   activations as above, and time, for each length
 *   grown_bytes_*        by how much the process grew for the model at most
 *   context_bytes_ratio  bytes for 32768 tokens / 8 / those for 4096: 1 or less
 *                        when memory is linear
 *   context_grown_ratio  the same from what processes grew
 */
#pragma once

#include <jansson.h>

#include "src/cmd/bench_step.h"

enum err bench_memory(const struct bench_options *options, json_t **result);

enum err bench_memory_context(const struct bench_options *options,
                              json_t **result);
