/* CUDA kernels on the processor, for tests: included before a .cu file that the
 * C++ compiler compiles. A launch runs its blocks one after the other in an
 * order of chance. The threads of a block are fibers that change at barriers
 * and warp collectives, in an order of chance too, and one warp stays as far
 * behind the others as barriers let it: so a missing barrier or a dependence on
 * the order of blocks shows. Shared memory is poisoned before every block. The
 * program ends with a message when
 *   - threads of a block wait where others of it never come,
 *   - lanes of a warp meet in different collectives, or not all of them,
 *   - a launch asks for what no device grants.
 * What lies outside of arrays is AddressSanitizer's to find. Only what the
 * kernels use is there. One thread of the process may launch. */
#ifndef TESSERA_TESTS_CUDA_EMULATOR_H
#define TESSERA_TESTS_CUDA_EMULATOR_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CUDA_EMULATED 1

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
/* Threads of a block share it and blocks run one at a time: a static variable,
 * in a section of its own so that all of them can be poisoned. */
#define __shared__ static __attribute__((section("cuda_shared")))

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)
        : x(x_), y(y_), z(z_)
    {
    }
};

extern dim3 threadIdx, blockIdx, blockDim, gridDim;

/* --- launches --- */

typedef void *cudaStream_t;
typedef int cudaError_t;
#define cudaSuccess 0

static inline cudaError_t cudaGetLastError()
{
    return cudaSuccess;
}

static inline const char *cudaGetErrorString(cudaError_t)
{
    return "no error";
}

static inline cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes,
                                          cudaStream_t)
{
    if (bytes > 0)
        memset(p, value, bytes);
    return cudaSuccess;
}

/* Runs body(argument) for every thread of the grid. `name` is for messages. */
void cuda_emulator_run(const char *name, dim3 grid, dim3 block,
                       size_t shared_bytes, void (*body)(void *),
                       void *argument);

/* The dynamic shared memory of the running block. */
void *cuda_emulator_shared();

template <class... P, class... A>
static inline void cuda_emulator_launch(const char *name, void (*kernel)(P...),
                                        dim3 grid, dim3 block,
                                        size_t shared_bytes, cudaStream_t,
                                        A... arguments)
{
    auto body = [&] { kernel(arguments...); };
    auto call = [](void *it) { (*static_cast<decltype(body) *>(it))(); };
    cuda_emulator_run(name, grid, block, shared_bytes, call, &body);
}

/* --- barriers and warp collectives --- */

void __syncthreads();

/* Waits until all lanes have come to the same collective; returns what each of
 * them brought. Valid until the lane's next collective but one. */
const uint64_t *cuda_emulator_exchange(const char *collective, unsigned mask,
                                       uint64_t value);

static inline unsigned cuda_emulator_lane()
{
    return threadIdx.x % 32;
}

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    cuda_emulator_exchange("__syncwarp", mask, 0);
}

template <class T>
static inline T cuda_emulator_shuffle(const char *collective, unsigned mask,
                                      T value, unsigned from)
{
    uint64_t bits = 0;
    static_assert(sizeof(T) <= sizeof(bits), "a shuffle moves 8 bytes at most");
    memcpy(&bits, &value, sizeof(T));
    const uint64_t *all = cuda_emulator_exchange(collective, mask, bits);
    if (from < 32)
        memcpy(&value, &all[from], sizeof(T));
    return value;
}

template <class T> static inline T __shfl_sync(unsigned mask, T value, int from)
{
    return cuda_emulator_shuffle("__shfl_sync", mask, value,
                                 (unsigned)from % 32);
}

template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int change)
{
    return cuda_emulator_shuffle("__shfl_xor_sync", mask, value,
                                 cuda_emulator_lane() ^ (unsigned)change);
}

/* A lane beyond the ends gets its own value. */
template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned distance)
{
    return cuda_emulator_shuffle("__shfl_up_sync", mask, value,
                                 cuda_emulator_lane() - distance);
}

template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned distance)
{
    return cuda_emulator_shuffle("__shfl_down_sync", mask, value,
                                 cuda_emulator_lane() + distance);
}

static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    const uint64_t *all =
        cuda_emulator_exchange("__ballot_sync", mask, predicate != 0);
    unsigned votes = 0;
    for (unsigned lane = 0; lane < 32; lane++)
        votes |= (unsigned)all[lane] << lane;
    return votes;
}

static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}

static inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) == 0xffffffffu;
}

static inline unsigned __match_any_sync(unsigned mask, int value)
{
    const uint64_t *all =
        cuda_emulator_exchange("__match_any_sync", mask, (uint32_t)value);
    unsigned equal = 0;
    for (unsigned lane = 0; lane < 32; lane++)
        equal |= (unsigned)(all[lane] == (uint32_t)value) << lane;
    return equal;
}

/* --- arithmetic that has other names on the device --- */

static inline int __popc(unsigned bits)
{
    return __builtin_popcount(bits);
}

static inline int __ffs(int bits)
{
    return __builtin_ffs(bits);
}

static inline unsigned __float_as_uint(float x)
{
    unsigned bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float __uint_as_float(unsigned bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

#endif
