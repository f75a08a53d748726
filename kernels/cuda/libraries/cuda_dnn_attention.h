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

/* How a direction goes through a batch: backward's memory grows with seq squared,
 * so it does as many sequences at a time as the scratch is for or, where not one
 * fits, one sequence in slices of its heads, each with its heads of keys. */
struct cuda_dnn_attention_cut {
    int64_t sequences; /* at a time; divides the batch */
    int64_t heads; /* ... of queries; divides heads into slices, whose number
                          divides kv_heads; fewer only where sequences is 1 */
};

/* More scratch than this is not asked for, and so much only for a slice that is
 * as small as can be. */
#define CUDA_DNN_ATTENTION_SCRATCH_MAX (((size_t)1 << 31) + ((size_t)1 << 28))

/* Whether it is a cut of the shape. */
bool cuda_dnn_attention_cut_is(const struct attention *shape,
                               struct cuda_dnn_attention_cut cut);
/* The next one with more parts; false: there is none. */
bool cuda_dnn_attention_cut_finer(const struct attention *shape,
                                  struct cuda_dnn_attention_cut *cut);
/* The fewest parts of backward that `bytes` are expected to be enough for; false:
 * not even for the parts of *cut, which are the smallest. */
bool cuda_dnn_attention_cut_of(const struct attention *shape, size_t bytes,
                               struct cuda_dnn_attention_cut *cut);
/* What one part of the largest batch takes; 0: more than there may be. */
size_t cuda_dnn_attention_cut_scratch(const struct kernel_limits *limits);

/* A plan of one direction for one shape and cut. */
struct cuda_dnn_attention;

/* Whether cuDNN is asked for such a shape at all: one of the members that it is
 * told and no others. */
bool cuda_dnn_attention_fits(enum dtype dtype, const struct attention *shape);

/* Takes up to seconds: cuDNN compiles a kernel. `library` is borrowed. `handle`,
 * `device` and `engine` as in cuda_dnn_graph_plan(). ERR_UNSUPPORTED: cuDNN has
 * nothing for it. */
enum err cuda_dnn_attention_create(const struct cuda_dnn_library *library,
                                   cudnnHandle_t handle, const char *device,
                                   const struct attention *shape, bool backward,
                                   struct cuda_dnn_attention_cut cut,
                                   char *engine,
                                   struct cuda_dnn_attention **out);
void cuda_dnn_attention_destroy(struct cuda_dnn_attention *attention);

/* Bytes of ctx->scratch that it needs. Backward's grow with seq squared times
 * the heads of a part. */
size_t cuda_dnn_attention_scratch(const struct cuda_dnn_attention *attention);

/* As the ops of the table, of the plan's shape, part by part in order; the
 * handle's stream is ctx->stream. */
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
