/* Rows from one stride to another, of any type: bytes are moved. */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

enum err CPU_SYMBOL(copy_rows) KERNEL_LIKE(copy_rows)
{
    size_t size = dtype_bytes(dtype);
    assert(rows >= 0 && width > 0);
    assert(x_stride >= width && y_stride >= width);
    assert(rows == 0 || x != y);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t row = 0; row < rows; row++)
        memcpy((char *)y + (size_t)(row * y_stride) * size,
               (const char *)x + (size_t)(row * x_stride) * size,
               (size_t)width * size);
    return ERR_OK;
}
