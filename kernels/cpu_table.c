/* The op table of one kernel set. */
#include "kernels/cpu.h"

#include <cblas.h>
#include <stdio.h>
#include <string.h>

/* OpenBLAS chooses its kernels by the processor, whatever our kernel set is:
 * its version and that choice decide bits. Its configuration text starts with
 * "OpenBLAS <version> ". */
static void cpu_describe(char *text, size_t bytes)
{
    const char *config = openblas_get_config();
    size_t name = strcspn(config, " ");
    size_t version = name + (config[name] == ' ');
    version += strcspn(config + version, " ");
    snprintf(text, bytes, "%.*s %s", (int)version, config,
             openblas_get_corename());
}

static size_t cpu_scratch_bytes(const struct kernel_limits *limits)
{
    size_t layernorm = CPU_SYMBOL(layernorm_scratch)(limits);
    size_t attention = CPU_SYMBOL(attention_scratch)(limits);
    return layernorm > attention ? layernorm : attention;
}

const struct kernels CPU_SYMBOL(table) = {
    .backend = "cpu",
    .kernel_set = CPU_TEXT(KERNEL_SET),
    .describe = cpu_describe,
    .scratch_bytes = cpu_scratch_bytes,
    .gemm = CPU_SYMBOL(gemm),
    .embedding_forward = CPU_SYMBOL(embedding_forward),
    .embedding_backward = CPU_SYMBOL(embedding_backward),
    .layernorm_forward = CPU_SYMBOL(layernorm_forward),
    .layernorm_backward = CPU_SYMBOL(layernorm_backward),
    .gelu_forward = CPU_SYMBOL(gelu_forward),
    .gelu_backward = CPU_SYMBOL(gelu_backward),
    .attention_forward = CPU_SYMBOL(attention_forward),
    .attention_backward = CPU_SYMBOL(attention_backward),
    .cross_entropy = CPU_SYMBOL(cross_entropy),
    .bias_backward = CPU_SYMBOL(bias_backward),
    .accumulate = CPU_SYMBOL(accumulate),
    .add = CPU_SYMBOL(add),
    .zero = CPU_SYMBOL(zero),
    .sum = CPU_SYMBOL(sum),
    .chunk_sum_squares = CPU_SYMBOL(chunk_sum_squares),
    .adamw = CPU_SYMBOL(adamw),
};
