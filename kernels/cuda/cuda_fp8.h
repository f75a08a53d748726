/* 8-bit floats: from fp32 by bits, and to bf16, which holds all of them. */
#pragma once

#include "kernels/cuda/cuda_mma.h"

template <enum fp8 F> struct cuda_fp8_format {
    static const int mantissa = F == FP8_E4M3 ? 3 : 2; /* bits */
    static const int bias = F == FP8_E4M3 ? 7 : 15;
    static const unsigned largest = F == FP8_E4M3 ? 0x7e : 0x7b; /* finite */
    static const unsigned nan = 0x7f;
};

/* Nearest, ties to even; what is too large becomes the largest finite number.
 * Below the least normal number, adding 2^23 times the step rounds to a
 * multiple of the step, which the bits then count. */
template <enum fp8 F> CUDA_DEVICE unsigned cuda_fp8_code(float x)
{
    typedef struct cuda_fp8_format<F> format;
    const int shift = 23 - format::mantissa;
    const unsigned least = (unsigned)(128 - format::bias) << 23;
    const float rounder = __uint_as_float(least + ((unsigned)shift << 23));
    unsigned bits = __float_as_uint(x), size = bits & 0x7fffffff;
    unsigned rounded = size + (1u << (shift - 1)) - 1 + ((size >> shift) & 1);
    unsigned code = (rounded >> shift) -
                    ((unsigned)(127 - format::bias) << format::mantissa);
    if (size < least)
        code = __float_as_uint(__uint_as_float(size) + rounder) -
               __float_as_uint(rounder);
    code = code < format::largest ? code : format::largest;
    if (x != x)
        code = format::nan;
    return code | (bits >> 24 & 0x80);
}

/* Two codes, `low`'s at the lower address: the same, whoever computes them, but
 * for the sign of a NaN. */
template <enum fp8 F> CUDA_DEVICE unsigned cuda_fp8_pair(float low, float high)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    unsigned short pair;
    if (F == FP8_E4M3)
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
            : "=h"(pair)
            : "f"(high), "f"(low));
    else
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;"
            : "=h"(pair)
            : "f"(high), "f"(low));
    return pair;
#else
    return cuda_fp8_code<F>(low) | cuda_fp8_code<F>(high) << 8;
#endif
}

/* How codes become bf16. Exponent and mantissa, moved to the places of bf16's,
 * are a bf16 number that is too small by a factor, subnormal ones included. */
struct cuda_fp8_kind {
    int shift;        /* from the upper byte */
    unsigned factor;  /* in bf16, twice */
    unsigned special; /* reaches a byte's bit 7 if added to NaN's or Inf's */
};

static inline struct cuda_fp8_kind cuda_fp8_kind_of(enum fp8 type)
{
    const struct cuda_fp8_kind e4m3 = { 4, 0x7b807b80, 0x01010101 };
    const struct cuda_fp8_kind e5m2 = { 3, 0x77807780, 0x04040404 };
    return type == FP8_E4M3 ? e4m3 : e5m2;
}

/* x * factor, two bf16 numbers each; exact here. */
CUDA_DEVICE unsigned cuda_fp8_product(unsigned x, unsigned factor)
{
#ifdef __CUDA_ARCH__
    unsigned product; /* adding -0 keeps the signs of zeros */
    asm("fma.rn.bf16x2 %0, %1, %2, %3;"
        : "=r"(product)
        : "r"(x), "r"(factor), "r"(0x80008000));
    return product;
#else
    float scale = __uint_as_float(factor << 16);
    return cuda_mma_pair(__uint_as_float(x << 16) * scale,
                         __uint_as_float(x & 0xffff0000) * scale);
#endif
}

/* to[0..1] = the bf16 numbers of four codes, in their order. */
CUDA_DEVICE void cuda_fp8_widen(struct cuda_fp8_kind kind, unsigned codes,
                                unsigned to[2])
{
    const unsigned places[2] = { 0x1404, 0x3424 }; /* bytes, each above a 0 */
    unsigned special = ((codes & 0x7f7f7f7f) + kind.special) & 0x80808080;
    CUDA_UNROLL
    for (int i = 0; i < 2; i++) {
        unsigned pair = __byte_perm(codes, 0, places[i]);
        pair = (pair & 0x80008000) | ((pair & 0x7f007f00) >> kind.shift);
        to[i] = cuda_fp8_product(pair, kind.factor);
        if (special != 0) { /* the largest exponent, and the mantissa stays */
            unsigned mask = __byte_perm(special, 0, places[i]);
            to[i] |= mask - (mask >> 8);
        }
    }
}
