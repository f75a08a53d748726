/* Vectors that a thread holds in registers, as they lie in memory: 4 registers
 * each. All loads of a call are on their way before the first one is waited
 * for, which is what memory's rate takes, and a row that is held is read once,
 * however many passes go over it. */
#pragma once

#include "kernels/cuda/cuda_mma.h"

template <class T, int COUNT> struct cuda_held {
    unsigned words[COUNT][4];
};

CUDA_DEVICE void cuda_hold_words(const void *from, unsigned words[4])
{
    struct cuda_piece<4, unsigned> some;
#ifdef CUDA_EMULATED
    memcpy(&some, from, sizeof(some));
#else
    some = *(const struct cuda_piece<4, unsigned> *)from;
#endif
    for (int i = 0; i < 4; i++)
        words[i] = some.at[i];
}

/* The bits of element i, 0 after `left` ones. */
CUDA_DEVICE unsigned cuda_bits_of(const float *p, int64_t i, int64_t left)
{
    return i < left ? __float_as_uint(p[i]) : 0;
}

CUDA_DEVICE unsigned cuda_bits_of(const struct cuda_bf16 *p, int64_t i,
                                  int64_t left)
{
    return i < left ? p[i].bits : 0u;
}

/* The vectors at p, p + step, ...; zeros after `left` elements. */
template <class T, int COUNT>
CUDA_DEVICE void cuda_hold(const T *p, int64_t step, int64_t left,
                           struct cuda_held<T, COUNT> *held)
{
    const int lanes = cuda_lanes<T>::count, per_word = lanes / 4;
    bool even = (uintptr_t)p % CUDA_VECTOR_BYTES == 0 && step % lanes == 0;
    bool whole =
        even && (left % lanes == 0 || left >= (COUNT - 1) * step + lanes);
    CUDA_UNROLL
    for (int k = 0; k < COUNT; k++)
        for (int i = 0; i < 4; i++)
            held->words[k][i] = 0;
    if (whole) {
        CUDA_UNROLL
        for (int k = 0; k < COUNT; k++)
            if (k * step < left)
                cuda_hold_words(p + k * step, held->words[k]);
        return;
    }
    CUDA_UNROLL
    for (int k = 0; k < COUNT; k++)
        for (int i = 0; i < lanes; i++)
            held->words[k][i / per_word] |= cuda_bits_of(p, k * step + i, left)
                                            << i % per_word * 16;
}

/* The vector at p; zeros after `left` elements. */
template <class T>
CUDA_DEVICE void cuda_hold_one(const T *p, int64_t left,
                               struct cuda_held<T, 1> *held)
{
    cuda_hold(p, 0, left, held);
}

/* Vector k as numbers. */
template <class T, int COUNT>
CUDA_DEVICE void cuda_held_values(const struct cuda_held<T, COUNT> &held, int k,
                                  float *x)
{
    const int lanes = cuda_lanes<T>::count;
    for (int i = 0; i < lanes; i++) {
        unsigned word = held.words[k][i * 4 / lanes];
        if (sizeof(T) == 2)
            word = i % 2 == 0 ? word << 16 : word & 0xffff0000u;
        x[i] = __uint_as_float(word);
    }
}

/* Numbers become vector k, rounded if T is. */
template <class T, int COUNT>
CUDA_DEVICE void cuda_held_put(const float *x, int k,
                               struct cuda_held<T, COUNT> *held)
{
    const int lanes = cuda_lanes<T>::count, per_word = lanes / 4;
    T some[lanes];
    for (int i = 0; i < 4; i++)
        held->words[k][i] = 0;
    for (int i = 0; i < lanes; i++) {
        cuda_put(x[i], some + i);
        held->words[k][i / per_word] |= cuda_bits_of(some, i, lanes)
                                        << i % per_word * 16;
    }
}
