/* Dropless top-k routing: a warp per token for what experts it goes to, and a
 * counting sort for the order in which experts find their tokens.
 *
 * An expert with a capacity drops the tokens beyond it. Here each gets as many
 * as chose it (Gale et al. 2022, MegaBlocks): rows are sorted by expert, and the
 * products run over groups of unlike length (cuda_grouped_gemm.cu). The sort is
 * stable, by expert and then by token, so that the order of rows, and of all
 * that is added over them, follows from the choices alone:
 *
 *     count   of each chunk of tokens, how many choose each expert
 *     scan    where each expert's rows begin, and in them each chunk's
 *     place   each choice behind those of its chunk before it
 *
 * Within a warp the lanes with the same expert rank themselves by a vote, so there
 * is no counter that many add to in an order of chance. */
#include "kernels/cuda/cuda_reduce.h"
#include "kernels/cuda/cuda_vec.h"

/* Sums over tokens and the sort cut the tokens into at most this many chunks,
 * each with its own row of scratch, which are then combined in order. */
#define CHUNKS_MAX 128
#define CHUNK_MIN 64

/* Tokens of a block. */
#define WARPS 4

static int64_t chunk_tokens(int64_t n)
{
    return cuda_max(CHUNK_MIN, cuda_parts(n, CHUNKS_MAX));
}

/* Not by the tokens: with expert parallelism a rank may sort any number. */
size_t CUDA_SYMBOL(route_scratch)(const struct kernel_limits *limits)
{
    return CHUNKS_MAX * (size_t)limits->experts * sizeof(double);
}

static void assert_route(const struct route *route)
{
    assert(route->n >= 0 && route->n * route->top_k <= INT32_MAX);
    assert(route->top_k > 0 && route->top_k <= route->experts);
    assert(route->top_k <= KERNEL_TOP_K_MAX);
    assert(route->normalize == 0.0f || route->normalize >= 1.0f);
    (void)route;
}

/* This warp's token, and its lane. */
CUDA_DEVICE int64_t warp_token(void)
{
    return (int64_t)blockIdx.x * WARPS + threadIdx.x / CUDA_WARP;
}

CUDA_DEVICE int warp_lane(void)
{
    return (int)(threadIdx.x % CUDA_WARP);
}

CUDA_DEVICE void row_softmax(float *x, int experts)
{
    float peak = -INFINITY, total = 0;
    for (int e = warp_lane(); e < experts; e += CUDA_WARP)
        peak = x[e] > peak ? x[e] : peak;
    peak = cuda_warp_reduce(peak, cuda_most());
    for (int e = warp_lane(); e < experts; e += CUDA_WARP)
        total += x[e] = expf(x[e] - peak);
    float scale = 1.0f / cuda_warp_sum(total);
    for (int e = warp_lane(); e < experts; e += CUDA_WARP)
        x[e] *= scale;
}

/* A candidate in the order of choice: larger probabilities first, a NaN after
 * all numbers, of equal ones the lower number. `expert` INT32_MAX: none. */
struct candidate {
    float size;
    int expert;
};

CUDA_DEVICE bool comes_before(struct candidate a, struct candidate b)
{
    return a.size > b.size || (a.size == b.size && a.expert < b.expert);
}

/* The first of all experts after `last`; every lane gets it. */
CUDA_DEVICE struct candidate next_choice(const float *probs, int experts,
                                         struct candidate last)
{
    struct candidate best = { -INFINITY, INT32_MAX };
    for (int e = warp_lane(); e < experts; e += CUDA_WARP) {
        struct candidate c = { probs[e], e };
        if (c.size != c.size)
            c.size = -1;
        if (comes_before(last, c) && comes_before(c, best))
            best = c;
    }
    for (int change = CUDA_WARP / 2; change > 0; change /= 2) {
        struct candidate other;
        other.size = __shfl_xor_sync(CUDA_ALL_LANES, best.size, change);
        other.expert = __shfl_xor_sync(CUDA_ALL_LANES, best.expert, change);
        if (comes_before(other, best))
            best = other;
    }
    return best;
}

/* x^p; the usual exponents without powf. */
CUDA_DEVICE float power(float x, float p)
{
    if (p == 0.0f)
        return 1.0f;
    if (p == 1.0f)
        return x;
    return p == 2.0f ? x * x : powf(x, p);
}

