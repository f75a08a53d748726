/* LayerNorm and RMSNorm forward. A RMSNorm is a LayerNorm whose mean is zero:
 * its mean, beta and their gradients are left out, the rest is one code. The
 * variance is summed in a second pass, over distances from the mean: E(x^2) -
 * E(x)^2 would be the difference of two large numbers. */
#include "kernels/cuda/cuda_norm.h"

/* Vectors of a group that a thread holds at most: 32 elements. */
#define HELD_MAX(T) (32 / cuda_lanes<T>::count)

/* Mean and reciprocal deviation of the group at x, in two passes. */
template <class T, int N>
CUDA_DEVICE struct statistics
group_statistics(const struct norm &norm, int warps, struct member m,
                 const struct cuda_held<T, N> &held, const T *x)
{
    const int lanes = cuda_lanes<T>::count;
    struct statistics of = { 0, 0 };
    float sum = 0;
    if (norm.kind == NORM_LAYER) {
        each_vector(norm, m, held, x, [&](int64_t, int, const float *v) {
            for (int i = 0; i < lanes; i++)
                sum += v[i];
        });
        of.mean = cuda_team_sum(warps, sum) / (float)norm.d;
    }
    sum = 0;
    each_vector(norm, m, held, x, [&](int64_t at, int, const float *v) {
        for (int i = 0; i < lanes; i++) {
            float off = at + i < norm.d ? v[i] - of.mean : 0;
            sum = fmaf(off, off, sum);
        }
    });
    sum = cuda_team_sum(warps, sum);
    of.rstd = 1.0f / sqrtf(sum / (float)norm.d + norm.eps);
    return of;
}

/* x = a + scale * b, each thread its own elements; *held is a's and becomes
 * x's. */
template <class T, int N>
CUDA_DEVICE void group_add(const struct norm &norm, struct member m, const T *a,
                           float scale, const T *b, T *x,
                           struct cuda_held<T, N> *held)
{
    const int lanes = cuda_lanes<T>::count;
    int64_t at = m.rank * lanes, step = m.size * lanes;
    struct cuda_held<T, N> added;
    float u[lanes], v[lanes];
    group_hold(norm, m, b, &added);
    CUDA_UNROLL
    for (int k = 0; k < N; k++, at += step) {
        if (at >= norm.d)
            return;
        cuda_held_values(*held, k, u);
        cuda_held_values(added, k, v);
        for (int i = 0; i < lanes; i++)
            u[i] = fmaf(v[i], scale, u[i]);
        cuda_held_put(u, k, held);
        cuda_store<lanes>(x + at, norm.d - at, u);
    }
    for (; at < norm.d; at += step) {
        cuda_load<lanes>(a + at, norm.d - at, 0, u);
        cuda_load<lanes>(b + at, norm.d - at, 0, v);
        for (int i = 0; i < lanes; i++)
            u[i] = fmaf(v[i], scale, u[i]);
        cuda_store<lanes>(x + at, norm.d - at, u);
    }
}

/* y is written after the team's last sum, so it may be x. */
template <class T, int N>
static __global__ void
CUDA_RESIDENT(CUDA_THREADS,
              N *cuda_lanes<T>::count > 16 ? (sizeof(T) == 2 ? 3 : 1) : 4)
    norm_forward(struct norm norm, struct teams teams, const T *a, float scale,
                 const T *b, T *x, const T *gamma, const T *beta, T *y,
                 float *mean, float *rstd)
{
    const int lanes = cuda_lanes<T>::count;
    const struct member m = member_of(teams);
    int64_t place = (int64_t)blockIdx.x * teams.number + m.team;
    int64_t at = place % norm.groups * norm.d;
    int64_t weight = norm.shared ? 0 : at;
    struct cuda_held<T, N> held;
    if (place >= norm.n * norm.groups)
        return;
    at += place / norm.groups * norm.stride;
    group_hold(norm, m, a + at, &held);
    if (b != NULL)
        group_add(norm, m, a + at, scale, b + at, x + at, &held);
    const T *in = (b != NULL ? x : a) + at;
    struct statistics of = group_statistics(norm, teams.warps, m, held, in);
    gamma += weight;
    beta += beta == NULL ? 0 : weight;
    each_vector(norm, m, held, in, [&](int64_t j, int, float *v) {
        float by[lanes], shift[lanes] = { 0 };
        int64_t left = norm.d - j;
        load_scale(norm, gamma + j, left, by);
        if (beta != NULL)
            load_seen(norm.low_precision, beta + j, left, shift);
        for (int i = 0; i < lanes; i++) {
            v[i] = fmaf((v[i] - of.mean) * of.rstd, by[i], shift[i]);
            if (norm.low_precision)
                v[i] = cuda_rounded(v[i]);
        }
        cuda_store<lanes>(y + at + j, left, v);
    });
    if (m.rank > 0)
        return;
    rstd[place] = of.rstd;
    if (norm.kind == NORM_LAYER)
        mean[place] = of.mean;
}

static enum err forward_run(const struct kernel_ctx *ctx, enum dtype dtype,
                            const char *op, const struct norm *norm,
                            const void *a, float scale, const void *b, void *x,
                            const void *gamma, const void *beta, void *y,
                            float *mean, float *rstd)
{
    const struct teams teams = norm_teams(norm);
    int64_t groups = norm->n * norm->groups;
    norm_assert(norm);
    if (norm->n == 0)
        return ERR_OK;
    if (norm->kind == NORM_RMS)
        beta = NULL;
    return cuda_by_dtype(dtype, op, [&](auto element) {
        typedef decltype(element) T;
        int64_t vectors = cuda_parts(norm->d, cuda_lanes<T>::count);
        auto kernel = vectors <= teams.warps * CUDA_WARP * (HELD_MAX(T) / 2)
                          ? norm_forward<T, HELD_MAX(T) / 2>
                          : norm_forward<T, HELD_MAX(T)>;
        CUDA_LAUNCH(kernel, cuda_blocks(cuda_parts(groups, teams.number)),
                    teams_threads(teams), 0, cuda_stream(ctx), *norm, teams,
                    (const T *)a, scale, (const T *)b, (T *)x, (const T *)gamma,
                    (const T *)beta, (T *)y, mean, rstd);
        return cuda_launched(op);
    });
}

enum err CUDA_SYMBOL(norm_forward) KERNEL_LIKE(norm_forward)
{
    return forward_run(ctx, dtype, "norm_forward", norm, x, 0, NULL, NULL,
                       gamma, beta, y, mean, rstd);
}

enum err CUDA_SYMBOL(add_norm_forward) KERNEL_LIKE(add_norm_forward)
{
    assert(norm->groups == 1 && norm->stride == norm->d);
    return forward_run(ctx, dtype, "add_norm_forward", norm, a, scale, b, x,
                       gamma, beta, y, mean, rstd);
}
