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
 * What lies outside of arrays is AddressSanitizer's to find, data races are
 * cuda_race.h's. Only what the kernels use is there. One thread of the process
 * may launch, more of them with the memory of cuda_emulator_memory.h. */
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CUDA_EMULATED 1

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
/* Threads of a block share it and blocks run one at a time: a static variable.
 * These are the only variables of a kernel file, so that its .bss can be made a
 * section of its own, which is poisoned before every block. */
#define __shared__ static

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

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes,
                            cudaStream_t stream);

#define cudaFuncAttributeMaxDynamicSharedMemorySize 8

/* Of `kernel`: more dynamic shared memory than others, for all launches to
 * come. */
cudaError_t cuda_emulator_grant(const void *kernel, int shared_bytes);

template <class K>
static inline cudaError_t cudaFuncSetAttribute(K kernel, int, int value)
{
    return cuda_emulator_grant(reinterpret_cast<const void *>(kernel), value);
}

/* Runs body(argument) for every thread of the grid, with memory of a stream
 * when the stream has come there: `bytes` of argument are kept. `name` is for
 * messages. */
void cuda_emulator_enqueue(cudaStream_t stream, const char *name,
                           const void *kernel, dim3 grid, dim3 block,
                           size_t shared_bytes, void (*body)(void *),
                           const void *argument, size_t bytes);

/* The same at once. */
void cuda_emulator_run(const char *name, const void *kernel, dim3 grid,
                       dim3 block, size_t shared_bytes, void (*body)(void *),
                       void *argument);

/* The dynamic shared memory of the running block. */
void *cuda_emulator_shared();

template <class... P, class... A>
static inline void cuda_emulator_launch(const char *name, void (*kernel)(P...),
                                        dim3 grid, dim3 block,
                                        size_t shared_bytes,
                                        cudaStream_t stream, A... arguments)
{
    auto body = [=] { kernel(arguments...); };
    auto call = [](void *it) { (*static_cast<decltype(body) *>(it))(); };
    cuda_emulator_enqueue(stream, name, reinterpret_cast<const void *>(kernel),
                          grid, block, shared_bytes, call, &body, sizeof(body));
}

/* Ends the program: what is wrong with the block that runs. */
[[noreturn]] void cuda_emulator_fail(const char *text);

/* Stores 4, 8 or 16 bytes at once. */
void cuda_emulator_store(const unsigned *words, size_t bytes, void *to);

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

/* --- tensor cores, as PTX lays their operands out --- */

/* ldmatrix.x4: lane i brings the address of row i % 8 of matrix i / 8. */
static inline void cuda_emulator_ldmatrix(bool turned, const void *row,
                                          unsigned x[4])
{
    uint64_t address = (uint64_t)(uintptr_t)row;
    const uint64_t *all =
        cuda_emulator_exchange("ldmatrix", 0xffffffffu, address);
    unsigned at = cuda_emulator_lane() / 4, pair = cuda_emulator_lane() % 4 * 2;
    for (unsigned m = 0; m < 4; m++) {
        uint16_t two[2];
        for (unsigned i = 0; i < 2; i++) {
            unsigned from = turned ? pair + i : at;
            unsigned column = turned ? at : pair + i;
            const uint16_t *matrix_row =
                (const uint16_t *)(uintptr_t)all[m * 8 + from];
            two[i] = matrix_row[column];
        }
        x[m] = two[0] | (unsigned)two[1] << 16;
    }
    if (address % 16 != 0)
        __builtin_trap();
}

/* cp.async of 16 bytes, and cp.async.wait_all: nothing is copied before. */
void cuda_emulator_fetch(const void *from, void *to);
void cuda_emulator_fetched();

static inline float cuda_emulator_half(uint64_t word, unsigned i)
{
    unsigned bits = (unsigned)(word >> 16 * i) << 16;
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* mma.m16n8k16 of bf16: register r of `a` are columns 2 (lane % 4) + 8 (r / 2)
 * and the next one of row lane / 4 + 8 (r % 2), register r of `b` are those
 * rows of column lane / 4. */
static inline void cuda_emulator_mma(const unsigned a[4], const unsigned b[2],
                                     float c[4])
{
    uint64_t rows[2][4], columns[2][4];
    unsigned lane = cuda_emulator_lane();
    for (unsigned half = 0; half < 2; half++) {
        const uint64_t *all = cuda_emulator_exchange(
            "mma", 0xffffffffu, a[half] | (uint64_t)a[half + 2] << 32);
        memcpy(rows[half], all + lane / 4 * 4, sizeof(rows[half]));
    }
    const uint64_t *all =
        cuda_emulator_exchange("mma", 0xffffffffu, b[0] | (uint64_t)b[1] << 32);
    memcpy(columns, all + lane % 4 * 8, sizeof(columns));
    for (unsigned i = 0; i < 4; i++)
        for (unsigned k = 0; k < 16; k++)
            c[i] +=
                cuda_emulator_half(rows[i / 2][k / 2 % 4], k / 8 * 2 + k % 2) *
                cuda_emulator_half(columns[i % 2][k / 2 % 4],
                                   k / 8 * 2 + k % 2);
}

/* --- arithmetic that has other names on the device --- */

/* Bytes of y, x, counted from x's lowest; the result's lowest comes from the
 * lowest digit of `places`. */
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned places)
{
    uint64_t both = x | (uint64_t)y << 32;
    unsigned bytes = 0;
    for (unsigned i = 0; i < 4; i++)
        bytes |= (unsigned)(both >> (places >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return bytes;
}

/* Blocks and threads come one after the other. Not for cuda_race.h to see. */
__attribute__((no_sanitize("thread"))) static inline int atomicMax(int *to,
                                                                   int value)
{
    int before = *to;
    *to = before < value ? value : before;
    return before;
}

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
