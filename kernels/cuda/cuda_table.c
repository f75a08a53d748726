/* The op table of the CUDA backend. The tables of the processor are
 * cpu_table.c. */
#include "kernels/cuda/device/cuda.h"

#include <stdio.h>

#include "kernels/kernel_profile.h"

#ifndef CUDA_EMULATED
#include "kernels/cuda/libraries/cuda_blas.h"
#include "kernels/cuda/libraries/cuda_choice.h"
#include "kernels/cuda/device/cuda_device.h"
#endif

#ifdef CUDA_EMULATED
#define TABLE cuda_table_emulated
#define KERNEL_SET "emulated"
/* There are no libraries, so products are the own kernels'. */
#define cuda_gemm_emulated cuda_gemm_tiled_emulated
#define cuda_gemm_fp8_emulated cuda_gemm_fp8_tiled_emulated
#define MEMORY cuda_emulator_memory
extern const struct kernel_memory cuda_emulator_memory;
#else
#define TABLE cuda_table
#define KERNEL_SET CUDA_ARCHS /* of the Makefile, "sm_80+sm_90a" */
/* The own kernels' attention or cuDNN's. */
#define cuda_attention_forward cuda_choice_attention_forward
#define cuda_attention_backward cuda_choice_attention_backward
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

#define TOLD(op) told_##op
#define TOLD_OP(op, parameters, arguments, ...)                                \
    KERNEL_PROFILE_OP(CUDA_SYMBOL, TOLD, op, parameters, arguments)
KERNEL_OPS(TOLD_OP)
KERNEL_OPS_FP8(TOLD_OP)

#ifdef CUDA_EMULATED
#define TABLE_CHOICES
#else
#define TABLE_CHOICES                                                          \
    .peak_flops = cuda_peak_flops, .measure = cuda_choice_measure,             \
    .choices = cuda_choice_write, .choose = cuda_choice_read,                  \
    .attention_scratch = cuda_choice_attention_scratch,                        \
    .allow_fallback = cuda_choice_allow, .chosen = cuda_choice_chosen,
#endif
#define TABLE_COMMON                                                           \
    TABLE_CHOICES.backend = "cuda", .kernel_set = KERNEL_SET,                  \
    .memory = &MEMORY, .describe = cuda_describe,                              \
    .scratch_bytes = cuda_scratch_bytes, .profiled = &table_profiled
#define TABLE_ENTRY(op, ...) .op = CUDA_SYMBOL(op),
#define TOLD_ENTRY(op, ...) .op = TOLD(op),

static const struct kernels table_profiled = {
    TABLE_COMMON,
    /* clang-format off */
    KERNEL_OPS(TOLD_ENTRY)
    KERNEL_OPS_FP8(TOLD_ENTRY)
    /* clang-format on */
};

const struct kernels TABLE = {
    TABLE_COMMON,
    /* clang-format off */
    KERNEL_OPS(TABLE_ENTRY)
    KERNEL_OPS_FP8(TABLE_ENTRY)
    /* clang-format on */
};
