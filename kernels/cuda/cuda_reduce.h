/* Sums and maxima over the threads of a team: a warp or a whole block. Each
 * thread gets the result. The order is fixed: a butterfly in every warp, then
 * the warps in order, whatever the device. All threads of the team must call.
 */
#pragma once

#include "kernels/cuda/cuda_launch.h"

#define CUDA_ALL_LANES 0xffffffffu
/* A block has at most so many warps. */
#define CUDA_WARPS_MAX 32

struct cuda_plus {
    template <class T> __device__ T operator()(T a, T b) const
    {
        return a + b;
    }
};

/* The larger of two; among floats a NaN is passed over. */
struct cuda_most {
    template <class T> __device__ T operator()(T a, T b) const
    {
        return a > b || b != b ? a : b;
    }
};

template <class T, class F> CUDA_DEVICE T cuda_warp_reduce(T x, F f)
{
    for (int change = CUDA_WARP / 2; change > 0; change /= 2)
        x = f(x, __shfl_xor_sync(CUDA_ALL_LANES, x, change));
    return x;
}

template <class T> CUDA_DEVICE T cuda_warp_sum(T x)
{
    return cuda_warp_reduce(x, cuda_plus());
}

/* `warps` is the number of warps of the team: 1, or all of the block. */
template <class T, class F> CUDA_DEVICE T cuda_team_reduce(int warps, T x, F f)
{
    __shared__ T parts[CUDA_WARPS_MAX];
    x = cuda_warp_reduce(x, f);
    if (warps == 1)
        return x;
    if (threadIdx.x % CUDA_WARP == 0)
        parts[threadIdx.x / CUDA_WARP] = x;
    __syncthreads();
    x = parts[0];
    for (int i = 1; i < warps; i++)
        x = f(x, parts[i]);
    __syncthreads();
    return x;
}

template <class T> CUDA_DEVICE T cuda_team_sum(int warps, T x)
{
    return cuda_team_reduce(warps, x, cuda_plus());
}
