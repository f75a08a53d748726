/* Graphs of operations for cuDNN, of which it makes one kernel: what attention
 * needs of its backend interface. Tensors have four dimensions and are named by
 * numbers; those with an id lie in memory that is given when the graph runs,
 * the others exist within the kernel only. The first failure is kept: what is
 * added after it does nothing, and cuda_dnn_graph_plan() returns it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/libraries/cuda_dnn_library.h"

struct cuda_dnn_graph;

/* `library` is borrowed. */
enum err cuda_dnn_graph_create(const struct cuda_dnn_library *library,
                               struct cuda_dnn_graph **out);
void cuda_dnn_graph_destroy(struct cuda_dnn_graph *graph);

/* Dimensions and strides, both in elements. */
struct cuda_dnn_shape {
    int64_t dims[4];
    int64_t strides[4];
};

/* Without holes, the last dimension contiguous. */
struct cuda_dnn_shape cuda_dnn_packed(int64_t a, int64_t b, int64_t c,
                                      int64_t d);

/* id > 0: in memory, 16-byte aligned, fp32 4-byte aligned; 0: not. */
int cuda_dnn_tensor(struct cuda_dnn_graph *graph, cudnnDataType_t type,
                    const struct cuda_dnn_shape *shape, int64_t id);
/* An fp32 number in the host's memory. */
int cuda_dnn_scalar(struct cuda_dnn_graph *graph, int64_t id);

/* y = x op b elementwise, dimensions of 1 are repeated; b < 0: of one operand.
 * GEN_INDEX gives each element's place along `axis` of x. */
void cuda_dnn_pointwise(struct cuda_dnn_graph *graph, cudnnPointwiseMode_t mode,
                        int x, int b, int y);
void cuda_dnn_index(struct cuda_dnn_graph *graph, int axis, int x, int y);
/* y = t ? x : b. */
void cuda_dnn_select(struct cuda_dnn_graph *graph, int x, int b, int t, int y);
/* Over the dimensions that y has only 1 of. */
void cuda_dnn_reduce(struct cuda_dnn_graph *graph, cudnnReduceTensorOp_t op,
                     int x, int y);
/* c[.., m, n] = a[.., m, k] b[.., k, n], fp32 sums. */
void cuda_dnn_matmul(struct cuda_dnn_graph *graph, int a, int b, int c);
/* The same elements in y's dimensions, which are x's transposed. */
void cuda_dnn_transpose(struct cuda_dnn_graph *graph, int x, int y);

/* Which engine of cuDNN computes, and its settings: "8:1=2:27=0". */
#define CUDA_DNN_ENGINE_BYTES 256
#define CUDA_DNN_ENGINE_ANY "any"

/* After the last operation: the first of cuDNN's proposals that works is taken
 * where `engine` is CUDA_DNN_ENGINE_ANY and becomes its name, else the one that
 * it names; for the handle's GPU or, where `device` is given, for one that is
 * described in cuDNN's JSON. ERR_UNSUPPORTED: cuDNN has no such engine for it. */
enum err cuda_dnn_graph_plan(struct cuda_dnn_graph *graph, cudnnHandle_t handle,
                             const char *device, char *engine);
/* Bytes that a run needs besides. */
size_t cuda_dnn_graph_workspace(const struct cuda_dnn_graph *graph);

/* Enqueues it on the handle's stream; pointers[i] is the memory of ids[i]. */
enum err cuda_dnn_graph_run(const struct cuda_dnn_graph *graph,
                            cudnnHandle_t handle, int count, const int64_t *ids,
                            void *const *pointers, void *workspace);
