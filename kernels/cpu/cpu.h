/* What the CPU kernel files share.
 *
 * Every cpu_*.c file is compiled once per kernel set (avx512, avx2, generic)
 * with -DKERNEL_SET=<name> and the matching -march, so every non-static symbol
 * carries the set in its name: CPU_SYMBOL(gemm) is cpu_gemm_avx512. What ops
 * compute stands in kernel_ops.h; why the code is cut as it is, in DESIGN.md.
 */
#pragma once

#include <assert.h>

#include "kernels/kernels.h"

#define CPU_PASTE(name, set) cpu_##name##_##set
#define CPU_EXPAND(name, set) CPU_PASTE(name, set)
#define CPU_SYMBOL(name) CPU_EXPAND(name, KERNEL_SET)
#define CPU_TEXT_OF(set) #set
#define CPU_TEXT(set) CPU_TEXT_OF(set)

/* Columns that one task owns where rows are summed in order: 256 bytes, so that
 * a row's share is whole cache lines and few columns still feed all threads. */
#define CPU_COLUMNS 64

double CPU_SYMBOL(peak_flops)(const struct kernel_ctx *ctx, enum dtype dtype,
                              bool fp8, const char **source);

#define CPU_DECLARE(op, parameters, ...)                                       \
    enum err CPU_SYMBOL(op) KERNEL_PARAMETERS(parameters);
KERNEL_OPS(CPU_DECLARE)

/* Bytes of scratch that the op's file needs. */
size_t CPU_SYMBOL(norm_scratch)(const struct kernel_limits *limits);
size_t CPU_SYMBOL(attention_scratch)(const struct kernel_limits *limits);
size_t CPU_SYMBOL(attention_cached_scratch)(const struct kernel_limits *limits);
size_t CPU_SYMBOL(route_scratch)(const struct kernel_limits *limits);

extern const struct kernels CPU_SYMBOL(table);

/* These kernels compute in f32 only. */
static inline enum err cpu_require_f32(enum dtype dtype, const char *op)
{
    if (dtype == DTYPE_F32)
        return ERR_OK;
    return err_set(ERR_UNSUPPORTED,
                   "%s: the cpu backend has no %s kernels; use f32", op,
                   dtype_name(dtype));
}

static inline int64_t cpu_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The number of parts of `size` that cover `count`. */
static inline int64_t cpu_parts(int64_t count, int64_t size)
{
    return (count + size - 1) / size;
}
