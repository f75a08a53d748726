/* Rounding to bf16: nearest, ties to even. An integer addition carries into the
 * exponent where the mantissa overflows, up to Inf; a NaN is kept apart, as its
 * payload may lie in the lost half. */
#pragma once

#include "kernels/cpu/cpu_vec.h"

typedef uint16_t vec_u16 __attribute__((vector_size(2 * VEC_LANES)));

/* x rounded to bf16, as fp32. The lower half of a NaN may keep bits. */
static inline vec vec_bf16(vec x)
{
    vec_u32 bits = (vec_u32)x;
    vec_u32 rounded = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u;
#if defined(__AVX512F__)
    return (vec)_mm512_mask_or_epi32(
        (__m512i)rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), (__m512i)bits,
        _mm512_set1_epi32(0x400000));
#else
    return vec_select(x != x, (vec)(bits | 0x400000), (vec)rounded);
#endif
}

/* Stores the first min(left, VEC_LANES) lanes as bf16. */
static inline void vec_store_bf16(uint16_t *p, int64_t left, vec x)
{
    vec_u16 half = __builtin_convertvector((vec_u32)vec_bf16(x) >> 16, vec_u16);
    if (left >= VEC_LANES)
        memcpy(p, &half, sizeof(half));
    else
        memcpy(p, &half, (size_t)left * sizeof(*p));
}

/* The first min(left, VEC_LANES) of bf16 numbers, the other lanes 0. */
static inline vec vec_load_bf16(const uint16_t *p, int64_t left)
{
    vec_u16 half = { 0 };
    if (left >= VEC_LANES)
        memcpy(&half, p, sizeof(half));
    else
        memcpy(&half, p, vec_rest(left) * sizeof(*p));
    return (vec)(__builtin_convertvector(half, vec_u32) << 16);
}
