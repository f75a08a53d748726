/* What health checks compute on a GPU: patterns and whole numbers that every
 * place can tell again, and counts of what is wrong. Integers only, so nothing
 * depends on rounding. The numbers are in [-128, 127]: bf16 holds them, and
 * fp32 their products and sums exactly, in any order, up to 2^24. */
#pragma once

#include "kernels/cuda/device/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* uint64_t in device memory that every count needs; the count is their sum. A
 * count is added to what they hold. */
#define CUDA_PROBE_COUNTS 1024

#if defined(__CUDACC__) || (defined(__cplusplus) && defined(CUDA_EMULATED))
#define CUDA_PROBE_INLINE static inline __host__ __device__
#else
#define CUDA_PROBE_INLINE static inline
#endif

/* Word i of the pattern `seed`. */
CUDA_PROBE_INLINE uint32_t cuda_probe_word(uint32_t seed, int64_t i)
{
    uint64_t x = ((uint64_t)i + 1) * 0x9e3779b97f4a7c15u +
                 (uint64_t)seed * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 31)) * 0x94d049bb133111ebu;
    return (uint32_t)(x >> 32) ^ (uint32_t)(x >> 17);
}

/* Number i of the sequence `seed`. */
CUDA_PROBE_INLINE int cuda_probe_number(uint32_t seed, int64_t i)
{
    return (int)(cuda_probe_word(seed, i) & 255) - 128;
}

/* x[n] = pattern. */
enum err CUDA_SYMBOL(probe_fill)(const struct kernel_ctx *ctx, int64_t n,
                                 uint32_t seed, uint32_t *x);
/* counts += words of x[n] that are not the pattern's. */
enum err CUDA_SYMBOL(probe_wrong)(const struct kernel_ctx *ctx, int64_t n,
                                  uint32_t seed, const uint32_t *x,
                                  uint64_t *counts);
/* counts += words in which a[n] and b[n] differ. */
enum err CUDA_SYMBOL(probe_differ)(const struct kernel_ctx *ctx, int64_t n,
                                   const uint32_t *a, const uint32_t *b,
                                   uint64_t *counts);
/* counts += the words of x[n], each mixed with its place: the sum of all counts
 * is a checksum. */
enum err CUDA_SYMBOL(probe_checksum)(const struct kernel_ctx *ctx, int64_t n,
                                     const uint32_t *x, uint64_t *counts);
/* x[n] = numbers, as `dtype`: f32 or bf16. */
enum err CUDA_SYMBOL(probe_numbers)(const struct kernel_ctx *ctx,
                                    enum dtype dtype, int64_t n, uint32_t seed,
                                    void *x);
/* counts += elements of x[n] that are not the sums of the sequences seed,
 * seed + 1, ... seed + terms - 1. */
enum err CUDA_SYMBOL(probe_wrong_sum)(const struct kernel_ctx *ctx, int64_t n,
                                      uint32_t seed, int terms, const float *x,
                                      uint64_t *counts);

struct cuda_device_info; /* cuda_device.h */

/* The GPUs of a node for a check: one process or several use them by number
 * (kernels->memory->use). Lent; tests have their own. */
struct cuda_probe {
    const struct kernels *kernels;
    /* Visible GPUs. ERR_UNSUPPORTED: none that the kernels run on. */
    enum err (*count)(int *count);
    /* What the GPU is that the thread uses. */
    enum err (*info)(struct cuda_device_info *info);
    /* Lets the GPU that the thread uses reach the memory of another, if the
     * hardware can. */
    enum err (*peer)(int other, bool *direct);
    __typeof__(CUDA_SYMBOL(probe_fill)) *fill;
    __typeof__(CUDA_SYMBOL(probe_wrong)) *wrong;
    __typeof__(CUDA_SYMBOL(probe_differ)) *differ;
    __typeof__(CUDA_SYMBOL(probe_checksum)) *checksum;
    __typeof__(CUDA_SYMBOL(probe_numbers)) *numbers;
    __typeof__(CUDA_SYMBOL(probe_wrong_sum)) *wrong_sum;
};

/* The real ones; only in builds with CUDA. */
extern const struct cuda_probe cuda_probe_table;

#ifdef __cplusplus
}
#endif
