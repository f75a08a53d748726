/* LayerNorm and RMSNorm. A RMSNorm is a LayerNorm whose mean is zero: its mean,
 * beta and their gradients are left out, the rest is one code. A group of
 * elements that are normalised together belongs to a team of threads: a warp,
 * or a block where the group is long. Its passes over the row after the first
 * find it in the L1 cache. */
#include "kernels/cuda_reduce.h"
#include "kernels/cuda_vec.h"

/* Longer groups get a block of CUDA_THREADS, others a warp; so many warps share
 * a block. */
#define WARP_GROUP_MAX 1024
#define TEAMS_PER_BLOCK 4

/* dgamma and dbeta are sums over rows: rows are cut into at most this many
 * chunks, a team each, which it adds in order; the chunks are added then. */
#define CHUNKS_MAX_WARPS 1024
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

static void norm_assert(const struct norm *norm)
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

static struct teams norm_teams(const struct norm *norm)
{
    const struct teams warps = { 1, TEAMS_PER_BLOCK };
    const struct teams blocks = { CUDA_THREADS / CUDA_WARP, 1 };
    return norm->d <= WARP_GROUP_MAX ? warps : blocks;
}

static unsigned teams_threads(struct teams teams)
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

/* --- forward --- */

struct statistics {
    float mean, rstd;
};

/* Of the group at x, in two passes. */
template <class T>
CUDA_DEVICE struct statistics group_statistics(const struct norm &norm,
                                               int warps, struct member m,
                                               const T *x)
{
    const int lanes = cuda_lanes<T>::count;
    struct statistics of = { 0, 0 };
    float v[lanes], sum = 0;
    if (norm.kind == NORM_LAYER) {
        for (int64_t j = m.rank * lanes; j < norm.d; j += m.size * lanes) {
            load_seen(norm.low_precision, x + j, norm.d - j, v);
            for (int i = 0; i < lanes; i++)
                sum += v[i];
        }
        of.mean = cuda_team_sum(warps, sum) / (float)norm.d;
    }
    sum = 0;
    for (int64_t j = m.rank * lanes; j < norm.d; j += m.size * lanes) {
        load_seen(norm.low_precision, x + j, norm.d - j, v);
        for (int i = 0; i < lanes; i++) {
            float off = j + i < norm.d ? v[i] - of.mean : 0;
            sum = fmaf(off, off, sum);
        }
    }
    sum = cuda_team_sum(warps, sum);
    of.rstd = 1.0f / sqrtf(sum / (float)norm.d + norm.eps);
    return of;
}

/* With `b` x = a + scale * b first, each thread its own elements. */
template <class T>
CUDA_DEVICE void group_add(int64_t d, struct member m, const T *a, float scale,
                           const T *b, T *x)
{
    const int lanes = cuda_lanes<T>::count;
    float u[lanes], v[lanes];
    for (int64_t j = m.rank * lanes; j < d; j += m.size * lanes) {
        cuda_load<lanes>(a + j, d - j, 0, u);
        cuda_load<lanes>(b + j, d - j, 0, v);
        for (int i = 0; i < lanes; i++)
            u[i] = fmaf(v[i], scale, u[i]);
        cuda_store<lanes>(x + j, d - j, u);
    }
}

/* y is written after the team's last sum, so it may be x. */
template <class T>
static __global__ void norm_forward(struct norm norm, struct teams teams,
                                    const T *a, float scale, const T *b, T *x,
                                    const T *gamma, const T *beta, T *y,
                                    float *mean, float *rstd)
{
    const int lanes = cuda_lanes<T>::count;
    const struct member m = member_of(teams);
    int64_t place = (int64_t)blockIdx.x * teams.number + m.team;
    int64_t at = place % norm.groups * norm.d;
    int64_t weight = norm.shared ? 0 : at;
    float v[lanes], by[lanes], shift[lanes] = { 0 };
    if (place >= norm.n * norm.groups)
        return;
    at += place / norm.groups * norm.stride;
    if (b != NULL)
        group_add(norm.d, m, a + at, scale, b + at, x + at);
    const T *in = b != NULL ? x : a;
    struct statistics of = group_statistics(norm, teams.warps, m, in + at);
    for (int64_t j = m.rank * lanes; j < norm.d; j += m.size * lanes) {
        int64_t left = norm.d - j;
        load_seen(norm.low_precision, in + at + j, left, v);
        load_seen(norm.low_precision, gamma + weight + j, left, by);
        if (beta != NULL)
            load_seen(norm.low_precision, beta + weight + j, left, shift);
        for (int i = 0; i < lanes; i++) {
            v[i] = fmaf((v[i] - of.mean) * of.rstd, by[i], shift[i]);
            if (norm.low_precision)
                v[i] = cuda_rounded(v[i]);
        }
        cuda_store<lanes>(y + at + j, left, v);
    }
    if (m.rank > 0)
        return;
    rstd[place] = of.rstd;
    if (norm.kind == NORM_LAYER)
        mean[place] = of.mean;
}

