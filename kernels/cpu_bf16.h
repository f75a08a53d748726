/* Rounding to bf16: nearest, ties to even. An integer addition carries into the
 * exponent where the mantissa overflows, up to Inf; a NaN is kept apart, as its
 * payload may lie in the lost half. */
#ifndef TESSERA_KERNELS_CPU_BF16_H
#define TESSERA_KERNELS_CPU_BF16_H

#include "kernels/cpu_vec.h"

/* x rounded to bf16, as fp32. */
static inline vec vec_bf16(vec x)
{
    vec_u32 bits = (vec_u32)x;
    vec_u32 rounded = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u;
    vec_u32 quiet = (bits | 0x400000) & 0xffff0000u;
    return vec_select(x != x, (vec)quiet, (vec)rounded);
}

#endif
