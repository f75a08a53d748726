/* The op table of one kernel set. */
#include "kernels/cpu/cpu_gemm.h"

#include <stdio.h>

#include "kernels/kernel_profile.h"

static void cpu_describe(char *text, size_t bytes)
{
    snprintf(text, bytes, "arithmetic %d", KERNEL_ARITHMETIC);
}

static size_t cpu_scratch_bytes(const struct kernel_limits *limits)
{
    const size_t gemm = CPU_SYMBOL(gemm_room_bytes)() * (size_t)limits->threads;
    const size_t needs[] = { gemm, CPU_SYMBOL(norm_scratch)(limits),
                             CPU_SYMBOL(attention_scratch)(limits),
                             CPU_SYMBOL(attention_cached_scratch)(limits),
                             CPU_SYMBOL(route_scratch)(limits) };
    size_t most = 0;
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++)
        most = needs[i] > most ? needs[i] : most;
    return most;
}

#define TOLD(op) told_##op
#define TOLD_OP(op, parameters, arguments, ...)                                \
    KERNEL_PROFILE_OP(CPU_SYMBOL, TOLD, op, parameters, arguments)
KERNEL_OPS(TOLD_OP)

#define TABLE_ENTRY(op, ...) .op = CPU_SYMBOL(op),
#define TOLD_ENTRY(op, ...) .op = TOLD(op),
#define TABLE_COMMON                                                           \
    .backend = "cpu", .kernel_set = CPU_TEXT(KERNEL_SET),                      \
    .memory = &kernel_memory_cpu, .adds_once = true, .describe = cpu_describe, \
    .scratch_bytes = cpu_scratch_bytes, .peak_flops = CPU_SYMBOL(peak_flops),  \
    .profiled = &table_profiled

static const struct kernels table_profiled = { TABLE_COMMON,
                                               KERNEL_OPS(TOLD_ENTRY) };

const struct kernels CPU_SYMBOL(table) = { TABLE_COMMON,
                                           KERNEL_OPS(TABLE_ENTRY) };
