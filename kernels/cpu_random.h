/* Random words for many elements at once: the Philox blocks of src/base/rng.h,
 * as many side by side as fit into a register. Which words belong to which
 * element, struct random_place in kernels.h says. */
#ifndef TESSERA_KERNELS_CPU_RANDOM_H
#define TESSERA_KERNELS_CPU_RANDOM_H

#include "kernels/cpu_vec.h"
#include "kernels/kernels.h"
#include "src/base/rng.h"

/* Blocks that one call draws, and the words in them. */
#define CPU_RANDOM_BLOCKS (VEC_LANES / 2)
#define CPU_RANDOM_WORDS (4 * CPU_RANDOM_BLOCKS)

typedef uint64_t vec_u64 __attribute__((vector_size(4 * VEC_LANES)));

/* The key of sample `index` of the op's samples. */
static inline uint64_t cpu_random_key(const struct random_place *place,
                                      int64_t index)
{
    return rng_u64(place->seed, place->stream,
                   (uint64_t)(place->first_sample + index));
}

/* The products of the low halves of 64-bit lanes, whatever the high ones. */
static inline vec_u64 cpu_random_multiply(vec_u64 a, vec_u64 b)
{
#if defined(__AVX512F__)
    return (vec_u64)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif VEC_LANES == 8
    return (vec_u64)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (vec_u64)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

/* The words of CPU_RANDOM_BLOCKS blocks from number `block` on, in order.
 *
 * A word lives in the low half of a 64-bit lane. What is left in the high half
 * is not cleared: products ignore it, and exclusive ors do not mix halves. */
static inline void cpu_random_words(uint64_t key, uint64_t block,
                                    uint32_t words[CPU_RANDOM_WORDS])
{
    vec_u64 c0, c1, c2 = { 0 }, c3 = { 0 }, pairs[2];
    const vec_u64 m0 = (vec_u64){ 0 } + 0xd2511f53u;
    const vec_u64 m1 = (vec_u64){ 0 } + 0xcd9e8d57u;
    uint32_t k0 = (uint32_t)key;
    uint32_t k1 = (uint32_t)(key >> 32);
    for (int i = 0; i < CPU_RANDOM_BLOCKS; i++)
        c0[i] = block + (uint64_t)i;
    c1 = c0 >> 32;
    for (int round = 0; round < 10; round++) {
        vec_u64 p0 = cpu_random_multiply(c0, m0);
        vec_u64 p1 = cpu_random_multiply(c2, m1);
        c0 = (p1 >> 32) ^ c1 ^ k0;
        c1 = p1;
        c2 = (p0 >> 32) ^ c3 ^ k1;
        c3 = p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    c0 = (c0 & 0xffffffffu) | c1 << 32;
    c2 = (c2 & 0xffffffffu) | c3 << 32;
    for (int i = 0; i < CPU_RANDOM_BLOCKS; i++) {
        pairs[2 * i / CPU_RANDOM_BLOCKS][2 * i % CPU_RANDOM_BLOCKS] = c0[i];
        pairs[2 * i / CPU_RANDOM_BLOCKS][2 * i % CPU_RANDOM_BLOCKS + 1] = c2[i];
    }
    memcpy(words, pairs, sizeof(pairs));
}

/* The number in [0, 1) that a word stands for, 24 bits. */
static inline vec cpu_random_uniform(const uint32_t words[VEC_LANES])
{
    vec_u32 w;
    memcpy(&w, words, sizeof(w));
    return __builtin_convertvector((vec_i32)(w >> 8), vec) *
           vec_splat(0x1p-24f);
}

/* 0 where a word drops its element, which happens with probability p,
 * otherwise 1 / (1 - p). */
static inline vec cpu_random_keep(const uint32_t words[VEC_LANES], float p)
{
    return vec_select(cpu_random_uniform(words) < p, (vec){ 0 },
                      vec_splat(1.0f / (1.0f - p)));
}

#endif
