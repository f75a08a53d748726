/* Attention by cuDNN, in the table's layout: bf16, causal, with ALiBi and
 * grouped keys; without documents and dropout. Neither direction has atomics:
 * bits follow from shape, GPU and cuDNN's version. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "kernels/cuda/libraries/cuda_dnn_library.h"
#include "kernels/kernels.h"

/* Members that cuDNN is not told are compared, too: whoever sets one is not
 * served by it. */
bool cuda_dnn_attention_same(const struct attention *a,
                             const struct attention *b);

/* How backward goes through a batch: what it takes grows with seq squared, so it
 * does as many sequences at a time as the scratch is for or, where not one fits,
 * one sequence in slices of its heads. */

/* More scratch than this is not asked for. */
#define CUDA_DNN_ATTENTION_SCRATCH_MAX ((size_t)1 << 30)

struct cuda_dnn_attention_cut {
    int64_t sequences; /* at a time; divides the batch */
    int64_t slices;    /* of a sequence's heads, more than 1 only where
                          sequences is 1; divides kv_heads; 0: none fits */
};

/* Every part's numbers begin at a multiple of 16 bytes, as plans are told. */
struct cuda_dnn_attention_cut
cuda_dnn_attention_cut_of(const struct attention *shape);

/* Bytes for any batch within the limits, 0 where nothing fits. */
size_t cuda_dnn_attention_cut_scratch(const struct kernel_limits *limits);

/* A plan of one direction for one shape, whose heads may be cut into slices
 * that are computed one after the other, each with its keys' heads. */
struct cuda_dnn_attention;

/* Whether cuDNN is asked for such a shape at all: one of the members that it is
 * told and no others. */
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
