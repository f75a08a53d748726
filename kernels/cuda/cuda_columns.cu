/* Sums over rows: bias gradients, and the last step of the norms' weight
 * gradients. Rows are cut into chunks whose number follows from the shape, each
 * is summed in order into its own row of scratch, then the chunks. One thread
 * per column would leave the device idle, and atomics would add in an order of
 * chance; with chunks there is work for all, and one order. */
#include "kernels/cuda/cuda_held.h"
#include "kernels/cuda/cuda_reduce.h"

/* Chunks that rows are cut into, at most; fewer if they get too short. */
#define CHUNKS_MAX 256
#define CHUNK_MIN 8

/* Rows that a thread reads at a time. */
#define ROWS_HELD 4

/* Threads that add every SLICES'th partial row of the same column, before their
 * sums are added in order. */
#define SLICES 8

size_t CUDA_SYMBOL(columns_scratch)(const struct kernel_limits *limits)
{
    int64_t chunks =
        cuda_min(CHUNKS_MAX, cuda_parts(limits->tokens, CHUNK_MIN));
    return (size_t)(chunks * limits->width) * sizeof(float);
}

static __global__ void columns_add(int64_t rows, int64_t step, int64_t columns,
                                   const float *partial, float *out)
{
    __shared__ float sums[SLICES][CUDA_WARP];
    int64_t column = (int64_t)blockIdx.x * CUDA_WARP + threadIdx.x % CUDA_WARP;
    unsigned slice = threadIdx.x / CUDA_WARP;
    float sum = 0;
    if (column < columns)
        for (int64_t row = slice; row < rows; row += SLICES)
            sum += partial[row * step + column];
    sums[slice][threadIdx.x % CUDA_WARP] = sum;
    __syncthreads();
    if (slice > 0 || column >= columns)
        return;
    for (int i = 1; i < SLICES; i++)
        sum += sums[i][threadIdx.x];
    out[column] += sum;
}

enum err CUDA_SYMBOL(columns_add)(const struct kernel_ctx *ctx, const char *op,
                                  int64_t rows, int64_t step, int64_t columns,
                                  const float *partial, float *out)
{
    CUDA_LAUNCH(columns_add, cuda_blocks(cuda_parts(columns, CUDA_WARP)),
                SLICES * CUDA_WARP, 0, cuda_stream(ctx), rows, step, columns,
                partial, out);
    return cuda_launched(op);
}

/* A thread has a vector of columns, a block a slab of them in one chunk. */
template <class T>
static __global__ void columns_sum(int64_t n, int64_t d, int64_t rows,
                                   const T *dy, float *partial)
{
    const int lanes = cuda_lanes<T>::count;
    int64_t at = cuda_index() * lanes, chunk = blockIdx.y;
    int64_t end = cuda_min(n, (chunk + 1) * rows);
    struct cuda_held<T, ROWS_HELD> held;
    float sum[lanes] = { 0 }, x[lanes];
    if (at >= d)
        return;
    for (int64_t i = chunk * rows; i < end; i += ROWS_HELD) {
        /* a vector over the end of a row has sums that are not stored */
        cuda_hold(dy + i * d + at, d, (end - i) * d - at, &held);
        CUDA_UNROLL
        for (int r = 0; r < ROWS_HELD; r++) {
            cuda_held_values(held, r, x);
            for (int k = 0; k < lanes; k++)
                sum[k] += x[k];
        }
    }
    cuda_store<lanes>(partial + chunk * d + at, d - at, sum);
}

enum err CUDA_SYMBOL(bias_backward) KERNEL_LIKE(bias_backward)
{
    assert(d > 0);
    if (n == 0)
        return ERR_OK;
    return cuda_by_dtype(dtype, "bias_backward", [&](auto element) {
        typedef decltype(element) T;
        int64_t rows = cuda_max(CHUNK_MIN, cuda_parts(n, CHUNKS_MAX));
        int64_t chunks = cuda_parts(n, rows);
        int64_t vectors = cuda_parts(d, cuda_lanes<T>::count);
        unsigned threads = (unsigned)cuda_min(cuda_threads(vectors), 64);
        dim3 grid(cuda_blocks(cuda_parts(vectors, threads)), (unsigned)chunks);
        float *partial = (float *)ctx->scratch;
        assert(ctx->scratch_bytes >= (size_t)(chunks * d) * sizeof(float));
        CUDA_LAUNCH(columns_sum<T>, grid, threads, 0, cuda_stream(ctx), n, d,
                    rows, (const T *)dy, partial);
        return CUDA_SYMBOL(columns_add)(ctx, "bias_backward", chunks, d, d,
                                        partial, (float *)dbias);
    });
}
