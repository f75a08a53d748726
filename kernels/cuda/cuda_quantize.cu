/* Tensors in 8-bit floats, read once for themselves and for their transpose.
 *
 * A product in 8 bits wants the index that is summed over innermost in both
 * operands, so what forward reads by rows backward reads by columns: both are
 * written while the numbers are in registers, the transpose by way of shared
 * memory. Numbers are multiplied by a scale that brings the tensor's range into
 * that of the format: E4M3 (3 bits of mantissa, up to 448) for what forward
 * multiplies, E5M2 (2 bits, up to 57344) for gradients, whose range is wider
 * (Micikevicius et al. 2022). The scale is that of former steps, as today's
 * largest number is known only when all were read; it is found on the way, for
 * the steps to come. */
#include "kernels/cuda/cuda_fp8.h"
#include "kernels/cuda/cuda_reduce.h"

/* A block's tile. A thread has 4 rows of 8 columns, a warp 16 of 64. */
#define TILE_ROWS 128
#define TILE_COLS 64
#define HIGH 4
#define WIDE 8
#define COL_WORDS (TILE_ROWS / 4)
#define COL_VECTORS (TILE_ROWS / CUDA_VECTOR_BYTES)

struct quantize {
    int64_t rows, cols;
    const struct cuda_bf16 *x;
    const float *scale;
    uint8_t *y, *across;
    float *largest;
};

/* Codes of 8 elements side by side; *most is the bits of the largest finite
 * one so far. */
template <enum fp8 F>
CUDA_DEVICE void row_codes(struct cuda_piece<4, unsigned> x, float scale,
                           unsigned codes[2], unsigned *most)
{
    CUDA_UNROLL
    for (int i = 0; i < 4; i++) {
        unsigned low = x.at[i] << 16, high = x.at[i] & 0xffff0000;
        unsigned pair = cuda_fp8_pair<F>(__uint_as_float(low) * scale,
                                         __uint_as_float(high) * scale);
        codes[i / 2] = i % 2 == 0 ? pair : codes[i / 2] | pair << 16;
        low &= 0x7fffffff;
        high &= 0x7fffffff;
        *most = low > *most && low < 0x7f800000 ? low : *most;
        *most = high > *most && high < 0x7f800000 ? high : *most;
    }
}

/* columns[i] = byte i of each row. */
CUDA_DEVICE void turn(const unsigned rows[4], unsigned columns[4])
{
    unsigned a = __byte_perm(rows[0], rows[1], 0x5140);
    unsigned b = __byte_perm(rows[2], rows[3], 0x5140);
    unsigned c = __byte_perm(rows[0], rows[1], 0x7362);
    unsigned d = __byte_perm(rows[2], rows[3], 0x7362);
    columns[0] = __byte_perm(a, b, 0x5410);
    columns[1] = __byte_perm(a, b, 0x7632);
    columns[2] = __byte_perm(c, d, 0x5410);
    columns[3] = __byte_perm(c, d, 0x7632);
}

/* Where a column's 16 rows lie in shared memory: other columns' are in other
 * banks, both for lanes that write and for those that read. */
CUDA_DEVICE int place(int column, int vector)
{
    return column * COL_WORDS + (vector ^ column / WIDE) * 4;
}

template <enum fp8 F>
static __global__ void __launch_bounds__(CUDA_THREADS)
    quantize_tiles(struct quantize q)
{
    typedef struct cuda_piece<4, unsigned> piece;
    CUDA_SHARED(unsigned, turned);
    const int lane = cuda_lane(), warp = (int)threadIdx.x / CUDA_WARP;
    const int64_t tiles = cuda_parts(q.cols, TILE_COLS);
    const int64_t first_row = blockIdx.x / tiles * TILE_ROWS;
    const int64_t first_col = blockIdx.x % tiles * TILE_COLS;
    const int down = lane / 8, right = lane % 8 * WIDE;
    const int64_t row = first_row + warp * 4 * HIGH + down * HIGH;
    const int64_t at = row * q.cols + first_col + right;
    unsigned codes[2][HIGH], columns[4], most = 0;
    if (row < q.rows && first_col + right < q.cols) {
        const float scale = *q.scale;
        piece x[HIGH];
        CUDA_UNROLL
        for (int i = 0; i < HIGH; i++)
            x[i] = *(const piece *)(q.x + at + i * q.cols);
        CUDA_UNROLL
        for (int i = 0; i < HIGH; i++) {
            unsigned two[4] = { 0 };
            row_codes<F>(x[i], scale, two, &most);
            if (q.y != NULL)
                cuda_put_words(two, WIDE, q.y + at + i * q.cols);
            codes[0][i] = two[0];
            codes[1][i] = two[1];
        }
        CUDA_UNROLL
        for (int half = 0; half < 2; half++) {
            turn(codes[half], columns);
            CUDA_UNROLL
            for (int i = 0; i < 4; i++)
                turned[place(right + half * 4 + i, warp) + down] = columns[i];
        }
    }
    int size =
        cuda_team_reduce(CUDA_THREADS / CUDA_WARP, (int)most, cuda_most());
    /* Bits of numbers that are not negative are ordered like the numbers. */
    if (threadIdx.x == 0)
        atomicMax((int *)q.largest, size);
    if (q.across == NULL)
        return;
    for (int i = (int)threadIdx.x; i < TILE_COLS * COL_VECTORS;
         i += CUDA_THREADS) {
        const int column = i / COL_VECTORS, vector = i % COL_VECTORS;
        const int64_t to_row = first_row + vector * CUDA_VECTOR_BYTES;
        if (to_row >= q.rows || first_col + column >= q.cols)
            continue;
        const piece words = *(const piece *)(turned + place(column, vector));
        cuda_put_words(words.at, CUDA_VECTOR_BYTES,
                       q.across + (first_col + column) * q.rows + to_row);
    }
}

enum err CUDA_SYMBOL(quantize) KERNEL_LIKE(quantize)
{
    const struct quantize q = {
        rows,   cols,         (const struct cuda_bf16 *)x,
        scale,  (uint8_t *)y, (uint8_t *)across,
        largest
    };
    auto kernel =
        to == FP8_E4M3 ? quantize_tiles<FP8_E4M3> : quantize_tiles<FP8_E5M2>;
    assert(rows % 16 == 0 && cols % 16 == 0);
    assert((uintptr_t)x % 16 == 0 && (uintptr_t)y % 16 == 0);
    assert((uintptr_t)across % 16 == 0);
    if (rows == 0 || cols == 0)
        return ERR_OK;
    CUDA_LAUNCH(
        kernel,
        cuda_blocks(cuda_parts(rows, TILE_ROWS) * cuda_parts(cols, TILE_COLS)),
        CUDA_THREADS, TILE_ROWS * TILE_COLS, cuda_stream(ctx), q);
    return cuda_launched("quantize");
}
