/* Elements in memory and in registers. Memory holds fp32 or bf16, arithmetic is
 * fp32, and a bf16 result is rounded once, when it is stored. A thread takes
 * elements that lie side by side: 16 bytes where the address allows it, one by
 * one where not and at the end of a row. Who takes which element never depends
 * on the address, so neither do the bits. */
#pragma once

#include <string.h>

#include "kernels/cuda/cuda_launch.h"

#define CUDA_VECTOR_BYTES 16

struct cuda_bf16 {
    uint16_t bits;
};

/* Calls run(T()), T being the element type. */
template <class F>
static inline enum err cuda_by_dtype(enum dtype dtype, const char *op, F run)
{
    return dtype == DTYPE_F32    ? run(0.0f)
           : dtype == DTYPE_BF16 ? run(cuda_bf16())
                                 : cuda_lacks_dtype(op, dtype);
}

/* This thread's vectors of `lanes` columns of a row: the first, and the step to
 * the next. */
#define CUDA_FOR_COLUMNS(at, columns, lanes)                                   \
    for (int64_t at = (int64_t)threadIdx.x * (lanes); at < (columns);          \
         at += (int64_t)blockDim.x * (lanes))

/* Elements of a vector. */
template <class T> struct cuda_lanes {
    static const int count = CUDA_VECTOR_BYTES / (int)sizeof(T);
};

CUDA_DEVICE float cuda_value(float x)
{
    return x;
}

CUDA_DEVICE float cuda_value(struct cuda_bf16 x)
{
    return __uint_as_float((unsigned)x.bits << 16);
}

CUDA_DEVICE float cuda_value(int8_t x)
{
    return (float)x;
}

CUDA_DEVICE void cuda_put(float x, float *to)
{
    *to = x;
}

/* Nearest, ties to even. An addition carries into the exponent where the
 * mantissa overflows, up to Inf; a NaN is kept apart. */
CUDA_DEVICE void cuda_put(float x, struct cuda_bf16 *to)
{
    unsigned bits = __float_as_uint(x);
    unsigned rounded = bits + 0x7fff + ((bits >> 16) & 1);
    to->bits = (uint16_t)((x != x ? bits | 0x400000 : rounded) >> 16);
}

/* Rounds a number in [-128, 127], and makes anything of a NaN: adding 1.5 *
 * 2^23 rounds to an integer, which the bits then count. */
CUDA_DEVICE void cuda_put(float x, int8_t *to)
{
    const float rounder = 12582912.0f;
    *to = (int8_t)(__float_as_uint(x + rounder) - __float_as_uint(rounder));
}

CUDA_DEVICE float cuda_rounded(float x)
{
    struct cuda_bf16 half;
    cuda_put(x, &half);
    return cuda_value(half);
}

/* Elements that are loaded and stored at once. */
template <int N, class T> struct alignas(N * sizeof(T)) cuda_piece {
    T at[N];
};

/* N elements are whole pieces of so many. */
template <int N, class T> struct cuda_pieces {
    static const int most = CUDA_VECTOR_BYTES / (int)sizeof(T);
    static const int count = N < most ? N : most;
    typedef struct cuda_piece<count, T> piece;
};

/* x[i] = p[i] for i < N and i < left, `rest` for the others. */
template <int N, class T>
CUDA_DEVICE void cuda_load(const T *p, int64_t left, float rest, float x[N])
{
    typedef typename cuda_pieces<N, T>::piece piece;
    const int count = cuda_pieces<N, T>::count;
    if (left >= N && (uintptr_t)p % sizeof(piece) == 0) {
        for (int i = 0; i < N; i += count) {
            piece some = *(const piece *)(p + i);
            for (int k = 0; k < count; k++)
                x[i + k] = cuda_value(some.at[k]);
        }
        return;
    }
    for (int i = 0; i < N; i++)
        x[i] = i < left ? cuda_value(p[i]) : rest;
}

/* Stores `bytes` bytes of words, 4, 8 or 16, at once: written out, as nvcc may
 * cut the store of a structure into its elements. */
CUDA_DEVICE void cuda_put_words(const unsigned words[4], size_t bytes, void *to)
{
#ifdef CUDA_EMULATED
    cuda_emulator_store(words, bytes, to);
#else
    if (bytes == 16)
        asm volatile("st.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to),
                     "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                     : "memory");
    else if (bytes == 8)
        asm volatile("st.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(words[0]),
                     "r"(words[1])
                     : "memory");
    else
        asm volatile("st.u32 [%0], %1;" ::"l"(to), "r"(words[0]) : "memory");
#endif
}

CUDA_DEVICE void cuda_put_piece(const float *x, int count, float *to)
{
    unsigned words[4] = { 0 };
    for (int i = 0; i < count; i++)
        words[i] = __float_as_uint(x[i]);
    cuda_put_words(words, (size_t)count * sizeof(float), to);
}

CUDA_DEVICE void cuda_put_piece(const float *x, int count, struct cuda_bf16 *to)
{
    unsigned words[4] = { 0 };
    for (int i = 0; i < count; i++) {
        struct cuda_bf16 half;
        cuda_put(x[i], &half);
        words[i / 2] |= (unsigned)half.bits << i % 2 * 16;
    }
    cuda_put_words(words, (size_t)count * sizeof(*to), to);
}

CUDA_DEVICE void cuda_put_piece(const float *x, int count, int8_t *to)
{
    unsigned words[4] = { 0 };
    for (int i = 0; i < count; i++) {
        int8_t byte;
        cuda_put(x[i], &byte);
        words[i / 4] |= (unsigned)(uint8_t)byte << i % 4 * 8;
    }
    cuda_put_words(words, (size_t)count, to);
}

/* p[i] = x[i] for i < N and i < left. */
template <int N, class T>
CUDA_DEVICE void cuda_store(T *p, int64_t left, const float x[N])
{
    typedef typename cuda_pieces<N, T>::piece piece;
    const int count = cuda_pieces<N, T>::count;
    if (left >= N && (uintptr_t)p % sizeof(piece) == 0) {
        for (int i = 0; i < N; i += count)
            cuda_put_piece(x + i, count, p + i);
        return;
    }
    for (int i = 0; i < N; i++)
        if (i < left)
            cuda_put(x[i], p + i);
}

/* Thread's number in a grid of one dimension. */
CUDA_DEVICE int64_t cuda_index(void)
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
