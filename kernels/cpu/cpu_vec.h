/* Vectors of fp32 lanes, as wide as the kernel set's registers.
 *
 * All arithmetic whose order matters is written with these and not left to the
 * vectorizer: an element gets the same operations in the body and in the tail
 * of a loop, a reduction runs over sixteen lanes however many a vector has, and
 * neither depends on alignment. -ffp-contract=off forbids the compiler to
 * contract a*b + c by itself, so a fused multiply-add happens exactly where
 * vec_fma() stands. So every kernel set computes the same bits; of a NaN the
 * sign and the payload may differ. */
#pragma once

#include <stdint.h>
#include <string.h>

#if defined(__FAST_MATH__)
#error "-ffast-math changes what is computed: compile without it"
#endif

#if defined(__AVX512F__)
#include <immintrin.h>
#define VEC_LANES 16
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define VEC_LANES 8
#else
#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
#define VEC_LANES 4
#endif

typedef float vec __attribute__((vector_size(4 * VEC_LANES)));
typedef int32_t vec_i32 __attribute__((vector_size(4 * VEC_LANES)));
typedef uint32_t vec_u32 __attribute__((vector_size(4 * VEC_LANES)));

/* The lanes that a sum along a row runs over, in parts of one vector: lane l
 * takes the elements l, l + 16, l + 32 and so on. */
#define WIDE_LANES 16
#define WIDE_VECS (WIDE_LANES / VEC_LANES)

struct wide {
    vec part[WIDE_VECS];
};

static inline vec vec_splat(float x)
{
    return x - (vec){ 0 };
}

/* `left` elements, fewer than a vector has; none if that is negative: a row may
 * end before the last parts of its sixteen lanes. */
static inline size_t vec_rest(int64_t left)
{
    return left > 0 ? (size_t)left : 0;
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
    return _mm512_mask_loadu_ps(fill, (__mmask16)((1u << vec_rest(left)) - 1),
                                p);
#elif VEC_MASKED
    __m256i mask = vec_mask(left);
    return _mm256_blendv_ps(fill, _mm256_maskload_ps(p, mask), (__m256)mask);
#else
    vec part = fill;
    memcpy(&part, p, vec_rest(left) * 4);
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
        memcpy(&v, p, vec_rest(left) * 4);
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
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << vec_rest(left)) - 1), v);
#elif VEC_MASKED
    _mm256_maskstore_ps(p, vec_mask(left), v);
#else
    memcpy(p, &v, vec_rest(left) * 4);
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

#if defined(__SSE2__) && VEC_LANES == 4
/* `sum` of two doubles rounded to odd instead of to nearest: itself if it is
 * exact, otherwise of its two neighbours the one whose last bit is 1. */
static inline __m128d vec_to_odd(__m128d a, __m128d b, __m128d sum)
{
    typedef long long i64 __attribute__((vector_size(16)));
    __m128d taken = sum - a;
    __m128d error = (a - (sum - taken)) + (b - taken); /* exact: Knuth 1969 */
    i64 inexact = (error < 0) | (error > 0); /* not if it is NaN, of an Inf */
    i64 step = ((error < 0) ^ (sum < 0)) | 1;
    i64 bits = (i64)sum;
    bits += step & inexact & ((bits & 1) - 1);
    return (__m128d)bits;
}

/* By doubles, in which the product of two floats is exact. Rounding their sum
 * a second time does harm where the first one ended in the middle between two
 * floats; these are elsewhere where the result is denormal. Then the first one
 * is to odd, which any number of two more bits makes harmless (Boldo and
 * Melquiond 2008). */
static inline vec vec_fma_by_f64(vec a, vec b, vec c)
{
    __m128d product0 = _mm_cvtps_pd(a) * _mm_cvtps_pd(b);
    __m128d product1 =
        _mm_cvtps_pd(_mm_movehl_ps(a, a)) * _mm_cvtps_pd(_mm_movehl_ps(b, b));
    __m128d term0 = _mm_cvtps_pd(c);
    __m128d term1 = _mm_cvtps_pd(_mm_movehl_ps(c, c));
    __m128d sum0 = product0 + term0;
    __m128d sum1 = product1 + term1;
    vec_i32 low = (vec_i32)_mm_shuffle_ps((vec)sum0, (vec)sum1, 0x88);
    vec_i32 high = (vec_i32)_mm_shuffle_ps((vec)sum0, (vec)sum1, 0xdd);
    vec_i32 doubtful = ((low & 0x1fffffff) == 0x10000000) |
                       ((high & 0x7fffffff) < 0x38100000); /* 2^-126 */
    if (__builtin_expect(_mm_movemask_ps((vec)doubtful) != 0, 0)) {
        sum0 = vec_to_odd(product0, term0, sum0);
        sum1 = vec_to_odd(product1, term1, sum1);
    }
    return _mm_movelh_ps(_mm_cvtpd_ps(sum0), _mm_cvtpd_ps(sum1));
}
#endif

/* a * b + c, rounded once, whether there is an instruction for it or not. */
static inline vec vec_fma(vec a, vec b, vec c)
{
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, c);
#elif VEC_LANES == 8
    return _mm256_fmadd_ps(a, b, c);
#elif defined(__SSE2__)
    return vec_fma_by_f64(a, b, c);
#elif defined(__aarch64__)
    return (vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    for (int i = 0; i < VEC_LANES; i++)
        c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
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
#elif defined(__aarch64__)
    return (vec)vsqrtq_f32((float32x4_t)a);
#else
    for (int i = 0; i < VEC_LANES; i++)
        a[i] = __builtin_sqrtf(a[i]);
    return a;
#endif
}

static inline struct wide wide_add(struct wide a, struct wide b)
{
    for (int i = 0; i < WIDE_VECS; i++)
        a.part[i] += b.part[i];
    return a;
}

/* All lanes: the upper half is added to the lower one until one is left. */
static inline float wide_sum(struct wide w)
{
    float lane[VEC_LANES];
    for (int half = WIDE_VECS / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            w.part[i] += w.part[i + half];
    memcpy(lane, w.part, sizeof(lane));
    for (int half = VEC_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

/* The sum of a[j] b[j]. */
static inline float vec_dot(const float *a, const float *b, int64_t n)
{
    struct wide sum = { 0 };
    for (; n > 0; n -= WIDE_LANES, a += WIDE_LANES, b += WIDE_LANES)
        for (int i = 0; i < WIDE_VECS; i++) {
            int64_t j = i * VEC_LANES;
            sum.part[i] = vec_fma(vec_load(a + j, n - j),
                                  vec_load(b + j, n - j), sum.part[i]);
        }
    return wide_sum(sum);
}

/* The largest of the lanes, which are numbers, in whatever order: a maximum
 * rounds nothing. */
static inline float vec_peak(vec v)
{
    float peak = v[0];
    for (int i = 1; i < VEC_LANES; i++)
        peak = v[i] > peak ? v[i] : peak;
    return peak;
}

/* out = a + scale * b, as the add op rounds it. */
static inline void vec_row_add(int64_t n, const float *a, float scale,
                               const float *b, float *out)
{
    for (int64_t i = 0; i < n; i += VEC_LANES)
        vec_store(out + i, n - i,
                  vec_fma(vec_load(b + i, n - i), vec_splat(scale),
                          vec_load(a + i, n - i)));
}
