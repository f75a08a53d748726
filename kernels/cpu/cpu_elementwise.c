/* Bias gradient, sums, and the elementwise ops that have no file of their
 * own. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_vec.h"

#include <string.h>

/* One register of doubles, and the floats that fill it. */
#define HALF (VEC_LANES / 2)
typedef double vec_f64 __attribute__((vector_size(8 * HALF)));
typedef float vec_half __attribute__((vector_size(4 * HALF)));

/* Sixteen sums, as along a row (cpu_vec.h). */
#define SUM_VECS (WIDE_LANES / HALF)
struct wide_f64 {
    vec_f64 part[SUM_VECS];
};

/* Chunks whose sums wait on the stack to be added in order. */
#define SUMS_AT_ONCE 512

/* Elements that one task adds. */
#define ADD_BLOCK 4096

static void columns_sum(int64_t n, int64_t d, int64_t first, int64_t end,
                        const float *dy, float *dbias)
{
    float sum[CPU_COLUMNS] = { 0 };
    int64_t width = end - first;
    for (int64_t i = 0; i < n; i++) {
        const float *row = dy + i * d + first;
        for (int64_t j = 0; j < width; j += VEC_LANES) {
            vec v = vec_load(row + j, width - j);
            vec_store(sum + j, VEC_LANES, v + vec_load(sum + j, VEC_LANES));
        }
    }
    for (int64_t j = 0; j < width; j++)
        dbias[first + j] += sum[j];
}

enum err CPU_SYMBOL(bias_backward) KERNEL_LIKE(bias_backward)
{
    assert(d > 0);
    TRY(cpu_require_f32(dtype, "bias_backward"));
    int64_t blocks = cpu_parts(d, CPU_COLUMNS);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t block = 0; block < blocks; block++)
        columns_sum(n, d, block * CPU_COLUMNS,
                    cpu_min(d, (block + 1) * CPU_COLUMNS), dy, dbias);
    return ERR_OK;
}

enum err CPU_SYMBOL(accumulate) KERNEL_LIKE(accumulate)
{
    return CPU_SYMBOL(add)(ctx, dtype, n, y, 1.0f, x, y);
}

enum err CPU_SYMBOL(add) KERNEL_LIKE(add)
{
    TRY(cpu_require_f32(dtype, "add"));
    assert(n >= 0);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t at = 0; at < n; at += ADD_BLOCK)
        vec_row_add(cpu_min(ADD_BLOCK, n - at), (const float *)a + at, scale,
                    (const float *)b + at, (float *)out + at);
    return ERR_OK;
}

enum err CPU_SYMBOL(zero) KERNEL_LIKE(zero)
{
    int64_t chunks = cpu_parts(n, KERNEL_CHUNK);
    assert(n >= 0);
    size_t size = dtype_bytes(dtype);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        int64_t at = chunk * KERNEL_CHUNK;
        memset((char *)x + (size_t)at * size, 0,
               (size_t)cpu_min(KERNEL_CHUNK, n - at) * size);
    }
    return ERR_OK;
}

static inline vec_f64 half_load_f64(const float *p)
{
    vec_half half;
    memcpy(&half, p, sizeof(half));
    return __builtin_convertvector(half, vec_f64);
}

static double lanes_sum(const struct wide_f64 *w)
{
    double lane[WIDE_LANES];
    double sum = 0;
    memcpy(lane, w->part, sizeof(w->part));
    for (int i = 0; i < WIDE_LANES / 2; i++)
        sum += lane[i] + lane[i + WIDE_LANES / 2];
    return sum;
}

static double chunk_sum(const float *x, int64_t n)
{
    struct wide_f64 sum = { 0 };
    float rest[WIDE_LANES] = { 0 };
    int64_t whole = n / WIDE_LANES * WIDE_LANES;
    for (int64_t i = 0; i < whole; i += WIDE_LANES)
        for (int k = 0; k < SUM_VECS; k++)
            sum.part[k] += half_load_f64(x + i + k * HALF);
    memcpy(rest, x + whole, (size_t)(n - whole) * sizeof(float));
    for (int k = 0; k < SUM_VECS; k++)
        sum.part[k] += half_load_f64(rest + k * HALF);
    return lanes_sum(&sum);
}

static double chunk_squares(const float *x)
{
    struct wide_f64 sum = { 0 };
    for (int64_t i = 0; i < KERNEL_CHUNK; i += WIDE_LANES)
        for (int k = 0; k < SUM_VECS; k++) {
            vec_f64 a = half_load_f64(x + i + k * HALF);
            sum.part[k] += a * a;
        }
    return lanes_sum(&sum);
}

enum err CPU_SYMBOL(sum) KERNEL_LIKE(sum)
{
    double sums[SUMS_AT_ONCE];
    int64_t chunks = cpu_parts(n, KERNEL_CHUNK);
    assert(n >= 0);
    double total = 0;
    for (int64_t first = 0; first < chunks; first += SUMS_AT_ONCE) {
        int64_t count = cpu_min(SUMS_AT_ONCE, chunks - first);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
        for (int64_t i = 0; i < count; i++) {
            int64_t at = (first + i) * KERNEL_CHUNK;
            sums[i] = chunk_sum(x + at, cpu_min(KERNEL_CHUNK, n - at));
        }
        for (int64_t i = 0; i < count; i++)
            total += sums[i];
    }
    *out = total;
    return ERR_OK;
}

enum err CPU_SYMBOL(chunk_sum_squares) KERNEL_LIKE(chunk_sum_squares)
{
    assert(n % KERNEL_CHUNK == 0);
    TRY(cpu_require_f32(dtype, "chunk_sum_squares"));
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t chunk = 0; chunk < n / KERNEL_CHUNK; chunk++)
        out[chunk] = chunk_squares((const float *)x + chunk * KERNEL_CHUNK);
    return ERR_OK;
}
