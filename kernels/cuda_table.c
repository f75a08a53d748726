/* The op table of the CUDA backend. */
#include "kernels/cuda.h"

#include <stdio.h>

#ifndef CUDA_EMULATED
#include "kernels/cuda_blas.h"
#include "kernels/cuda_choice.h"
#include "kernels/cuda_device.h"
#include "kernels/cuda_memory.h"
#endif

#ifdef CUDA_EMULATED
#define TABLE cuda_table_emulated
#define KERNEL_SET "emulated"
#define GEMM cuda_gemm_tiled_emulated
#define GEMM_FP8 cuda_gemm_fp8_tiled_emulated
#define ATTENTION(way) cuda_attention_##way##_emulated
#define MEMORY cuda_emulator_memory
extern const struct kernel_memory cuda_emulator_memory;
#else
#define TABLE cuda_table
#define KERNEL_SET "sm_80+sm_90a"
#define GEMM cuda_gemm
#define GEMM_FP8 cuda_gemm_fp8
#define ATTENTION(way) cuda_choice_attention_##way
#define MEMORY cuda_memory
#endif

static void cuda_describe(char *text, size_t bytes)
{
#ifdef CUDA_EMULATED
    snprintf(text, bytes, "CUDA kernels emulated on the processor");
#else
    struct cuda_device_info info;
    char device[128];
    struct cuda_blas *blas = cuda_blas_shared();
    if (cuda_device_info(&info) == ERR_OK)
        cuda_device_describe(&info, device, sizeof device);
    else
        snprintf(device, sizeof device, "no GPU");
    snprintf(text, bytes, "CUDA kernels, %s, cuBLASLt %zu, cuDNN %zu", device,
             blas == NULL ? 0 : cuda_blas_version(blas),
             cuda_choice_dnn_version());
#endif
}

static size_t cuda_scratch_bytes(const struct kernel_limits *limits)
{
    const size_t needs[] = {
        CUDA_SYMBOL(columns_scratch)(limits),
        CUDA_SYMBOL(norm_scratch)(limits),
        CUDA_SYMBOL(sum_scratch)(limits),
        CUDA_SYMBOL(route_scratch)(limits),
        CUDA_SYMBOL(attention_scratch)(limits),
#ifndef CUDA_EMULATED
        CUDA_BLAS_WORKSPACE,
        cuda_choice_scratch(limits),
#endif
    };
    size_t most = 0;
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++)
        most = needs[i] > most ? needs[i] : most;
    return most;
}

#ifndef CUDA_EMULATED
static double cuda_peak_flops(const struct kernel_ctx *ctx, enum dtype dtype,
                              bool fp8, const char **source)
{
    struct cuda_device_info info;
    (void)ctx;
    if (cuda_device_info(&info) != ERR_OK)
        return 0.0;
    return cuda_device_peak_flops(&info, dtype == DTYPE_F32, fp8, source);
}
#endif

const struct kernels TABLE = {
    .backend = "cuda",
    .kernel_set = KERNEL_SET,
    .memory = &MEMORY,
    .describe = cuda_describe,
    .scratch_bytes = cuda_scratch_bytes,
#ifndef CUDA_EMULATED
    .peak_flops = cuda_peak_flops,
    .measure = cuda_choice_measure,
    .choices = cuda_choice_write,
    .choose = cuda_choice_read,
    .allow_fallback = cuda_choice_allow,
    .chosen = cuda_choice_chosen,
#endif
    .gemm = GEMM,
    .quantize = CUDA_SYMBOL(quantize),
    .gemm_fp8 = GEMM_FP8,
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
    .attention_forward = ATTENTION(forward),
    .attention_backward = ATTENTION(backward),
    .attention_chunk_forward = CUDA_SYMBOL(attention_chunk_forward),
    .attention_chunk_backward = CUDA_SYMBOL(attention_chunk_backward),
    .cross_entropy = CUDA_SYMBOL(cross_entropy),
    .route_forward = CUDA_SYMBOL(route_forward),
    .route_backward = CUDA_SYMBOL(route_backward),
    .route_sort = CUDA_SYMBOL(route_sort),
    .route_sums = CUDA_SYMBOL(route_sums),
    .balance_forward = CUDA_SYMBOL(balance_forward),
    .balance_backward = CUDA_SYMBOL(balance_backward),
    .expert_gather = CUDA_SYMBOL(expert_gather),
    .expert_combine = CUDA_SYMBOL(expert_combine),
    .expert_weigh = CUDA_SYMBOL(expert_weigh),
    .grouped_gemm = CUDA_SYMBOL(grouped_gemm),
    .pack = CUDA_SYMBOL(pack),
    .unpack = CUDA_SYMBOL(unpack),
    .bias_backward = CUDA_SYMBOL(bias_backward),
    .accumulate = CUDA_SYMBOL(accumulate),
    .add = CUDA_SYMBOL(add),
    .zero = CUDA_SYMBOL(zero),
    .convert = CUDA_SYMBOL(convert),
    .copy_rows = CUDA_SYMBOL(copy_rows),
    .sum = CUDA_SYMBOL(sum),
    .chunk_sum_squares = CUDA_SYMBOL(chunk_sum_squares),
    .adamw = CUDA_SYMBOL(adamw),
    .lion = CUDA_SYMBOL(lion),
};
