/* Philox4x32-10 (src/base/rng.h) on the device: the words of kernel_shapes.h.
 */
#pragma once

#include "kernels/cuda/cuda_launch.h"

#define CUDA_RANDOM_ROUNDS 10

CUDA_DEVICE void cuda_philox(uint64_t key, uint64_t low, uint64_t high,
                             uint32_t words[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)low, c1 = (uint32_t)(low >> 32);
    uint32_t c2 = (uint32_t)high, c3 = (uint32_t)(high >> 32);
    for (int round = 0; round < CUDA_RANDOM_ROUNDS; round++) {
        uint64_t p0 = (uint64_t)0xd2511f53u * c0;
        uint64_t p1 = (uint64_t)0xcd9e8d57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}

/* rng_u64(seed, stream, first_sample + index). */
CUDA_DEVICE uint64_t cuda_random_key(struct random_place place, int64_t index)
{
    uint32_t words[4];
    cuda_philox(place.seed, (uint64_t)(place.first_sample + index),
                place.stream, words);
    return words[0] | (uint64_t)words[1] << 32;
}
