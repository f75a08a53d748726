/* What the norms' forward and backward share. A group of elements that are
 * normalised together belongs to a team of threads: a warp, or a block where
 * the group is long. The team holds the group in registers; what is too long
 * for that comes from the L1 cache in passes after the first. */
#pragma once

#include "kernels/cuda/cuda_held.h"
#include "kernels/cuda/cuda_reduce.h"

/* Longer groups get a block of CUDA_THREADS, others a warp; so many warps share
 * a block. */
#define WARP_GROUP_MAX 1024
#define TEAMS_PER_BLOCK 4

static inline void norm_assert(const struct norm *norm)
{
    assert(norm->d > 0 && norm->groups > 0);
    assert(norm->stride >= norm->groups * norm->d);
    assert(norm->shared || norm->groups > 1);
    (void)norm;
}

/* How the threads of a block are shared among teams. */
struct teams {
    int warps;  /* of a team */
    int number; /* of teams in a block */
};

static inline struct teams norm_teams(const struct norm *norm)
{
    const struct teams warps = { 1, TEAMS_PER_BLOCK };
    const struct teams blocks = { CUDA_THREADS / CUDA_WARP, 1 };
    return norm->d <= WARP_GROUP_MAX ? warps : blocks;
}

static inline unsigned teams_threads(struct teams teams)
{
    return (unsigned)(teams.warps * teams.number * CUDA_WARP);
}

/* A thread's place in its team. */
struct member {
    int team;     /* in the block */
    int64_t rank; /* in the team */
    int64_t size; /* of the team */
};

CUDA_DEVICE struct member member_of(struct teams teams)
{
    struct member m;
    m.size = teams.warps * CUDA_WARP;
    m.team = (int)(threadIdx.x / m.size);
    m.rank = threadIdx.x % m.size;
    return m;
}

CUDA_DEVICE void load_seen(bool low, const float *p, int64_t left, float *x)
{
    const int lanes = cuda_lanes<float>::count;
    cuda_load<lanes>(p, left, 0, x);
    for (int i = 0; low && i < lanes; i++)
        x[i] = cuda_rounded(x[i]);
}

CUDA_DEVICE void load_seen(bool, const struct cuda_bf16 *p, int64_t left,
                           float *x)
{
    cuda_load<cuda_lanes<struct cuda_bf16>::count>(p, left, 0, x);
}

/* What the normed is multiplied by. */
template <class T>
CUDA_DEVICE void load_scale(const struct norm &norm, const T *gamma,
                            int64_t left, float *x)
{
    load_seen(norm.low_precision, gamma, left, x);
    for (int i = 0; norm.plus_one && i < cuda_lanes<T>::count; i++)
        x[i] += 1.0f;
}

/* Calls f(at, k, x) for the thread's vectors x of the group, `at` being the
 * first element's place: held vector k, then, with k = N, from p those
 * beyond. */
template <class T, int N, class F>
CUDA_DEVICE void each_vector(const struct norm &norm, struct member m,
                             const struct cuda_held<T, N> &held, const T *p,
                             F f)
{
    const int lanes = cuda_lanes<T>::count;
    int64_t at = m.rank * lanes, step = m.size * lanes;
    float x[lanes];
    CUDA_UNROLL
    for (int k = 0; k < N; k++, at += step) {
        if (at >= norm.d)
            return;
        cuda_held_values(held, k, x);
        for (int i = 0; sizeof(T) == 4 && norm.low_precision && i < lanes; i++)
            x[i] = cuda_rounded(x[i]);
        f(at, k, x);
    }
    for (; at < norm.d; at += step) {
        load_seen(norm.low_precision, p + at, norm.d - at, x);
        f(at, N, x);
    }
}

template <class T, int N>
CUDA_DEVICE void group_hold(const struct norm &norm, struct member m,
                            const T *p, struct cuda_held<T, N> *held)
{
    const int lanes = cuda_lanes<T>::count;
    cuda_hold(p + m.rank * lanes, m.size * lanes, norm.d - m.rank * lanes,
              held);
}

/* The thread's vector k: held, or at p. */
template <class T, int N>
CUDA_DEVICE void held_or_loaded(const struct cuda_held<T, N> &held, int k,
                                const T *p, int64_t left, float *x)
{
    if (k < N)
        cuda_held_values(held, k, x);
    else
        cuda_load<cuda_lanes<T>::count>(p, left, 0, x);
}

struct statistics {
    float mean, rstd;
};
