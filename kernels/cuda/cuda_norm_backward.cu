/* LayerNorm and RMSNorm backward: a team takes the groups of its chunk of rows
 * one after the other, each of which comes while the one before is computed.
 * With normed = (x - mean) rstd and g = dy gamma,
 *
 *     dx = rstd (g - mean(g) - normed mean(g normed))
 *     dgamma = sum over rows of dy normed, dbeta = sum over rows of dy
 *
 * where mean(g) is 0 for an RMSNorm. dx needs two sums over a row, dgamma and
 * dbeta sums over all rows. The latter are the difficult ones: a team adds
 * those of its chunk, row after row, and the chunks' are added in order by
 * another kernel. How many chunks there are follows from the shape
 * and not from the device, so the sums have the same order on each. */
#include "kernels/cuda/cuda_norm.h"

/* Vectors that a thread holds, of two tensors and for two groups. */
#define HELD 2

/* dgamma and dbeta are sums over rows: rows are cut into at most this many
 * chunks, a team each, which it adds in order; the chunks are added then. More
 * chunks of warps that add up in shared memory take no more scratch. */
#define CHUNKS_MAX_WARPS 1024
#define CHUNKS_MAX_SHARED 2048
#define CHUNKS_MAX_BLOCKS 256
#define CHUNK_MIN 2

/* Partial sums of a chunk: dgamma, then dbeta, both on vectors' ends. */
static inline __host__ __device__ int64_t sums_step(int64_t width)
{
    return cuda_parts(width, 4) * 4;
}

size_t CUDA_SYMBOL(norm_scratch)(const struct kernel_limits *limits)
{
    int64_t chunks =
        cuda_min(CHUNKS_MAX_WARPS, cuda_parts(limits->tokens, CHUNK_MIN));
    return (size_t)(chunks * 2 * sums_step(limits->width)) * sizeof(float);
}

/* Elements of gamma and beta. */
static int64_t norm_width(const struct norm *norm)
{
    return norm->shared ? norm->d : norm->groups * norm->d;
}

struct backward {
    struct norm norm;
    struct teams teams;
    int64_t rows; /* of a chunk */
    int64_t step; /* from dgamma's partial sums to dbeta's */
    int64_t sums; /* floats of a team: dgamma's, and dbeta's if wanted */
    bool in_shared, with_beta, accumulate;
};

/* A group's dy and x. */
template <class T, int N> struct held_group {
    struct cuda_held<T, N> dy, x;
};

/* Adds to dgamma and dbeta of a group, whose columns always have the same
 * thread, and returns the thread's sums of g = dy gamma and of g times the
 * normed. */
template <class T, int N>
CUDA_DEVICE struct statistics
group_sums(const struct backward &b, struct member m,
           const struct held_group<T, N> &held, const T *dy, const T *x,
           const T *gamma, struct statistics of, float *dgamma)
{
    const int lanes = cuda_lanes<T>::count;
    const int64_t d = b.norm.d;
    struct statistics total = { 0, 0 };
    each_vector(b.norm, m, held.x, x, [&](int64_t j, int k, const float *v) {
        float out[lanes], by[lanes], sum[lanes];
        held_or_loaded(held.dy, k, dy + j, d - j, out);
        load_scale(b.norm, gamma + j, d - j, by);
        cuda_load<lanes>(dgamma + j, d - j, 0, sum);
        for (int i = 0; i < lanes; i++) {
            float normed = (v[i] - of.mean) * of.rstd;
            float g = out[i] * by[i];
            total.mean += g;
            total.rstd = fmaf(g, normed, total.rstd);
            sum[i] = fmaf(out[i], normed, sum[i]);
        }
        cuda_store<lanes>(dgamma + j, d - j, sum);
        if (!b.with_beta)
            return;
        cuda_load<lanes>(dgamma + b.step + j, d - j, 0, sum);
        for (int i = 0; i < lanes; i++)
            sum[i] += out[i];
        cuda_store<lanes>(dgamma + b.step + j, d - j, sum);
    });
    return total;
}

/* dx (+)= rstd (g - mean(g) - normed mean(g normed)); `before` is dx's. */
template <class T, int N>
CUDA_DEVICE void group_gradient(const struct backward &b, struct member m,
                                const struct held_group<T, N> &held,
                                const T *dy, const T *x, const T *gamma,
                                struct statistics of, struct statistics means,
                                const struct cuda_held<T, N> &before, T *dx)
{
    const int lanes = cuda_lanes<T>::count;
    const int64_t d = b.norm.d;
    each_vector(b.norm, m, held.x, x, [&](int64_t j, int k, const float *v) {
        float out[lanes], by[lanes], old[lanes] = { 0 };
        held_or_loaded(held.dy, k, dy + j, d - j, out);
        load_scale(b.norm, gamma + j, d - j, by);
        if (b.accumulate)
            held_or_loaded(before, k, dx + j, d - j, old);
        for (int i = 0; i < lanes; i++) {
            float normed = (v[i] - of.mean) * of.rstd;
            float g = fmaf(normed, -means.rstd, out[i] * by[i] - means.mean);
            out[i] = fmaf(g, of.rstd, old[i]);
        }
        cuda_store<lanes>(dx + j, d - j, out);
    });
}

CUDA_DEVICE void team_sync(int warps)
{
    if (warps == 1)
        __syncwarp();
    else
        __syncthreads();
}

/* The teams' sums in shared memory, added in order, become the block's row of
 * scratch. */
