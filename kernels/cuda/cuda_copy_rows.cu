/* Rows from one stride to another: a block per row, a unit per thread. */
#include "kernels/cuda/cuda_vec.h"

template <class T>
static __global__ void copy_rows(int64_t width, int64_t x_stride, const T *x,
                                 int64_t y_stride, T *y)
{
    x += blockIdx.x * x_stride;
    y += blockIdx.x * y_stride;
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x)
        y[i] = x[i];
}

/* Width and strides in bytes. */
template <class T>
static enum err copy_rows_run(const struct kernel_ctx *ctx, int64_t rows,
                              int64_t width, int64_t x_stride, const void *x,
                              int64_t y_stride, void *y)
{
    int64_t unit = (int64_t)sizeof(T);
    CUDA_LAUNCH(copy_rows<T>, cuda_blocks(rows), cuda_threads(width / unit), 0,
                cuda_stream(ctx), width / unit, x_stride / unit, (const T *)x,
                y_stride / unit, (T *)y);
    return cuda_launched("copy_rows");
}

/* What elements are does not matter: 16 bytes are moved at a time where every
 * row begins at a multiple of 16, 2 where not. */
enum err CUDA_SYMBOL(copy_rows) KERNEL_LIKE(copy_rows)
{
    int64_t size = (int64_t)dtype_bytes(dtype);
    int64_t places = (width | x_stride | y_stride) * size |
                     (int64_t)(uintptr_t)x | (int64_t)(uintptr_t)y;
    assert(rows >= 0 && width > 0);
    assert(x_stride >= width && y_stride >= width);
    if (rows == 0)
        return ERR_OK;
    width *= size;
    x_stride *= size;
    y_stride *= size;
    if (places % CUDA_VECTOR_BYTES == 0)
        return copy_rows_run<struct cuda_piece<8, uint16_t>>(
            ctx, rows, width, x_stride, x, y_stride, y);
    return copy_rows_run<uint16_t>(ctx, rows, width, x_stride, x, y_stride, y);
}