template <class T>
static enum err forward_run(const struct kernel_ctx *ctx, const char *op,
                            const struct norm *norm, const void *a, float scale,
                            const void *b, void *x, const void *gamma,
                            const void *beta, void *y, float *mean, float *rstd)
{
    const struct teams teams = norm_teams(norm);
    int64_t groups = norm->n * norm->groups;
    norm_assert(norm);
    if (norm->n == 0)
        return ERR_OK;
    if (norm->kind == NORM_RMS)
        beta = NULL;
    CUDA_LAUNCH(norm_forward<T>, cuda_blocks(cuda_parts(groups, teams.number)),
                teams_threads(teams), 0, cuda_stream(ctx), *norm, teams,
                (const T *)a, scale, (const T *)b, (T *)x, (const T *)gamma,
                (const T *)beta, (T *)y, mean, rstd);
    return cuda_launched(op);
}

enum err CUDA_SYMBOL(norm_forward)(const struct kernel_ctx *ctx,
                                   enum dtype dtype, const struct norm *norm,
                                   const void *x, const void *gamma,
                                   const void *beta, void *y, float *mean,
                                   float *rstd)
{
    return CUDA_BY_DTYPE(dtype, "norm_forward", forward_run, ctx,
                         "norm_forward", norm, x, 0, NULL, NULL, gamma, beta, y,
                         mean, rstd);
}

enum err CUDA_SYMBOL(add_norm_forward)(const struct kernel_ctx *ctx,
                                       enum dtype dtype,
                                       const struct norm *norm, const void *a,
                                       float scale, const void *b, void *x,
                                       const void *gamma, const void *beta,
                                       void *y, float *mean, float *rstd)
{
    assert(norm->groups == 1 && norm->stride == norm->d);
    return CUDA_BY_DTYPE(dtype, "add_norm_forward", forward_run, ctx,
                         "add_norm_forward", norm, a, scale, b, x, gamma, beta,
                         y, mean, rstd);
}

/* --- backward --- */

struct backward {
    struct norm norm;
    struct teams teams;
    int64_t rows; /* of a chunk */
    int64_t step; /* from dgamma's partial sums to dbeta's */
    bool in_shared, with_beta, accumulate;
};

/* Adds to dgamma and dbeta of a group, whose columns always have the same
 * thread, and returns the means of g = dy gamma and of g times the normed. */
template <class T>
CUDA_DEVICE struct statistics
group_sums(const struct backward &b, struct member m, const T *dy, const T *x,
           const T *gamma, struct statistics of, float *dgamma)
{
    const int lanes = cuda_lanes<T>::count;
    const int64_t d = b.norm.d;
    float out[lanes], v[lanes], by[lanes], sum[lanes];
    float total = 0, total_normed = 0;
    for (int64_t j = m.rank * lanes; j < d; j += m.size * lanes) {
        cuda_load<lanes>(dy + j, d - j, 0, out);
        load_seen(b.norm.low_precision, x + j, d - j, v);
        load_seen(b.norm.low_precision, gamma + j, d - j, by);
        cuda_load<lanes>(dgamma + j, d - j, 0, sum);
        for (int i = 0; i < lanes; i++) {
            float normed = (v[i] - of.mean) * of.rstd;
            float g = out[i] * by[i];
            total += g;
            total_normed = fmaf(g, normed, total_normed);
            sum[i] = fmaf(out[i], normed, sum[i]);
        }
        cuda_store<lanes>(dgamma + j, d - j, sum);
        if (!b.with_beta)
            continue;
        cuda_load<lanes>(dgamma + b.step + j, d - j, 0, sum);
        for (int i = 0; i < lanes; i++)
            sum[i] += out[i];
        cuda_store<lanes>(dgamma + b.step + j, d - j, sum);
    }
    struct statistics means;
    means.mean = cuda_team_sum(b.teams.warps, total) / (float)d;
    means.rstd = cuda_team_sum(b.teams.warps, total_normed) / (float)d;
    if (b.norm.kind == NORM_RMS)
        means.mean = 0;
    return means;
}

/* dx (+)= rstd (g - mean(g) - normed mean(g normed)). */
template <class T>
CUDA_DEVICE void group_gradient(const struct backward &b, struct member m,
                                const T *dy, const T *x, const T *gamma,
                                struct statistics of, struct statistics means,
                                T *dx)
{
    const int lanes = cuda_lanes<T>::count;
    const int64_t d = b.norm.d;
    float out[lanes], v[lanes], by[lanes], before[lanes] = { 0 };
    for (int64_t j = m.rank * lanes; j < d; j += m.size * lanes) {
        cuda_load<lanes>(dy + j, d - j, 0, out);
        load_seen(b.norm.low_precision, x + j, d - j, v);
        load_seen(b.norm.low_precision, gamma + j, d - j, by);
        if (b.accumulate)
            cuda_load<lanes>(dx + j, d - j, 0, before);
        for (int i = 0; i < lanes; i++) {
            float normed = (v[i] - of.mean) * of.rstd;
            float g = fmaf(normed, -means.rstd, out[i] * by[i] - means.mean);
            out[i] = fmaf(g, of.rstd, before[i]);
        }
        cuda_store<lanes>(dx + j, d - j, out);
    }
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
    for (int64_t j = threadIdx.x; j < 2 * b.step; j += blockDim.x) {
        float sum = shared[j];
        for (int team = 1; team < b.teams.number; team++)
            sum += shared[team * 2 * b.step + j];
        partial[blockIdx.x * 2 * b.step + j] = sum;
    }
}

