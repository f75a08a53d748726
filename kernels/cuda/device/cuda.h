/* What the files of the CUDA backend share, in C and in CUDA's C++.
 *
 * ctx->scratch is device memory and ctx->stream a cudaStream_t. Ops enqueue
 * kernels and return: they never wait and never allocate. The same files,
 * compiled for the processor beside an emulator (CUDA_EMULATED), make a second
 * table for tests, so every symbol says which one it belongs to. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/kernels.h"

#ifdef CUDA_EMULATED
#define CUDA_SYMBOL(name) cuda_##name##_emulated
#else
#define CUDA_SYMBOL(name) cuda_##name
#endif

/* Bytes of scratch that the op's file needs. */
size_t CUDA_SYMBOL(columns_scratch)(const struct kernel_limits *limits);
size_t CUDA_SYMBOL(norm_scratch)(const struct kernel_limits *limits);
size_t CUDA_SYMBOL(sum_scratch)(const struct kernel_limits *limits);
size_t CUDA_SYMBOL(route_scratch)(const struct kernel_limits *limits);
size_t CUDA_SYMBOL(attention_scratch)(const struct kernel_limits *limits);

/* The ops. Products are cuBLASLt's (cuda_blas.c); attention is that of our own
 * kernels, and the table's is chosen (cuda_choice.h). */
#define CUDA_DECLARE(op, parameters, ...)                                      \
    enum err CUDA_SYMBOL(op) KERNEL_PARAMETERS(parameters);
KERNEL_OPS(CUDA_DECLARE)
KERNEL_OPS_FP8(CUDA_DECLARE)

/* Products by kernels of our own, for where cuBLASLt is not, if
 * cuda_choice_allow() lets them. cuda_gemm.cu, cuda_gemm_fp8.cu. */
enum err CUDA_SYMBOL(gemm_tiled) KERNEL_LIKE(gemm);
enum err CUDA_SYMBOL(gemm_fp8_tiled) KERNEL_LIKE(gemm_fp8);

/* out[j] += the sum over `rows` of partial[row * step + j], rows in an order
 * that follows from their number. cuda_columns.cu. */
enum err CUDA_SYMBOL(columns_add)(const struct kernel_ctx *ctx, const char *op,
                                  int64_t rows, int64_t step, int64_t columns,
                                  const float *partial, float *out);

#ifdef __cplusplus
}
#endif
