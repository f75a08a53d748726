/* Rows of numbers as bytes with a scale: whole numbers up to 127 times it. */
#pragma once

#include "kernels/cpu/cpu_vec.h"

/* Rows whose largest magnitude is below this are zeros in int8: 127 over it
 * must be finite. */
#define INT8_PEAK_MIN 0x1p-120f

typedef int8_t vec_i8 __attribute__((vector_size(VEC_LANES)));

/* Both by hand: the compiler would go lane by lane. */
/* Narrows lanes in [-128, 127] to bytes. */
static inline vec_i8 vec_narrow(vec_i32 v)
{
#if defined(__AVX512F__)
    return (vec_i8)_mm512_cvtepi32_epi8((__m512i)v);
#elif VEC_LANES == 8
    __m128i low = _mm256_castsi256_si128((__m256i)v);
    __m128i high = _mm256_extracti128_si256((__m256i)v, 1);
    __m128i half = _mm_packs_epi32(low, high);
    __m128i bytes = _mm_packs_epi16(half, half);
    vec_i8 out;
    memcpy(&out, &bytes, sizeof(out));
    return out;
#else
    return __builtin_convertvector(v, vec_i8);
#endif
}

static inline vec_i32 vec_widen(vec_i8 q)
{
#if defined(__AVX512F__)
    return (vec_i32)_mm512_cvtepi8_epi32((__m128i)q);
#elif VEC_LANES == 8
    return (vec_i32)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)&q));
#else
    return __builtin_convertvector(q, vec_i32);
#endif
}
