/* Packs operands of products in the order in which tiles read them. */
#include "kernels/cpu/cpu_gemm_tile.h"

/* v[i] and v[i + size] exchange their halves in blocks of 2 size lanes; all
 * sizes together transpose a square. */
#if VEC_LANES == 16
#define LOW_1 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30
#define HIGH_1 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31
#define LOW_2 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define HIGH_2 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define LOW_4 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27
#define HIGH_4 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31
#define LOW_8 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define HIGH_8 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
#elif VEC_LANES == 8
#define LOW_1 0, 8, 2, 10, 4, 12, 6, 14
#define HIGH_1 1, 9, 3, 11, 5, 13, 7, 15
#define LOW_2 0, 1, 8, 9, 4, 5, 12, 13
#define HIGH_2 2, 3, 10, 11, 6, 7, 14, 15
#define LOW_4 0, 1, 2, 3, 8, 9, 10, 11
#define HIGH_4 4, 5, 6, 7, 12, 13, 14, 15
#else
#define LOW_1 0, 4, 2, 6
#define HIGH_1 1, 5, 3, 7
#define LOW_2 0, 1, 4, 5
#define HIGH_2 2, 3, 6, 7
#endif
#define EXCHANGE(v, size)                                                      \
    for (int i = 0; i < VEC_LANES; i++) {                                      \
        if (i & (size))                                                        \
            continue;                                                          \
        vec a = v[i], b = v[i + (size)];                                       \
        v[i] = __builtin_shufflevector(a, b, LOW_##size);                      \
        v[i + (size)] = __builtin_shufflevector(a, b, HIGH_##size);            \
    }

static inline __attribute__((always_inline)) void square_turn(vec *v)
{
#pragma GCC unroll 16
    EXCHANGE(v, 1)
#pragma GCC unroll 16
    EXCHANGE(v, 2)
#if VEC_LANES > 4
#pragma GCC unroll 16
    EXCHANGE(v, 4)
#endif
#if VEC_LANES > 8
#pragma GCC unroll 16
    EXCHANGE(v, 8)
#endif
}

/* VEC_LANES rows of memory of k elements become lanes of k vectors, which lie
 * `width` apart; those beyond `count` repeat the last one. */
static void lanes_turn(int64_t count, int64_t k, const float *from, int64_t ld,
                       int64_t width, float *to)
{
    const float *row[VEC_LANES];
    vec v[VEC_LANES];
    int64_t l = 0;
    for (int64_t i = 0; i < VEC_LANES; i++)
        row[i] = from + cpu_min(i, count - 1) * ld;
    for (; l + VEC_LANES <= k; l += VEC_LANES) {
#pragma GCC unroll 16
        for (int64_t i = 0; i < VEC_LANES; i++)
            v[i] = vec_load(row[i] + l, VEC_LANES);
        square_turn(v);
#pragma GCC unroll 16
        for (int64_t i = 0; i < VEC_LANES; i++)
            vec_store(to + (l + i) * width, VEC_LANES, v[i]);
    }
    if (l == k)
        return;
    for (int64_t i = 0; i < VEC_LANES; i++)
        v[i] = vec_load(row[i] + l, k - l);
    square_turn(v);
    for (int64_t i = 0; i < k - l; i++)
        vec_store(to + (l + i) * width, VEC_LANES, v[i]);
}

/* What a vector writes beyond its row of the panel is overwritten by the next
 * row. */
void CPU_SYMBOL(gemm_pack_across)(int64_t count, int64_t k, int width,
                                  const float *from, int64_t ld, float *to)
{
    for (int64_t j = 0; j < count; j += VEC_LANES)
        lanes_turn(count - j, k, from + j * ld, ld, width, to + j);
}

void CPU_SYMBOL(gemm_pack_along)(int64_t count, int64_t reach, int64_t k,
                                 int width, const float *from, int64_t ld,
                                 float *to)
{
    for (int64_t j = 0; j < count; j += VEC_LANES) {
        const float *row = from + j;
        float *out = to + j;
        int64_t left = reach - j;
        for (int64_t l = 0; l < k; l++, row += ld, out += width)
            vec_store(out, VEC_LANES, vec_load(row, left));
    }
}
