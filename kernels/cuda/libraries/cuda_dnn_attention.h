/* Attention by cuDNN, in the table's layout: bf16, causal, with ALiBi and
 * grouped keys; without documents and dropout. Neither direction has atomics:
 * bits follow from shape, GPU and cuDNN's version. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "kernels/cuda/libraries/cuda_dnn_library.h"
#include "kernels/kernels.h"

/* A plan of one direction for one shape, whose heads may be cut into slices
 * that are computed one after the other, each with its keys' heads. */
struct cuda_dnn_attention;

/* Whether cuDNN is asked for such a shape at all. */
bool cuda_dnn_attention_fits(enum dtype dtype, const struct attention *shape);

/* Takes up to seconds: cuDNN compiles a kernel. `library` is borrowed. `handle`
 * and `device` as in cuda_dnn_graph_plan(). ERR_UNSUPPORTED: cuDNN has nothing
 * for it. `slices` divides kv_heads and leaves every slice's numbers 16-byte
 * aligned; more than 1 only of a single sequence. */
enum err cuda_dnn_attention_create(const struct cuda_dnn_library *library,
                                   cudnnHandle_t handle, const char *device,
                                   const struct attention *shape, bool backward,
                                   int64_t slices,
                                   struct cuda_dnn_attention **out);
void cuda_dnn_attention_destroy(struct cuda_dnn_attention *attention);

/* Bytes of ctx->scratch that it needs. Backward's grow with seq squared times
 * the heads of a slice. */
size_t cuda_dnn_attention_scratch(const struct cuda_dnn_attention *attention);

/* As the ops of the table, of the plan's shape; the handle's stream is
 * ctx->stream. */
enum err cuda_dnn_attention_forward(const struct cuda_dnn_attention *attention,
                                    cudnnHandle_t handle,
                                    const struct kernel_ctx *ctx,
                                    const struct attention *shape,
                                    const void *qkv, void *out, float *lse);
enum err cuda_dnn_attention_backward(const struct cuda_dnn_attention *attention,
                                     cudnnHandle_t handle,
                                     const struct kernel_ctx *ctx,
                                     const struct attention *shape,
                                     const void *qkv, const void *out,
                                     const float *lse, const void *dout,
                                     void *dqkv);
