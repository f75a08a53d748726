/* The op table of one kernel set. */
#include "kernels/cpu_gemm.h"

#include <stdio.h>

static void cpu_describe(char *text, size_t bytes)
{
    snprintf(text, bytes, "arithmetic %d", KERNEL_ARITHMETIC);
}

static size_t cpu_scratch_bytes(const struct kernel_limits *limits)
{
    const size_t gemm = CPU_SYMBOL(gemm_room_bytes)() * (size_t)limits->threads;
    const size_t needs[] = { gemm, CPU_SYMBOL(norm_scratch)(limits),
                             CPU_SYMBOL(attention_scratch)(limits),
                             CPU_SYMBOL(route_scratch)(limits) };
    size_t most = 0;
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++)
        most = needs[i] > most ? needs[i] : most;
    return most;
}

const struct kernels CPU_SYMBOL(table) = {
    .backend = "cpu",
    .kernel_set = CPU_TEXT(KERNEL_SET),
    .memory = &kernel_memory_cpu,
    .adds_once = true,
    .describe = cpu_describe,
    .scratch_bytes = cpu_scratch_bytes,
    .peak_flops = CPU_SYMBOL(peak_flops),
    .gemm = CPU_SYMBOL(gemm),
    .embedding_forward = CPU_SYMBOL(embedding_forward),
    .embedding_backward = CPU_SYMBOL(embedding_backward),
    .norm_forward = CPU_SYMBOL(norm_forward),
    .add_norm_forward = CPU_SYMBOL(add_norm_forward),
    .norm_backward = CPU_SYMBOL(norm_backward),
    .activation_forward = CPU_SYMBOL(activation_forward),
    .activation_backward = CPU_SYMBOL(activation_backward),
    .glu_forward = CPU_SYMBOL(glu_forward),
    .glu_backward = CPU_SYMBOL(glu_backward),
    .clip_forward = CPU_SYMBOL(clip_forward),
    .clip_backward = CPU_SYMBOL(clip_backward),
    .rope = CPU_SYMBOL(rope),
    .dropout = CPU_SYMBOL(dropout),
    .jitter = CPU_SYMBOL(jitter),
    .attention_forward = CPU_SYMBOL(attention_forward),
    .attention_backward = CPU_SYMBOL(attention_backward),
    .attention_chunk_forward = CPU_SYMBOL(attention_chunk_forward),
    .attention_chunk_backward = CPU_SYMBOL(attention_chunk_backward),
    .cross_entropy = CPU_SYMBOL(cross_entropy),
    .route_forward = CPU_SYMBOL(route_forward),
    .route_backward = CPU_SYMBOL(route_backward),
    .route_sort = CPU_SYMBOL(route_sort),
    .route_sums = CPU_SYMBOL(route_sums),
    .balance_forward = CPU_SYMBOL(balance_forward),
    .balance_backward = CPU_SYMBOL(balance_backward),
    .expert_gather = CPU_SYMBOL(expert_gather),
    .expert_combine = CPU_SYMBOL(expert_combine),
    .expert_weigh = CPU_SYMBOL(expert_weigh),
    .grouped_gemm = CPU_SYMBOL(grouped_gemm),
    .pack = CPU_SYMBOL(pack),
    .unpack = CPU_SYMBOL(unpack),
    .bias_backward = CPU_SYMBOL(bias_backward),
    .accumulate = CPU_SYMBOL(accumulate),
    .add = CPU_SYMBOL(add),
    .zero = CPU_SYMBOL(zero),
    .convert = CPU_SYMBOL(convert),
    .copy_rows = CPU_SYMBOL(copy_rows),
    .sum = CPU_SYMBOL(sum),
    .chunk_sum_squares = CPU_SYMBOL(chunk_sum_squares),
    .adamw = CPU_SYMBOL(adamw),
    .lion = CPU_SYMBOL(lion),
};
