/* Dropout and jitter: a product with a random factor per element. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_random.h"

/* Elements of one task, a multiple of CPU_RANDOM_WORDS. */
#define BLOCK 4096

/* One sample's elements [first, first + n). */
struct stretch {
    uint64_t key;
    int64_t first, n;
    const float *x;
    float *y;
};

/* Task number `task` of samples * cpu_parts(elements, BLOCK). */
static struct stretch stretch_of(int64_t task, int64_t elements,
                                 const struct random_place *random,
                                 const void *x, void *y)
{
    int64_t blocks = cpu_parts(elements, BLOCK);
    int64_t sample = task / blocks, first = task % blocks * BLOCK;
    return (struct stretch){
        .key = cpu_random_key(random, sample),
        .first = first,
        .n = cpu_min(BLOCK, elements - first),
        .x = (const float *)x + sample * elements + first,
        .y = (float *)y + sample * elements + first,
    };
}

/* The factors of a word's elements: by dropout, where a word below the threshold
 * drops its element, or by jitter, where its upper 24 bits are the uniform
 * number. */
static inline vec factor_of(vec_u32 word, bool drops, uint32_t threshold,
                            float amount)
{
    if (drops)
        return cpu_random_keep(word, threshold, amount);
    return vec_fma(__builtin_convertvector((vec_i32)(word >> 8), vec),
                   vec_splat(2.0f * amount * 0x1p-24f),
                   vec_splat(1.0f - amount));
}

/* Inline, so that `drops` is a constant in each copy of the loop. */
static inline void stretch_times(struct stretch s, bool drops,
                                 uint32_t threshold, float amount)
{
    for (int64_t i = 0; i < s.n; i += CPU_RANDOM_WORDS) {
        vec_u32 words[2];
        cpu_random_words(s.key, (uint64_t)(s.first + i) / 4, words);
        for (int64_t j = 0; j < 2 && i + j * VEC_LANES < s.n; j++) {
            int64_t at = i + j * VEC_LANES;
            vec factor = factor_of(words[j], drops, threshold, amount);
            vec_store(s.y + at, s.n - at,
                      vec_load(s.x + at, s.n - at) * factor);
        }
    }
}

static void block_scale(int64_t n, float scale, const float *x, float *y)
{
    for (int64_t i = 0; i < n; i += VEC_LANES)
        vec_store(y + i, n - i, vec_load(x + i, n - i) * scale);
}

enum err CPU_SYMBOL(dropout) KERNEL_LIKE(dropout)
{
    assert(p >= 0 && p < 1 && elements > 0);
    TRY(cpu_require_f32(dtype, "dropout"));
    assert(samples >= 0);
    if (p == 0) {
        int64_t n = samples * elements;
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
        for (int64_t at = 0; at < n; at += BLOCK)
            block_scale(cpu_min(BLOCK, n - at), scale, (const float *)x + at,
                        (float *)y + at);
        return ERR_OK;
    }
    uint32_t threshold = cpu_random_threshold(p);
    float factor = scale / (1.0f - p);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t i = 0; i < samples * cpu_parts(elements, BLOCK); i++)
        stretch_times(stretch_of(i, elements, random, x, y), true, threshold,
                      factor);
    return ERR_OK;
}

enum err CPU_SYMBOL(jitter) KERNEL_LIKE(jitter)
{
    assert(elements > 0);
    TRY(cpu_require_f32(dtype, "jitter"));
    assert(samples >= 0);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t i = 0; i < samples * cpu_parts(elements, BLOCK); i++)
        stretch_times(stretch_of(i, elements, random, x, y), false, 0, amount);
    return ERR_OK;
}
