/* Philox4x32-10 (src/base/rng.h) for many blocks at once.
 *
 * A lane of 64 bits holds one 32-bit word of one block: a multiplication yields
 * both halves of the product, and what is left in the upper half is never
 * looked at. The lanes take their blocks in an order from which two unpacking
 * shuffles give the words in theirs. */
#pragma once

#include "kernels/cpu/cpu_vec.h"
#include "src/base/rng.h"
#include "kernels/kernels.h"

/* Words that one call yields: those of VEC_LANES / 2 blocks. */
#define CPU_RANDOM_WORDS (2 * VEC_LANES)
#define CPU_RANDOM_ROUNDS 10

typedef uint64_t vec_u64 __attribute__((vector_size(4 * VEC_LANES)));

#if VEC_LANES == 16
#define CPU_RANDOM_LANES 0, 4, 1, 5, 2, 6, 3, 7
#define CPU_RANDOM_EVEN 0, 8, 2, 10, 4, 12, 6, 14
#define CPU_RANDOM_ODD 1, 9, 3, 11, 5, 13, 7, 15
#elif VEC_LANES == 8
#define CPU_RANDOM_LANES 0, 2, 1, 3
#define CPU_RANDOM_EVEN 0, 4, 2, 6
#define CPU_RANDOM_ODD 1, 5, 3, 7
#else
#define CPU_RANDOM_LANES 0, 1
#define CPU_RANDOM_EVEN 0, 2
#define CPU_RANDOM_ODD 1, 3
#endif

/* The product of the lower halves of each lane. */
static inline vec_u64 vec_mul_halves(vec_u64 a, vec_u64 b)
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

/* The words of the blocks with these counters; upper halves are left over. */
static inline void cpu_random_blocks(uint64_t key, vec_u64 block,
                                     vec_u64 words[4])
{
    const vec_u64 none = { 0 };
    vec_u64 k0 = none + (key & 0xffffffffu);
    vec_u64 k1 = none + (key >> 32);
    vec_u64 c0 = block;
    vec_u64 c1 = c0 >> 32;
    vec_u64 c2 = none;
    vec_u64 c3 = none;
    for (int round = 0; round < CPU_RANDOM_ROUNDS; round++) {
        vec_u64 p0 = vec_mul_halves(c0, none + 0xd2511f53u);
        vec_u64 p1 = vec_mul_halves(c2, none + 0xcd9e8d57u);
        c0 = (p1 >> 32) ^ c1 ^ k0;
        c1 = p1;
        c2 = (p0 >> 32) ^ c3 ^ k1;
        c3 = p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}

/* The words of the blocks with counters `block` and following, so word i of
 * the call is word i % 4 of block + i / 4. */
static inline void cpu_random_words(uint64_t key, uint64_t block,
                                    vec_u32 words[2])
{
    vec_u64 c[4];
    cpu_random_blocks(key, (vec_u64){ CPU_RANDOM_LANES } + block, c);
    vec_u64 low = (c[0] & 0xffffffffu) | c[1] << 32;
    vec_u64 high = (c[2] & 0xffffffffu) | c[3] << 32;
    words[0] = (vec_u32)__builtin_shufflevector(low, high, CPU_RANDOM_EVEN);
    words[1] = (vec_u32)__builtin_shufflevector(low, high, CPU_RANDOM_ODD);
}

/* words[w][lane] is word w of block + lane * step. */
static inline void cpu_random_lanes(uint64_t key, uint64_t block, uint64_t step,
                                    vec_u32 words[4])
{
    vec_u64 even = { 0 }, c[4], d[4];
    for (uint64_t i = 0; i < VEC_LANES / 2; i++)
        even[i] = block + 2 * i * step;
    cpu_random_blocks(key, even, c);
    cpu_random_blocks(key, even + step, d);
    for (int w = 0; w < 4; w++)
        words[w] = (vec_u32)((c[w] & 0xffffffffu) | d[w] << 32);
}

/* The key of sample `index` of the op's samples. */
static inline uint64_t cpu_random_key(const struct random_place *place,
                                      int64_t index)
{
    return rng_u64(place->seed, place->stream,
                   (uint64_t)(place->first_sample + index));
}

/* Words below this drop their element. */
static inline uint32_t cpu_random_threshold(float p)
{
    return (uint32_t)((double)p * 0x1p32);
}

/* 0 where a word drops its element, otherwise `factor`. */
static inline vec cpu_random_keep(vec_u32 words, uint32_t threshold,
                                  float factor)
{
    return vec_select((vec_i32)(words >= threshold), vec_splat(factor),
                      (vec){ 0 });
}
