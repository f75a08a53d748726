/* Vectors of fp32 lanes, as wide as the kernel set's registers.
 *
 * All arithmetic whose order matters is written with these and not left to the
 * vectorizer: a reduction has a fixed lane order, an element gets the same
 * operations in the body and in the tail of a loop, and neither depends on
 * alignment. -std=c17 forbids the compiler to contract a*b + c by itself, so a
 * fused multiply-add happens exactly where vec_fma() stands. */
#ifndef TESSERA_KERNELS_CPU_VEC_H
#define TESSERA_KERNELS_CPU_VEC_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define VEC_LANES 16
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define VEC_LANES 8
#else
#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#define VEC_LANES 4
#endif

typedef float vec __attribute__((vector_size(4 * VEC_LANES)));
typedef int32_t vec_i32 __attribute__((vector_size(4 * VEC_LANES)));
typedef uint32_t vec_u32 __attribute__((vector_size(4 * VEC_LANES)));

static inline vec vec_splat(float x)
{
    return x - (vec){ 0 };
}

/* Whether a vector's first lanes can be loaded and stored by a mask; not where
 * the sanitizer is to see which bytes those are. */
#if VEC_LANES > 4 && !defined(__SANITIZE_ADDRESS__)
#define VEC_MASKED 1
#else
#define VEC_MASKED 0
#endif

#if VEC_MASKED && VEC_LANES == 8
static inline __m256i vec_mask(int64_t left)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)left),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
#endif

/* The first min(left, VEC_LANES) floats at p, the other lanes `fill`. The full
 * copy stands apart so that it becomes one instruction, with a variable of its
 * own so that `fill` need not be in memory for it. */
static inline vec vec_load_or(const float *p, int64_t left, vec fill)
{
    if (left >= VEC_LANES) {
        vec whole;
        memcpy(&whole, p, sizeof(whole));
        return whole;
    }
#if VEC_MASKED && VEC_LANES == 16
    return _mm512_mask_loadu_ps(fill, (__mmask16)((1u << left) - 1), p);
#elif VEC_MASKED
    __m256i mask = vec_mask(left);
    return _mm256_blendv_ps(fill, _mm256_maskload_ps(p, mask), (__m256)mask);
#else
    vec part = fill;
    memcpy(&part, p, (size_t)left * 4);
    return part;
#endif
}

static inline vec vec_load(const float *p, int64_t left)
{
    return vec_load_or(p, left, (vec){ 0 });
}

static inline vec_i32 vec_load_i32(const int32_t *p, int64_t left)
{
    vec_i32 v = { 0 };
    if (left >= VEC_LANES)
        memcpy(&v, p, sizeof(v));
    else
        memcpy(&v, p, (size_t)left * 4);
    return v;
}

/* Stores the first min(left, VEC_LANES) lanes. */
static inline void vec_store(float *p, int64_t left, vec v)
{
    if (left >= VEC_LANES) {
        memcpy(p, &v, sizeof(v));
        return;
    }
#if VEC_MASKED && VEC_LANES == 16
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << left) - 1), v);
#elif VEC_MASKED
    _mm256_maskstore_ps(p, vec_mask(left), v);
#else
    memcpy(p, &v, (size_t)left * 4);
#endif
}

/* Lanes of a where the mask is all ones, of b where it is zero. */
static inline vec vec_select(vec_i32 mask, vec a, vec b)
{
    return (vec)((mask & (vec_i32)a) | (~mask & (vec_i32)b));
}

/* Lanes from `left` on become zero. */
static inline vec vec_keep(vec v, int64_t left)
{
    return left >= VEC_LANES ? v : vec_load((const float *)&v, left);
}

/* a * b + c, rounded once where the kernel set has the instruction. */
static inline vec vec_fma(vec a, vec b, vec c)
{
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, c);
#elif VEC_LANES == 8
    return _mm256_fmadd_ps(a, b, c);
#else
    return a * b + c;
#endif
}

/* a > b ? a : b, so that a NaN in a gives b. */
static inline vec vec_max(vec a, vec b)
{
#if defined(__AVX512F__)
    return _mm512_max_ps(a, b);
#elif VEC_LANES == 8
    return _mm256_max_ps(a, b);
#elif defined(__SSE2__)
    return _mm_max_ps(a, b);
#else
    return vec_select(a > b, a, b);
#endif
}

static inline vec vec_sqrt(vec a)
{
#if defined(__AVX512F__)
    return _mm512_sqrt_ps(a);
#elif VEC_LANES == 8
    return _mm256_sqrt_ps(a);
#elif defined(__SSE2__)
    return _mm_sqrt_ps(a);
#else
    for (int i = 0; i < VEC_LANES; i++)
        a[i] = __builtin_sqrtf(a[i]);
    return a;
#endif
}

/* All lanes, added pairwise in a fixed order. */
static inline float vec_sum(vec v)
{
    float lane[VEC_LANES];
    memcpy(lane, &v, sizeof(v));
    for (int half = VEC_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

static inline float vec_peak(vec v)
{
    float peak = v[0];
    for (int i = 1; i < VEC_LANES; i++)
        peak = v[i] > peak ? v[i] : peak;
    return peak;
}

#endif
