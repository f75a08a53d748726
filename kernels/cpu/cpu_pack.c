/* Packs activations into bf16 or int8 with a scale for each row, and back, for
 * memory.compression. Products in 8 bits are another thing (model_fp8.c, on
 * GPUs only). */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_bf16.h"
#include "kernels/cpu/cpu_int8.h"

#include <math.h>

/* Elements of one task of the packings without rows. */
#define BLOCK 4096

static void bf16_pack(int64_t n, const float *x, uint16_t *out)
{
    for (int64_t i = 0; i < n; i += VEC_LANES)
        vec_store_bf16(out + i, n - i, vec_load(x + i, n - i));
}

static void bf16_unpack(int64_t n, const uint16_t *in, float *x)
{
    for (int64_t i = 0; i < n; i += VEC_LANES)
        vec_store(x + i, n - i, vec_load_bf16(in + i, n - i));
}

/* By hand: the compiler would go lane by lane. */
static inline vec_i32 vec_max_i32(vec_i32 a, vec_i32 b)
{
#if defined(__AVX512F__)
    return (vec_i32)_mm512_max_epi32((__m512i)a, (__m512i)b);
#elif VEC_LANES == 8
    return (vec_i32)_mm256_max_epi32((__m256i)a, (__m256i)b);
#else
    return (vec_i32)vec_select(a > b, (vec)a, (vec)b);
#endif
}

/* As integers magnitudes are ordered like numbers, with Inf above them and NaN
 * above Inf: both are found by the one comparison. */
static float row_peak(int64_t n, const float *x)
{
    vec_i32 top = { 0 };
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        vec_i32 size = (vec_i32)vec_load(x + i, n - i) & 0x7fffffff;
        top = vec_max_i32(top, size);
    }
    int32_t most = 0;
    for (int i = 0; i < VEC_LANES; i++)
        most = top[i] > most ? top[i] : most;
    float peak;
    memcpy(&peak, &most, sizeof(peak));
    return peak;
}

/* Adding 1.5 * 2^23 rounds to an integer, which the bits then count. */
static float int8_pack(int64_t n, const float *x, int8_t *out)
{
    const vec rounder = vec_splat(12582912.0f);
    float peak = row_peak(n, x);
    if (!isfinite(peak)) {
        memset(out, 0, (size_t)n);
        return NAN;
    }
    float inverse = peak >= INT8_PEAK_MIN ? 127.0f / peak : 0;
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        vec shifted = vec_load(x + i, n - i) * inverse + rounder;
        vec_i8 q = vec_narrow((vec_i32)shifted - (vec_i32)rounder);
        if (n - i >= VEC_LANES)
            memcpy(out + i, &q, sizeof(q));
        else
            memcpy(out + i, &q, (size_t)(n - i));
    }
    return peak >= INT8_PEAK_MIN ? peak / 127.0f : 0;
}

static void int8_unpack(int64_t n, float scale, const int8_t *in, float *x)
{
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        vec_i8 q = { 0 };
        if (n - i >= VEC_LANES)
            memcpy(&q, in + i, sizeof(q));
        else
            memcpy(&q, in + i, (size_t)(n - i));
        vec_store(x + i, n - i,
                  __builtin_convertvector(vec_widen(q), vec) * scale);
    }
}

enum err CPU_SYMBOL(pack) KERNEL_LIKE(pack)
{
    int64_t n = rows * cols;
    const float *values = x;
    TRY(cpu_require_f32(dtype, "pack"));
    assert(rows >= 0 && cols >= 0 && x != packed);
    if (packing == PACKING_INT8) {
        float *scales = packed;
        int8_t *bytes = (int8_t *)(scales + rows);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
        for (int64_t i = 0; i < rows; i++)
            scales[i] = int8_pack(cols, values + i * cols, bytes + i * cols);
        return ERR_OK;
    }
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t count = cpu_min(BLOCK, n - at);
        if (packing == PACKING_BF16)
            bf16_pack(count, values + at, (uint16_t *)packed + at);
        else
            memcpy((float *)packed + at, values + at,
                   (size_t)count * sizeof(*values));
    }
    return ERR_OK;
}

enum err CPU_SYMBOL(unpack) KERNEL_LIKE(unpack)
{
    int64_t n = rows * cols;
    float *values = x;
    TRY(cpu_require_f32(dtype, "unpack"));
    assert(rows >= 0 && cols >= 0 && x != packed);
    if (packing == PACKING_INT8) {
        const float *scales = packed;
        const int8_t *bytes = (const int8_t *)(scales + rows);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
        for (int64_t i = 0; i < rows; i++)
            int8_unpack(cols, scales[i], bytes + i * cols, values + i * cols);
        return ERR_OK;
    }
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t count = cpu_min(BLOCK, n - at);
        if (packing == PACKING_BF16)
            bf16_unpack(count, (const uint16_t *)packed + at, values + at);
        else
            memcpy(values + at, (const float *)packed + at,
                   (size_t)count * sizeof(*values));
    }
    return ERR_OK;
}

enum err CPU_SYMBOL(convert) KERNEL_LIKE(convert)
{
    bool narrows = from == DTYPE_F32;
    assert(to == (narrows ? DTYPE_BF16 : DTYPE_F32));
    assert(narrows || from == DTYPE_BF16);
    assert(n >= 0 && x != y);
    (void)to;
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t count = cpu_min(BLOCK, n - at);
        if (narrows)
            bf16_pack(count, (const float *)x + at, (uint16_t *)y + at);
        else
            bf16_unpack(count, (const uint16_t *)x + at, (float *)y + at);
    }
    return ERR_OK;
}