/* The L_p norm of lanes' x, of which lane 0 has the largest (at least 1 /
 * experts); powers of its parts neither overflow nor all vanish. */
CUDA_DEVICE float norm_lp(float x, int count, float p)
{
    float largest = __shfl_sync(CUDA_ALL_LANES, x, 0);
    float part = warp_lane() < count ? power(x / largest, p) : 0;
    float sum = cuda_warp_sum(part);
    if (p == 2.0f)
        return largest * sqrtf(sum);
    return largest * (p == 1.0f ? sum : powf(sum, 1.0f / p));
}

/* Lane j holds choice j. */
static __global__ void route_forward(struct route route, float *probs,
                                     int32_t *chosen, float *weights)
{
    int64_t token = warp_token();
    int lane = warp_lane();
    struct candidate last = { INFINITY, -1 };
    float weight = 0;
    int expert = 0;
    if (token >= route.n)
        return;
    probs += token * route.experts;
    row_softmax(probs, route.experts);
    for (int j = 0; j < route.top_k; j++) {
        last = next_choice(probs, route.experts, last);
        if (lane == j)
            expert = last.expert;
    }
    /* a lane may need what another one has written */
    __syncwarp();
    if (lane < route.top_k)
        weight = probs[expert];
    if (route.normalize != 0.0f)
        weight /= norm_lp(weight, route.top_k, route.normalize);
    if (lane >= route.top_k)
        return;
    chosen[token * route.top_k + lane] = expert;
    weights[token * route.top_k + lane] = weight;
}

/* The gradient of the chosen probabilities q through their norm N: with w = q /
 * N, dN/dq_j = w_j^(p - 1), so dq_j = (dw_j - w_j^(p - 1) sum_i dw_i w_i) / N.
 */
CUDA_DEVICE float chosen_gradient(const struct route &route, float q,
                                  float dweight)
{
    float p = route.normalize;
    if (p == 0.0f)
        return dweight;
    float norm = norm_lp(q, route.top_k, p);
    float w = q / norm;
    float dot = cuda_warp_sum(warp_lane() < route.top_k ? dweight * w : 0);
    return (dweight - power(w, p - 1.0f) * dot) / norm;
}

static __global__ void route_backward(struct route route, const float *probs,
                                      const int32_t *chosen,
                                      const float *dweights,
                                      const float *dprobs, float *dlogits)
{
    int64_t token = warp_token();
    int lane = warp_lane();
    int expert = 0;
    float q = 0, dweight = 0, dot = 0;
    if (token >= route.n)
        return;
    probs += token * route.experts;
    dlogits += token * route.experts;
    if (lane < route.top_k) {
        expert = chosen[token * route.top_k + lane];
        dweight = dweights[token * route.top_k + lane];
        q = probs[expert];
    }
    float dq = chosen_gradient(route, q, dweight);
    for (int e = lane; e < route.experts; e += CUDA_WARP)
        dlogits[e] = dprobs[e];
    __syncwarp();
    if (lane < route.top_k)
        dlogits[expert] += dq;
    __syncwarp();
    for (int e = lane; e < route.experts; e += CUDA_WARP)
        dot = fmaf(probs[e], dlogits[e], dot);
    dot = cuda_warp_sum(dot);
    for (int e = lane; e < route.experts; e += CUDA_WARP)
        dlogits[e] = probs[e] * (dlogits[e] - dot);
}

enum err CUDA_SYMBOL(route_forward) KERNEL_LIKE(route_forward)
{
    assert_route(route);
    if (route->n == 0)
        return ERR_OK;
    CUDA_LAUNCH(route_forward, cuda_blocks(cuda_parts(route->n, WARPS)),
                WARPS * CUDA_WARP, 0, cuda_stream(ctx), *route, probs, chosen,
                weights);
    return cuda_launched("route_forward");
}

enum err CUDA_SYMBOL(route_backward) KERNEL_LIKE(route_backward)
{
    assert_route(route);
    if (route->n == 0)
        return ERR_OK;
    CUDA_LAUNCH(route_backward, cuda_blocks(cuda_parts(route->n, WARPS)),
                WARPS * CUDA_WARP, 0, cuda_stream(ctx), *route, probs, chosen,
                dweights, dprobs, dlogits);
    return cuda_launched("route_backward");
}

