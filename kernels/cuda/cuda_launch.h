/* Launches, and what every CUDA kernel file needs beside its kernels. The same
 * sources are compiled by nvcc and, for tests without a GPU, by a C++ compiler
 * that includes an emulator first (CUDA_EMULATED): so launches and dynamic
 * shared memory have names of our own. A fused multiply-add happens where fmaf
 * stands and nowhere else (-fmad=false). */
#pragma once

#include <assert.h>
#include <math.h>

#include "kernels/cuda/device/cuda.h"

#ifdef CUDA_EMULATED
#define CUDA_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)            \
    cuda_emulator_launch(#kernel, kernel, grid, block, shared_bytes, stream,   \
                         __VA_ARGS__)
#define CUDA_SHARED(type, name) type *name = (type *)cuda_emulator_shared()
#else
#define CUDA_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)            \
    kernel<<<grid, block, shared_bytes, stream>>>(__VA_ARGS__)
/* The block's dynamic shared memory, `shared_bytes` of the launch. */
#define CUDA_SHARED(type, name)                                                \
    extern __shared__ __align__(16) double cuda_shared_memory[];               \
    type *name = (type *)cuda_shared_memory
#endif

#define CUDA_DEVICE static inline __device__

/* Bounds of a kernel: threads of a block, and for how many blocks on a
 * multiprocessor it keeps its registers few. ptxas refuses more than it holds:
 * 1,536 threads on 8.6 to 8.9 and from 11.0 on, 2,048 elsewhere. */
#if defined(__CUDA_ARCH__) &&                                                  \
    (__CUDA_ARCH__ / 10 * 10 != 800 && __CUDA_ARCH__ < 900 ||                  \
     __CUDA_ARCH__ >= 1100)
#define CUDA_RESIDENT_THREADS 1536
#else
#define CUDA_RESIDENT_THREADS 2048
#endif
#define CUDA_RESIDENT(threads, blocks)                                         \
    __launch_bounds__(threads, (threads) * (blocks) > CUDA_RESIDENT_THREADS    \
                                   ? CUDA_RESIDENT_THREADS / (threads)         \
                                   : (blocks))

/* Threads of a warp, and the most that our blocks have. */
#define CUDA_WARP 32
#define CUDA_THREADS 256
/* Shared memory that a block gets without asking for more. */
#define CUDA_SHARED_BYTES (49152 - 1024)

static inline enum err cuda_lacks_dtype(const char *op, enum dtype dtype)
{
    return err_set(ERR_UNSUPPORTED,
                   "op %s: the CUDA kernels compute in f32 and bf16, not %s",
                   op, dtype_name(dtype));
}

/* After a launch. What a kernel does wrong while it runs is known later only,
 * to the next op or to whoever waits for the stream. */
static inline enum err cuda_launched(const char *op)
{
    cudaError_t code = cudaGetLastError();
    if (code == cudaSuccess)
        return ERR_OK;
    return err_set(ERR_INTERNAL,
                   "op %s: CUDA says of its launch or of an op before: %s", op,
                   cudaGetErrorString(code));
}

static inline cudaStream_t cuda_stream(const struct kernel_ctx *ctx)
{
    return (cudaStream_t)ctx->stream;
}

static inline __host__ __device__ int64_t cuda_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline __host__ __device__ int64_t cuda_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Parts of `size` that cover n. */
static inline __host__ __device__ int64_t cuda_parts(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

/* Threads for `items` side by side: whole warps, at most CUDA_THREADS. */
static inline unsigned cuda_threads(int64_t items)
{
    int64_t warps = cuda_max(1, cuda_parts(items, CUDA_WARP));
    return (unsigned)cuda_min(warps * CUDA_WARP, CUDA_THREADS);
}

/* A grid dimension; 2^31 - 1 blocks are more than any model has. */
static inline unsigned cuda_blocks(int64_t n)
{
    assert(n > 0 && n <= INT32_MAX);
    return (unsigned)n;
}
