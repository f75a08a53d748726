/* Token and position embeddings, forward and backward. Rotary positions are
 * cpu_rope.c. */
#include "kernels/cpu/cpu.h"

#include <string.h>

enum err CPU_SYMBOL(embedding_forward) KERNEL_LIKE(embedding_forward)
{
    assert(seq > 0 && d > 0);
    TRY(cpu_require_f32(dtype, "embedding_forward"));
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        assert(tokens[i] >= 0);
        const float *token = (const float *)wte + tokens[i] * d;
        float *row = (float *)out + i * d;
        if (wpe == NULL) {
            memcpy(row, token, (size_t)d * sizeof(float));
            continue;
        }
        const float *position = (const float *)wpe + i % seq * d;
#pragma omp simd
        for (int64_t j = 0; j < d; j++)
            row[j] = token[j] + position[j];
    }
    return ERR_OK;
}

/* Tokens repeat, so threads own columns, and each column is summed in the order
 * of the rows. */
static void columns_backward(int64_t n, int64_t seq, int64_t d, int64_t first,
                             int64_t end, const int32_t *tokens,
                             const float *dout, float *dwte, float *dwpe)
{
    for (int64_t i = 0; i < n; i++) {
        const float *row = dout + i * d;
        assert(tokens[i] >= 0);
        float *token = dwte + tokens[i] * d;
#pragma omp simd
        for (int64_t j = first; j < end; j++)
            token[j] += row[j];
        if (dwpe == NULL)
            continue;
        float *position = dwpe + i % seq * d;
#pragma omp simd
        for (int64_t j = first; j < end; j++)
            position[j] += row[j];
    }
}

enum err CPU_SYMBOL(embedding_backward) KERNEL_LIKE(embedding_backward)
{
    assert(seq > 0 && d > 0);
    TRY(cpu_require_f32(dtype, "embedding_backward"));
    assert(n >= 0 && dwpe != dwte);
    int64_t blocks = cpu_parts(d, CPU_COLUMNS);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t block = 0; block < blocks; block++)
        columns_backward(n, seq, d, block * CPU_COLUMNS,
                         cpu_min(d, (block + 1) * CPU_COLUMNS), tokens, dout,
                         dwte, dwpe);
    return ERR_OK;
}