/* --- sort: a warp per chunk --- */

/* Lane's rank among the lanes with its expert, and how many they are; the
 * lanes without a choice have an expert of -1 in common. */
CUDA_DEVICE int lane_rank(int expert, int *count)
{
    unsigned equal = __match_any_sync(CUDA_ALL_LANES, expert);
    unsigned before = equal & ((1u << warp_lane()) - 1);
    *count = __popc(equal);
    return __popc(before);
}

/* counts[chunk, expert]: choices of it in the chunk. */
static __global__ void sort_count(int64_t total, int64_t choices, int experts,
                                  const int32_t *chosen, int32_t *counts)
{
    CUDA_SHARED(int32_t, next);
    int64_t first = blockIdx.x * choices;
    int64_t end = cuda_min(total, first + choices);
    int count;
    for (int e = warp_lane(); e < experts; e += CUDA_WARP)
        next[e] = 0;
    __syncwarp();
    for (int64_t i = first; i < end; i += CUDA_WARP) {
        int64_t mine = i + warp_lane();
        int expert = mine < end ? chosen[mine] : -1;
        if (lane_rank(expert, &count) == 0 && expert >= 0)
            next[expert] += count;
        __syncwarp();
    }
    for (int e = warp_lane(); e < experts; e += CUDA_WARP)
        counts[(int64_t)blockIdx.x * experts + e] = next[e];
}

/* Counts become first places, and offsets. One block. */
static __global__ void sort_scan(int64_t chunks, int experts, int32_t *counts,
                                 int64_t *offsets)
{
    for (int e = (int)threadIdx.x; e < experts; e += CUDA_THREADS) {
        int64_t total = 0;
        for (int64_t chunk = 0; chunk < chunks; chunk++)
            total += counts[chunk * experts + e];
        offsets[e + 1] = total;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        int64_t at = 0;
        for (int e = 1; e <= experts; e++)
            offsets[e] = at += offsets[e];
        offsets[0] = 0;
    }
    __syncthreads();
    for (int e = (int)threadIdx.x; e < experts; e += CUDA_THREADS) {
        int32_t at = (int32_t)offsets[e];
        for (int64_t chunk = 0; chunk < chunks; chunk++) {
            int32_t count = counts[chunk * experts + e];
            counts[chunk * experts + e] = at;
            at += count;
        }
    }
}

static __global__ void sort_place(int64_t total, int64_t choices, int experts,
                                  const int32_t *chosen, const int32_t *counts,
                                  int32_t *place, int32_t *source)
{
    CUDA_SHARED(int32_t, next);
    int64_t first = blockIdx.x * choices;
    int64_t end = cuda_min(total, first + choices);
    int count;
    for (int e = warp_lane(); e < experts; e += CUDA_WARP)
        next[e] = counts[(int64_t)blockIdx.x * experts + e];
    __syncwarp();
    for (int64_t i = first; i < end; i += CUDA_WARP) {
        int64_t mine = i + warp_lane();
        int expert = mine < end ? chosen[mine] : -1;
        int rank = lane_rank(expert, &count);
        if (expert >= 0) {
            int32_t row = next[expert] + rank;
            place[mine] = row;
            source[row] = (int32_t)mine;
        }
        __syncwarp();
        if (expert >= 0 && rank == 0)
            next[expert] += count;
        __syncwarp();
    }
}

enum err CUDA_SYMBOL(route_sort) KERNEL_LIKE(route_sort)
{
    int64_t choices = chunk_tokens(route->n) * route->top_k;
    int64_t total = route->n * route->top_k;
    int64_t chunks = cuda_parts(total, choices);
    size_t row_bytes = (size_t)route->experts * sizeof(int32_t);
    int32_t *counts = (int32_t *)ctx->scratch;
    assert_route(route);
    assert(row_bytes <= CUDA_SHARED_BYTES);
    assert(ctx->scratch_bytes >= (size_t)chunks * row_bytes);
    if (chunks > 0)
        CUDA_LAUNCH(sort_count, cuda_blocks(chunks), CUDA_WARP, row_bytes,
                    cuda_stream(ctx), total, choices, route->experts, chosen,
                    counts);
    CUDA_LAUNCH(sort_scan, 1, CUDA_THREADS, 0, cuda_stream(ctx), chunks,
                route->experts, counts, offsets);
    if (chunks > 0)
        CUDA_LAUNCH(sort_place, cuda_blocks(chunks), CUDA_WARP, row_bytes,
                    cuda_stream(ctx), total, choices, route->experts, chosen,
                    counts, place, source);
    return cuda_launched("route_sort");
}

