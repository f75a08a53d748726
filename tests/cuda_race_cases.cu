#include "tests/cuda_race_cases.h"

#include "kernels/cuda/cuda_mma.h"
#include "kernels/cuda/cuda_reduce.h"

CUDA_DEVICE int neighbour(int in)
{
    return ((int)threadIdx.x / in * in) + ((int)threadIdx.x + 1) % in;
}

/* A template, as most kernels are: its array must be found to be shared. */
template <class T> static __global__ void block_turn(int which, T *out)
{
    __shared__ T numbers[RACE_THREADS];
    for (int i = 0; i < 2; i++) {
        numbers[threadIdx.x] = (T)threadIdx.x;
        if (which == RACE_ONLY_WARP)
            __syncwarp();
        else if (which != RACE_NO_BARRIER)
            __syncthreads();
        out[cuda_index()] = numbers[neighbour(RACE_THREADS)];
        if (which != RACE_NO_BARRIER_AFTER)
            __syncthreads();
    }
}

static __global__ void dynamic_turn(float *out)
{
    CUDA_SHARED(float, numbers);
    numbers[threadIdx.x] = (float)threadIdx.x;
    __syncthreads();
    out[cuda_index()] = numbers[neighbour(RACE_THREADS)];
}

static __global__ void warp_turn(int which, float *out)
{
    __shared__ float numbers[RACE_THREADS];
    float mine = (float)threadIdx.x;
    numbers[threadIdx.x] = mine;
    if (which == RACE_WARP_BARRIER)
        __syncwarp();
    float next = __shfl_sync(CUDA_ALL_LANES, mine, cuda_lane() + 1);
    out[cuda_index()] =
        which == RACE_SHUFFLE ? next : numbers[neighbour(CUDA_WARP)];
}

/* Vectors of four: a warp has eight of the block's 24 neighbours. */
static __global__ void copy_turn(int which, const float *in, float *out)
{
    __shared__ struct cuda_piece<4, float> numbers[RACE_THREADS / 4];
    const int vectors = RACE_THREADS / 4;
    const float *all = (const float *)numbers;
    int at = (int)threadIdx.x;
    if (which == RACE_COPY_EARLY) {
        for (int i = 0; i < 4 && at < vectors; i++)
            numbers[at].at[i] = 0;
        __syncthreads();
        out[cuda_index()] = all[neighbour(RACE_THREADS)];
    }
    if (at < vectors)
        cuda_mma_fetch(in + blockIdx.x * RACE_THREADS + at * 4, &numbers[at]);
    if (which == RACE_COPY_LATE) {
        __syncthreads();
        out[cuda_index()] = all[neighbour(RACE_THREADS)];
    }
    cuda_mma_fetched();
    if (which != RACE_COPY_NO_BARRIER)
        __syncthreads();
    out[cuda_index()] = all[neighbour(RACE_THREADS)];
}

static __global__ void shared_faults(int which, float *out)
{
    __shared__ float numbers[RACE_THREADS];
    if (which == RACE_ONE_ELEMENT)
        numbers[0] = (float)threadIdx.x;
    else if (threadIdx.x > 0)
        numbers[threadIdx.x] = 0;
    __syncthreads();
    out[cuda_index()] = numbers[which == RACE_ONE_ELEMENT ? 0 : threadIdx.x];
}

static __global__ void block_faults(int which, float *out)
{
    if (which == RACE_BLOCKS_WRITE && threadIdx.x == 0)
        out[0] = 1;
    if (which == RACE_BLOCKS_READ)
        out[cuda_index()] = out[(cuda_index() + RACE_THREADS) % RACE_NUMBERS];
}

void cuda_race_case(enum cuda_race_case which, const float *in, float *out)
{
    const unsigned blocks = RACE_BLOCKS, threads = RACE_THREADS;
    switch (which) {
    case RACE_DYNAMIC:
        CUDA_LAUNCH(dynamic_turn, blocks, threads, sizeof(float) * threads,
                    NULL, out);
        break;
    case RACE_WARP_BARRIER:
    case RACE_NO_WARP_BARRIER:
    case RACE_SHUFFLE:
        CUDA_LAUNCH(warp_turn, blocks, threads, 0, NULL, which, out);
        break;
    case RACE_COPY:
    case RACE_COPY_EARLY:
    case RACE_COPY_LATE:
    case RACE_COPY_NO_BARRIER:
        CUDA_LAUNCH(copy_turn, blocks, threads, 0, NULL, which, in, out);
        break;
    case RACE_ONE_ELEMENT:
    case RACE_UNWRITTEN:
        CUDA_LAUNCH(shared_faults, blocks, threads, 0, NULL, which, out);
        break;
    case RACE_BLOCKS_WRITE:
    case RACE_BLOCKS_READ:
        CUDA_LAUNCH(block_faults, blocks, threads, 0, NULL, which, out);
        break;
    default:
        CUDA_LAUNCH(block_turn<float>, blocks, threads, 0, NULL, which, out);
    }
}