/* A team sums where there is room: in shared memory, or in its row of scratch.
 */
template <class T>
static __global__ void norm_backward(struct backward b, const T *dy, const T *x,
                                     const T *gamma, const float *mean,
                                     const float *rstd, T *dx, float *partial)
{
    CUDA_SHARED(float, shared);
    const struct norm norm = b.norm;
    const struct member m = member_of(b.teams);
    int64_t chunk = (int64_t)blockIdx.x * b.teams.number + m.team;
    int64_t first = chunk * b.rows, end = cuda_min(norm.n, first + b.rows);
    float *sums = b.in_shared ? shared + m.team * 2 * b.step
                              : partial + chunk * 2 * b.step;
    if (first < end || b.in_shared)
        for (int64_t j = m.rank; j < 2 * b.step; j += m.size)
            sums[j] = 0;
    team_sync(b.teams.warps);
    for (int64_t i = first; i < end; i++)
        for (int64_t g = 0; g < norm.groups; g++) {
            int64_t place = i * norm.groups + g;
            int64_t at = i * norm.stride + g * norm.d;
            int64_t weight = norm.shared ? 0 : g * norm.d;
            struct statistics of = { 0, rstd[place] };
            if (norm.kind == NORM_LAYER)
                of.mean = mean[place];
            struct statistics means = group_sums(
                b, m, dy + at, x + at, gamma + weight, of, sums + weight);
            group_gradient(b, m, dy + at, x + at, gamma + weight, of, means,
                           dx + at);
        }
    if (b.in_shared)
        block_sums(b, shared, partial);
}

template <class T>
static enum err
backward_run(const struct kernel_ctx *ctx, const struct norm *norm,
             const void *dy, const void *x, const void *gamma,
             const float *mean, const float *rstd, bool accumulate, void *dx,
             float *dgamma, float *dbeta)
{
    struct backward b;
    float *partial = (float *)ctx->scratch;
    int64_t width = norm_width(norm);
    b.norm = *norm;
    b.teams = norm_teams(norm);
    int64_t most = b.teams.warps == 1 ? CHUNKS_MAX_WARPS : CHUNKS_MAX_BLOCKS;
    b.rows = cuda_max(CHUNK_MIN, cuda_parts(norm->n, most));
    b.step = sums_step(width);
    b.with_beta = dbeta != NULL && norm->kind == NORM_LAYER;
    b.accumulate = accumulate;
    int64_t chunks = cuda_parts(norm->n, b.rows);
    int64_t blocks = cuda_parts(chunks, b.teams.number);
    size_t row_bytes = (size_t)(2 * b.step) * sizeof(float);
    size_t shared_bytes = row_bytes * (size_t)b.teams.number;
    b.in_shared = shared_bytes <= CUDA_SHARED_BYTES;
    int64_t sums = b.in_shared ? blocks : chunks;
    assert(ctx->scratch_bytes >= (size_t)sums * row_bytes);
    CUDA_LAUNCH(norm_backward<T>, cuda_blocks(blocks), teams_threads(b.teams),
                b.in_shared ? shared_bytes : 0, cuda_stream(ctx), b,
                (const T *)dy, (const T *)x, (const T *)gamma, mean, rstd,
                (T *)dx, partial);
    enum err rc = CUDA_SYMBOL(columns_add)(ctx, "norm_backward", sums,
                                           2 * b.step, width, partial, dgamma);
    if (rc != ERR_OK || !b.with_beta)
        return rc;
    return CUDA_SYMBOL(columns_add)(ctx, "norm_backward", sums, 2 * b.step,
                                    width, partial + b.step, dbeta);
}

enum err CUDA_SYMBOL(norm_backward)(const struct kernel_ctx *ctx,
                                    enum dtype dtype, const struct norm *norm,
                                    const void *dy, const void *x,
                                    const void *gamma, const float *mean,
                                    const float *rstd, bool accumulate,
                                    void *dx, void *dgamma, void *dbeta)
{
    norm_assert(norm);
    assert(norm->n > 0);
    return CUDA_BY_DTYPE(dtype, "norm_backward", backward_run, ctx, norm, dy, x,
                         gamma, mean, rstd, accumulate, dx, (float *)dgamma,
                         (float *)dbeta);
}
