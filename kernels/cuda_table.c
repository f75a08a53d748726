/* The op table of the CUDA backend. */
#include "kernels/cuda.h"

#include <stdio.h>
#ifndef CUDA_EMULATED
#include <cuda_runtime_api.h>
#endif

#ifdef CUDA_EMULATED
#define TABLE cuda_table_emulated
#define KERNEL_SET "emulated"
#define DESCRIPTION "CUDA kernels emulated on the processor"
#else
#define TABLE cuda_table
#define KERNEL_SET "sm_80+sm_90a"
#define DESCRIPTION "CUDA kernels, fp32 and bf16"
#endif

#ifndef CUDA_EMULATED
/* The first device counts: a rank sees its own one only. */
enum err cuda_device_check(void)
{
    int count = 0, major = 0, minor = 0;
    cudaError_t code = cudaGetDeviceCount(&count);
    if (code == cudaSuccess && count == 0)
        code = cudaErrorNoDevice;
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor,
                                      0);
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor,
                                      0);
    if (code != cudaSuccess)
        return err_set(ERR_UNSUPPORTED,
                       "backend 'cuda': no GPU here: %s; use cpu",
                       cudaGetErrorString(code));
    if (major != 8 && (major != 9 || minor != 0))
        return err_set(ERR_UNSUPPORTED,
                       "backend 'cuda': the GPU has compute capability %d.%d, "
                       "the kernels are for 8.x and 9.0; use cpu",
                       major, minor);
    return ERR_OK;
}
#endif

static enum err lacks(const char *op)
{
    return err_set(ERR_UNSUPPORTED,
                   "op %s: this build's CUDA backend lacks it; use cpu", op);
}

static enum err lacks_gemm(const struct kernel_ctx *ctx, enum dtype dtype,
                           const struct gemm *gemm)
{
    (void)ctx;
    (void)dtype;
    (void)gemm;
    return lacks("gemm");
}

static enum err lacks_grouped_gemm(const struct kernel_ctx *ctx,
                                   enum dtype dtype,
                                   const struct grouped_gemm *gemm)
{
    (void)ctx;
    (void)dtype;
    (void)gemm;
    return lacks("grouped_gemm");
}

static void cuda_describe(char *text, size_t bytes)
{
    snprintf(text, bytes, "%s", DESCRIPTION);
}

static size_t cuda_scratch_bytes(const struct kernel_limits *limits)
{
    const size_t needs[] = { CUDA_SYMBOL(columns_scratch)(limits),
                             CUDA_SYMBOL(norm_scratch)(limits),
                             CUDA_SYMBOL(sum_scratch)(limits),
                             CUDA_SYMBOL(route_scratch)(limits),
                             CUDA_SYMBOL(attention_scratch)(limits) };
    size_t most = 0;
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++)
        most = needs[i] > most ? needs[i] : most;
    return most;
}

const struct kernels TABLE = {
    .backend = "cuda",
    .kernel_set = KERNEL_SET,
    .describe = cuda_describe,
    .scratch_bytes = cuda_scratch_bytes,
    .gemm = lacks_gemm,
    .embedding_forward = CUDA_SYMBOL(embedding_forward),
    .embedding_backward = CUDA_SYMBOL(embedding_backward),
    .norm_forward = CUDA_SYMBOL(norm_forward),
    .add_norm_forward = CUDA_SYMBOL(add_norm_forward),
    .norm_backward = CUDA_SYMBOL(norm_backward),
    .activation_forward = CUDA_SYMBOL(activation_forward),
    .activation_backward = CUDA_SYMBOL(activation_backward),
    .glu_forward = CUDA_SYMBOL(glu_forward),
    .glu_backward = CUDA_SYMBOL(glu_backward),
    .clip_forward = CUDA_SYMBOL(clip_forward),
    .clip_backward = CUDA_SYMBOL(clip_backward),
    .rope = CUDA_SYMBOL(rope),
    .dropout = CUDA_SYMBOL(dropout),
    .jitter = CUDA_SYMBOL(jitter),
    .attention_forward = CUDA_SYMBOL(attention_forward),
    .attention_backward = CUDA_SYMBOL(attention_backward),
    .cross_entropy = CUDA_SYMBOL(cross_entropy),
    .route_forward = CUDA_SYMBOL(route_forward),
    .route_backward = CUDA_SYMBOL(route_backward),
    .route_sort = CUDA_SYMBOL(route_sort),
    .route_sums = CUDA_SYMBOL(route_sums),
    .expert_gather = CUDA_SYMBOL(expert_gather),
    .expert_combine = CUDA_SYMBOL(expert_combine),
    .expert_weigh = CUDA_SYMBOL(expert_weigh),
    .grouped_gemm = lacks_grouped_gemm,
    .pack = CUDA_SYMBOL(pack),
    .unpack = CUDA_SYMBOL(unpack),
    .bias_backward = CUDA_SYMBOL(bias_backward),
    .accumulate = CUDA_SYMBOL(accumulate),
    .add = CUDA_SYMBOL(add),
    .zero = CUDA_SYMBOL(zero),
    .sum = CUDA_SYMBOL(sum),
    .chunk_sum_squares = CUDA_SYMBOL(chunk_sum_squares),
    .adamw = CUDA_SYMBOL(adamw),
};