CUDA_DEVICE void block_sums(const struct backward &b, const float *shared,
                            float *partial)
{
    __syncthreads();
    for (int64_t j = threadIdx.x; j < b.sums; j += blockDim.x) {
        float sum = shared[j];
        for (int team = 1; team < b.teams.number; team++)
            sum += shared[team * b.sums + j];
        partial[blockIdx.x * b.sums + j] = sum;
    }
}

/* A group of a chunk of rows. */
struct place {
    int64_t row, group, at;
};

CUDA_DEVICE struct place place_after(const struct norm &norm, struct place p)
{
    p.group++;
    if (p.group == norm.groups) {
        p.group = 0;
        p.row++;
    }
    p.at = p.row * norm.stride + p.group * norm.d;
    return p;
}

template <class T, int N>
CUDA_DEVICE void hold_group(const struct norm &norm, struct member m,
                            const T *dy, const T *x,
                            struct held_group<T, N> *held)
{
    group_hold(norm, m, dy, &held->dy);
    group_hold(norm, m, x, &held->x);
}

/* A team sums where there is room: in shared memory, or in its row of scratch.
 * A group comes while the one before is computed. */
template <class T>
static __global__ void CUDA_RESIDENT(CUDA_THREADS, 2)
    norm_backward(struct backward b, const T *dy, const T *x, const T *gamma,
                  const float *mean, const float *rstd, T *dx, float *partial)
{
    CUDA_SHARED(float, shared);
    const struct norm norm = b.norm;
    const struct member m = member_of(b.teams);
    const int warps = b.teams.warps;
    int64_t chunk = (int64_t)blockIdx.x * b.teams.number + m.team;
    int64_t first = chunk * b.rows, end = cuda_min(norm.n, first + b.rows);
    float *sums =
        b.in_shared ? shared + m.team * b.sums : partial + chunk * b.sums;
    struct place now = { first, 0, first * norm.stride };
    struct held_group<T, HELD> held, next;
    struct cuda_held<T, HELD> before;
    if (first < end)
        hold_group(norm, m, dy + now.at, x + now.at, &next);
    if (first < end || b.in_shared)
        for (int64_t j = m.rank; j < b.sums; j += m.size)
            sums[j] = 0;
    team_sync(warps);
    while (now.row < end) {
        const struct place then = place_after(norm, now);
        int64_t at = now.at, stats = now.row * norm.groups + now.group;
        int64_t weight = norm.shared ? 0 : now.group * norm.d;
        struct statistics of = { 0, rstd[stats] };
        if (norm.kind == NORM_LAYER)
            of.mean = mean[stats];
        held = next;
        if (then.row < end)
            hold_group(norm, m, dy + then.at, x + then.at, &next);
        struct statistics means = group_sums(b, m, held, dy + at, x + at,
                                             gamma + weight, of, sums + weight);
        if (b.accumulate)
            group_hold(norm, m, dx + at, &before);
        means.mean = cuda_team_sum(warps, means.mean) / (float)norm.d;
        means.rstd = cuda_team_sum(warps, means.rstd) / (float)norm.d;
        if (norm.kind == NORM_RMS)
            means.mean = 0;
        group_gradient(b, m, held, dy + at, x + at, gamma + weight, of, means,
                       before, dx + at);
        now = then;
    }
    if (b.in_shared)
        block_sums(b, shared, partial);
}

enum err CUDA_SYMBOL(norm_backward) KERNEL_LIKE(norm_backward)
{
    norm_assert(norm);
    assert(norm->n > 0);
    struct backward b;
    float *partial = (float *)ctx->scratch;
    int64_t width = norm_width(norm);
    b.norm = *norm;
    b.teams = norm_teams(norm);
    b.step = sums_step(width);
    b.with_beta = dbeta != NULL && norm->kind == NORM_LAYER;
    b.sums = (b.with_beta ? 2 : 1) * b.step;
    b.accumulate = accumulate;
    size_t row_bytes = (size_t)b.sums * sizeof(float);
    size_t shared_bytes = row_bytes * (size_t)b.teams.number;
    b.in_shared = shared_bytes <= CUDA_SHARED_BYTES;
    int64_t most = b.teams.warps > 1 ? CHUNKS_MAX_BLOCKS
                   : b.in_shared     ? CHUNKS_MAX_SHARED
                                     : CHUNKS_MAX_WARPS;
    b.rows = cuda_max(CHUNK_MIN, cuda_parts(norm->n, most));
    int64_t chunks = cuda_parts(norm->n, b.rows);
    int64_t blocks = cuda_parts(chunks, b.teams.number);
    int64_t sums = b.in_shared ? blocks : chunks;
    assert(ctx->scratch_bytes >= (size_t)sums * row_bytes);
    TRY(cuda_by_dtype(dtype, "norm_backward", [&](auto element) {
        typedef decltype(element) T;
        CUDA_LAUNCH(norm_backward<T>, cuda_blocks(blocks),
                    teams_threads(b.teams), b.in_shared ? shared_bytes : 0,
                    cuda_stream(ctx), b, (const T *)dy, (const T *)x,
                    (const T *)gamma, mean, rstd, (T *)dx, partial);
        return cuda_launched("norm_backward");
    }));
    TRY(CUDA_SYMBOL(columns_add)(ctx, "norm_backward", sums, b.sums, width,
                                 partial, (float *)dgamma));
    if (!b.with_beta)
        return ERR_OK;
    return CUDA_SYMBOL(columns_add)(ctx, "norm_backward", sums, b.sums, width,
                                    partial + b.step, (float *)dbeta);
}
