/* FLOPs of matrix products, a multiply-add being two.
 *
 * Linear layers and the head: 6 per weight and token (forward, gradient of the
 * input, gradient of the weights). Weights of one token: L (d (d + 2 d_kv) + d
 * d
 * + w d f) + V d, where w is 2, 3 with a gated MLP; with experts w d f top_k +
 * d experts instead. Attention: the causal half, T (T + 1) / 2 pairs of query
 * and key of each sequence and head, 2 head_dim FLOPs each: two products
 * forward (scores, values), five backward (the scores again, and the gradients
 * of probabilities, values, queries and keys). */
#pragma once

#include "kernels/kernel_shapes.h"
#include "tests/bench/bench_model.h"

/* FLOPs of one optimizer step on the kind's batch. */
double bench_flops_step(const struct bench_model_kind *kind);

/* FLOPs of causal attention on the whole batch. */
double bench_flops_attention_forward(const struct attention *shape);
double bench_flops_attention_backward(const struct attention *shape);
