#include "tests/cuda_emulator_cases.h"

#include "kernels/cuda/cuda_vec.h"

#define ALL 0xffffffffu

CUDA_DEVICE int next_thread(void)
{
    return (int)((threadIdx.x + 1) % CASE_THREADS);
}

static __global__ void barrier(bool with, float *out)
{
    __shared__ float numbers[CASE_THREADS];
    numbers[threadIdx.x] = (float)threadIdx.x;
    if (with)
        __syncthreads();
    out[threadIdx.x] = numbers[next_thread()];
}

static __global__ void dynamic(float *out)
{
    CUDA_SHARED(float, numbers);
    numbers[threadIdx.x] = (float)threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = numbers[next_thread()];
}

static __global__ void last_block(float *out)
{
    out[0] = (float)blockIdx.x;
}

static __global__ void left_over(float *out)
{
    __shared__ float numbers[CASE_THREADS];
    out[threadIdx.x] = numbers[threadIdx.x];
    numbers[threadIdx.x] = 1;
}

static __global__ void shuffles(float *out)
{
    int lane = (int)(threadIdx.x % CUDA_WARP);
    int warp = (int)(threadIdx.x / CUDA_WARP) * 100;
    double half = warp + lane + 0.5;
    bool right = __shfl_xor_sync(ALL, half, 5) == warp + (lane ^ 5) + 0.5;
    right &= __shfl_sync(ALL, lane, 7) == 7;
    right &= __shfl_up_sync(ALL, lane, 3) == (lane < 3 ? lane : lane - 3);
    right &= __shfl_down_sync(ALL, lane, 3) == (lane > 28 ? lane : lane + 3);
    right &= __ballot_sync(ALL, lane % 2) == 0xaaaaaaaau;
    right &= __any_sync(ALL, lane == 9) && !__all_sync(ALL, lane != 9);
    right &=
        __match_any_sync(ALL, lane / 16) == (lane < 16 ? 0xffffu : 0xffff0000u);
    out[threadIdx.x] = right;
}

static __global__ void early_end(float *out)
{
    if (threadIdx.x == 40)
        return;
    __syncthreads();
    out[threadIdx.x] = 1;
}

static __global__ void half_warp(float *out)
{
    if (threadIdx.x % CUDA_WARP < 16)
        out[threadIdx.x] = __shfl_xor_sync(ALL, (float)threadIdx.x, 1);
}

static __global__ void two_kinds(float *out)
{
    if (threadIdx.x % CUDA_WARP < 16)
        out[threadIdx.x] = __shfl_xor_sync(ALL, (float)threadIdx.x, 1);
    else
        out[threadIdx.x] = (float)__ballot_sync(ALL, 1);
}

static __global__ void mask(float *out)
{
    out[threadIdx.x] = (float)__ballot_sync(0xffffu, 1);
}

static __global__ void load_alignment(float *out)
{
    out[threadIdx.x] = 0;
    struct cuda_piece<4, float> some =
        *(const struct cuda_piece<4, float> *)(out + 1);
    out[threadIdx.x] = some.at[0];
}

static __global__ void store_alignment(float *out)
{
    const unsigned words[4] = { 0 };
    cuda_put_words(words, sizeof(words), out + 1);
}

static __global__ void dynamic_end(float *out)
{
    CUDA_SHARED(float, numbers);
    numbers[threadIdx.x] = 0;
    __syncthreads();
    out[threadIdx.x] = numbers[threadIdx.x + 1];
}

/* A template, as most kernels are. */
template <class T> static __global__ void static_end(T *out)
{
    __shared__ T numbers[CASE_THREADS];
    const T *behind = numbers + threadIdx.x + 1;
    numbers[threadIdx.x] = 0;
    __syncthreads();
    out[threadIdx.x] = *behind;
}

static __global__ void tensor_end(float *out)
{
    float x[4];
    cuda_load<4>(out + CASE_THREADS / 4 * 4, 4, 0, x);
    out[threadIdx.x] = x[0];
}

void cuda_emulator_case(enum cuda_emulator_case which, float *out)
{
    const unsigned blocks = CASE_BLOCKS, threads = CASE_THREADS;
    void (*const kernels[])(float *) = {
        dynamic,         last_block,  left_over,         shuffles,
        early_end,       half_warp,   two_kinds,         mask,
        last_block,      last_block,  last_block,        load_alignment,
        store_alignment, dynamic_end, static_end<float>, tensor_end
    };
    if (which == CASE_BARRIER || which == CASE_NO_BARRIER) {
        CUDA_LAUNCH(barrier, blocks, threads, 0, NULL, which == CASE_BARRIER,
                    out);
        return;
    }
    auto kernel = kernels[which - CASE_DYNAMIC];
    bool dynamic_memory = which == CASE_DYNAMIC || which == CASE_DYNAMIC_END;
    size_t shared_bytes = dynamic_memory ? sizeof(float) * threads : 0;
    if (which == CASE_MUCH_SHARED)
        shared_bytes = CUDA_SHARED_BYTES + 1;
    CUDA_LAUNCH(kernel, which == CASE_NO_BLOCKS ? 0 : blocks,
                which == CASE_WIDE_BLOCK ? 1025 : threads, shared_bytes, NULL,
                out);
}
