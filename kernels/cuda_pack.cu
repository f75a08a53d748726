/* Tensors in fewer bits; the bytes are the CPU's. */
#include "kernels/cuda_reduce.h"
#include "kernels/cuda_vec.h"

/* Elements of a thread at a time. */
#define LANES 4

/* Rows whose largest magnitude is below this are zeros in int8: 127 over it
 * must be finite. */
#define INT8_PEAK_MIN 0x1p-120f

/* Between fp32 and bf16, or a copy. */
template <class From, class To>
static __global__ void convert_elements(int64_t n, const From *x, To *y)
{
    float v[LANES];
    int64_t at = cuda_index() * LANES;
    if (at >= n)
        return;
    cuda_load<LANES>(x + at, n - at, 0, v);
    cuda_store<LANES>(y + at, n - at, v);
}

template <class From, class To>
static enum err convert_run(const struct kernel_ctx *ctx, const char *op,
                            int64_t n, const void *x, void *y)
{
    auto kernel = convert_elements<From, To>;
    int64_t vectors = cuda_parts(n, LANES);
    unsigned threads = cuda_threads(vectors);
    CUDA_LAUNCH(kernel, cuda_blocks(cuda_parts(vectors, threads)), threads, 0,
                cuda_stream(ctx), n, (const From *)x, (To *)y);
    return cuda_launched(op);
}

/* A block per row. As integers magnitudes are ordered like numbers, with Inf
 * above them and NaN above Inf: both are found by the one comparison. */
static __global__ void int8_pack(int64_t cols, const float *x, float *scales,
                                 int8_t *packed)
{
    float v[LANES];
    int most = 0;
    x += blockIdx.x * cols;
    packed += blockIdx.x * cols;
    for (int64_t at = (int64_t)threadIdx.x * LANES; at < cols;
         at += (int64_t)blockDim.x * LANES) {
        cuda_load<LANES>(x + at, cols - at, 0, v);
        for (int i = 0; i < LANES; i++) {
            int size = (int)(__float_as_uint(v[i]) & 0x7fffffffu);
            most = size > most ? size : most;
        }
    }
    most = cuda_team_reduce((int)(blockDim.x / CUDA_WARP), most, cuda_most());
    float peak = __uint_as_float((unsigned)most);
    float inverse = peak >= INT8_PEAK_MIN ? 127.0f / peak : 0;
    for (int64_t at = (int64_t)threadIdx.x * LANES; at < cols;
         at += (int64_t)blockDim.x * LANES) {
        cuda_load<LANES>(x + at, cols - at, 0, v);
        for (int i = 0; i < LANES; i++)
            v[i] *= inverse;
        cuda_store<LANES>(packed + at, cols - at, v);
    }
    if (threadIdx.x > 0)
        return;
    scales[blockIdx.x] = peak >= INT8_PEAK_MIN ? peak / 127.0f : 0;
    if (!(peak < INFINITY))
        scales[blockIdx.x] = NAN;
}

static __global__ void int8_unpack(int64_t cols, const float *scales,
                                   const int8_t *packed, float *x)
{
    float v[LANES], scale = scales[blockIdx.x];
    x += blockIdx.x * cols;
    packed += blockIdx.x * cols;
    for (int64_t at = (int64_t)threadIdx.x * LANES; at < cols;
         at += (int64_t)blockDim.x * LANES) {
        cuda_load<LANES>(packed + at, cols - at, 0, v);
        for (int i = 0; i < LANES; i++)
            v[i] *= scale;
        cuda_store<LANES>(x + at, cols - at, v);
    }
}

enum err CUDA_SYMBOL(pack)(const struct kernel_ctx *ctx, enum packing packing,
                           int64_t rows, int64_t cols, const float *x,
                           void *packed)
{
    int64_t n = rows * cols;
    if (n == 0)
        return ERR_OK;
    if (packing == PACKING_BF16)
        return convert_run<float, struct cuda_bf16>(ctx, "pack", n, x, packed);
    if (packing == PACKING_NONE)
        return convert_run<float, float>(ctx, "pack", n, x, packed);
    float *scales = (float *)packed;
    CUDA_LAUNCH(int8_pack, cuda_blocks(rows),
                cuda_threads(cuda_parts(cols, LANES)), 0, cuda_stream(ctx),
                cols, x, scales, (int8_t *)(scales + rows));
    return cuda_launched("pack");
}

enum err CUDA_SYMBOL(unpack)(const struct kernel_ctx *ctx, enum packing packing,
                             int64_t rows, int64_t cols, const void *packed,
                             float *x)
{
    int64_t n = rows * cols;
    if (n == 0)
        return ERR_OK;
    if (packing == PACKING_BF16)
        return convert_run<struct cuda_bf16, float>(ctx, "unpack", n, packed,
                                                    x);
    if (packing == PACKING_NONE)
        return convert_run<float, float>(ctx, "unpack", n, packed, x);
    const float *scales = (const float *)packed;
    CUDA_LAUNCH(int8_unpack, cuda_blocks(rows),
                cuda_threads(cuda_parts(cols, LANES)), 0, cuda_stream(ctx),
                cols, scales, (const int8_t *)(scales + rows), x);
    return cuda_launched("unpack");
}

enum err CUDA_SYMBOL(convert)(const struct kernel_ctx *ctx, int64_t n,
                              enum dtype from, const void *x, enum dtype to,
                              void *y)
{
    bool narrows = from == DTYPE_F32;
    assert(to == (narrows ? DTYPE_BF16 : DTYPE_F32));
    assert(narrows || from == DTYPE_BF16);
    (void)to;
    if (n == 0)
        return ERR_OK;
    return narrows
               ? convert_run<float, struct cuda_bf16>(ctx, "convert", n, x, y)
               : convert_run<struct cuda_bf16, float>(ctx, "convert", n, x, y);
}