/* --- sums: a block per chunk, a thread per expert --- */

static __global__ void sums_chunk(int64_t n, int64_t tokens, int experts,
                                  const float *probs, double *sums)
{
    int64_t first = blockIdx.x * tokens, end = cuda_min(n, first + tokens);
    for (int e = (int)threadIdx.x; e < experts; e += (int)blockDim.x) {
        double sum = 0;
        for (int64_t t = first; t < end; t++)
            sum += (double)probs[t * experts + e];
        sums[(int64_t)blockIdx.x * experts + e] = sum;
    }
}

static __global__ void sums_add(int64_t chunks, int experts, const double *sums,
                                double *out)
{
    int64_t e = cuda_index();
    double sum = 0;
    if (e >= experts)
        return;
    for (int64_t chunk = 0; chunk < chunks; chunk++)
        sum += sums[chunk * experts + e];
    out[e] = sum;
}

enum err CUDA_SYMBOL(route_sums) KERNEL_LIKE(route_sums)
{
    int64_t tokens = chunk_tokens(route->n);
    int64_t chunks = cuda_parts(route->n, tokens);
    int experts = route->experts;
    unsigned threads = cuda_threads(experts);
    double *sums = (double *)ctx->scratch;
    assert(ctx->scratch_bytes >= (size_t)(chunks * experts) * sizeof(*sums));
    if (chunks > 0)
        CUDA_LAUNCH(sums_chunk, cuda_blocks(chunks), threads, 0,
                    cuda_stream(ctx), route->n, tokens, experts, probs, sums);
    CUDA_LAUNCH(sums_add, cuda_blocks(cuda_parts(experts, threads)), threads, 0,
                cuda_stream(ctx), chunks, experts, sums, out);
    return cuda_launched("route_sums");
}

/* --- balance: one block; the sum is one thread's, in order of experts --- */

static __global__ void balance_sum(int64_t n, int experts, double scale,
                                   const int64_t *offsets, const double *sums,
                                   int64_t *counts, double *loss)
{
    __shared__ double terms[CUDA_THREADS];
    double sum = 0;
    for (int first = 0; first < experts; first += CUDA_THREADS) {
        int e = first + (int)threadIdx.x;
        if (e < experts) {
            int64_t count = offsets[e + 1] - offsets[e];
            counts[e] += count;
            terms[threadIdx.x] = (double)count * sums[e] / (double)n;
        }
        __syncthreads();
        for (int i = 0; threadIdx.x == 0 && i < CUDA_THREADS; i++)
            if (first + i < experts)
                sum += terms[i];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        *loss += scale * sum;
}

enum err CUDA_SYMBOL(balance_forward) KERNEL_LIKE(balance_forward)
{
    if (route->n == 0)
        return ERR_OK;
    CUDA_LAUNCH(balance_sum, 1, CUDA_THREADS, 0, cuda_stream(ctx), route->n,
                route->experts, scale, offsets, sums, counts, loss);
    return cuda_launched("balance_forward");
}

static __global__ void balance_gradient(double n, int experts, double scale,
                                        const int64_t *offsets, float *dprobs)
{
    int64_t e = cuda_index();
    if (e < experts)
        dprobs[e] = (float)(scale * (double)(offsets[e + 1] - offsets[e]) / n);
}

enum err CUDA_SYMBOL(balance_backward) KERNEL_LIKE(balance_backward)
{
    unsigned threads = cuda_threads(route->experts);
    double n = route->n > 0 ? (double)route->n : 1.0;
    CUDA_LAUNCH(balance_gradient,
                cuda_blocks(cuda_parts(route->experts, threads)), threads, 0,
                cuda_stream(ctx), n, route->experts, scale, offsets, dprobs);
    return cuda_launched("balance_backward");
}
