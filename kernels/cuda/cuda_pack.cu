/* Packs activations into fewer bits and back; the bytes are the same as the
 * CPU's. In int8 a row is its numbers times 127 / its largest magnitude, and
 * that scale: a row is a token, so an outlier coarsens its own token and no
 * other. */
#include "kernels/cuda/cuda_reduce.h"
#include "kernels/cuda/cuda_vec.h"

/* Elements of a thread at a time in conversions. */
#define LANES 4

/* Rows whose largest magnitude is below this are zeros in int8: 127 over it
 * must be finite. */
#define INT8_PEAK_MIN 0x1p-120f

/* Elements of a thread, 16 bytes of bf16. */
#define CONVERT_LANES 8

/* Between fp32 and bf16, or a copy. */
template <class From, class To>
static __global__ void convert_elements(int64_t n, const From *x, To *y)
{
    float v[CONVERT_LANES];
    int64_t at = cuda_index() * CONVERT_LANES;
    if (at >= n)
        return;
    cuda_load<CONVERT_LANES>(x + at, n - at, 0, v);
    cuda_store<CONVERT_LANES>(y + at, n - at, v);
}

template <class From, class To>
static enum err convert_run(const struct kernel_ctx *ctx, const char *op,
                            int64_t n, const void *x, void *y)
{
    auto kernel = convert_elements<From, To>;
    int64_t vectors = cuda_parts(n, CONVERT_LANES);
    unsigned threads = cuda_threads(vectors);
    CUDA_LAUNCH(kernel, cuda_blocks(cuda_parts(vectors, threads)), threads, 0,
                cuda_stream(ctx), n, (const From *)x, (To *)y);
    return cuda_launched(op);
}

/* A block per row. As integers magnitudes are ordered like numbers, with Inf
 * above them and NaN above Inf: both are found by the one comparison. */
template <class T>
static __global__ void int8_pack(int64_t cols, const T *x, float *scales,
                                 int8_t *packed)
{
    const int lanes = cuda_lanes<T>::count;
    float v[lanes];
    int most = 0;
    x += blockIdx.x * cols;
    packed += blockIdx.x * cols;
    CUDA_FOR_COLUMNS(at, cols, lanes)
    {
        cuda_load<lanes>(x + at, cols - at, 0, v);
        for (int i = 0; i < lanes; i++) {
            int size = (int)(__float_as_uint(v[i]) & 0x7fffffffu);
            most = size > most ? size : most;
        }
    }
    most = cuda_team_reduce((int)(blockDim.x / CUDA_WARP), most, cuda_most());
    float peak = __uint_as_float((unsigned)most);
    float inverse = peak >= INT8_PEAK_MIN ? 127.0f / peak : 0;
    CUDA_FOR_COLUMNS(at, cols, lanes)
    {
        cuda_load<lanes>(x + at, cols - at, 0, v);
        for (int i = 0; i < lanes; i++)
            v[i] *= inverse;
        cuda_store<lanes>(packed + at, cols - at, v);
    }
    if (threadIdx.x > 0)
        return;
    scales[blockIdx.x] = peak >= INT8_PEAK_MIN ? peak / 127.0f : 0;
    if (!(peak < INFINITY))
        scales[blockIdx.x] = NAN;
}

template <class T>
static __global__ void int8_unpack(int64_t cols, const float *scales,
                                   const int8_t *packed, T *x)
{
    const int lanes = cuda_lanes<T>::count;
    float v[lanes], scale = scales[blockIdx.x];
    x += blockIdx.x * cols;
    packed += blockIdx.x * cols;
    CUDA_FOR_COLUMNS(at, cols, lanes)
    {
        cuda_load<lanes>(packed + at, cols - at, 0, v);
        for (int i = 0; i < lanes; i++)
            v[i] *= scale;
        cuda_store<lanes>(x + at, cols - at, v);
    }
}

enum err CUDA_SYMBOL(pack) KERNEL_LIKE(pack)
{
    int64_t n = rows * cols;
    assert(dtype == DTYPE_F32 || packing == PACKING_INT8);
    if (n == 0)
        return ERR_OK;
    if (packing == PACKING_BF16)
        return convert_run<float, struct cuda_bf16>(ctx, "pack", n, x, packed);
    if (packing == PACKING_NONE)
        return convert_run<float, float>(ctx, "pack", n, x, packed);
    return cuda_by_dtype(dtype, "pack", [&](auto element) {
        typedef decltype(element) T;
        auto kernel = int8_pack<T>;
        float *scales = (float *)packed;
        CUDA_LAUNCH(kernel, cuda_blocks(rows),
                    cuda_threads(cuda_parts(cols, cuda_lanes<T>::count)), 0,
                    cuda_stream(ctx), cols, (const T *)x, scales,
                    (int8_t *)(scales + rows));
        return cuda_launched("pack");
    });
}

enum err CUDA_SYMBOL(unpack) KERNEL_LIKE(unpack)
{
    int64_t n = rows * cols;
    assert(dtype == DTYPE_F32 || packing == PACKING_INT8);
    if (n == 0)
        return ERR_OK;
    if (packing == PACKING_BF16)
        return convert_run<struct cuda_bf16, float>(ctx, "unpack", n, packed,
                                                    x);
    if (packing == PACKING_NONE)
        return convert_run<float, float>(ctx, "unpack", n, packed, x);
    return cuda_by_dtype(dtype, "unpack", [&](auto element) {
        typedef decltype(element) T;
        auto kernel = int8_unpack<T>;
        const float *scales = (const float *)packed;
        CUDA_LAUNCH(kernel, cuda_blocks(rows),
                    cuda_threads(cuda_parts(cols, cuda_lanes<T>::count)), 0,
                    cuda_stream(ctx), cols, scales,
                    (const int8_t *)(scales + rows), (T *)x);
        return cuda_launched("unpack");
    });
}

enum err CUDA_SYMBOL(convert) KERNEL_LIKE(convert)
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
