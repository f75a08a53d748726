/* Attention forward: a block per tile of queries, which goes through the keys
 * from the first to the last and never has the matrix of scores in memory (Dao
 * et al. 2022, with Dao 2023's division of the work).
 *
 * The softmax is an online one (Milakov and Gimelshein 2018): with a running
 * maximum m and sum l of a query, a tile of scores x gives
 *
 *     m' = max(m, max x), l' = l 2^(m - m') + sum of 2^(x - m')
 *     out' = out 2^(m - m') + 2^(x - m') V
 *
 * and at the end out / l and lse = m + log l, which is all that backward needs
 * to have the probabilities again. Each warp has queries of its own and all keys
 * of a tile, so that maximum and sum need no other warp; the scores become
 * probabilities in the registers that they were summed in, which are the ones
 * that the next product reads. A tile of keys and values comes while the one
 * before is computed.
 *
 * A query's keys are added in one order, tile by tile, on one block: bits depend
 * on the shape alone. To cut the keys among blocks would fill a device that has
 * few queries, but add the parts in an order of chance or in another pass. */
#include "kernels/cuda/cuda_attention.h"

#include <float.h>

/* In bf16 a warp has 32 rows, for which it reads a tile of columns once; more
 * columns beside the widest heads' sums, or more rows beside dropout, would not
 * fit into the registers. */
template <class T, int D, bool DROPOUT> struct forward {
    static const int columns = sizeof(T) == 4 || D > 64 ? 32 : 64;
    /* of 16 rows, per warp */
    static const int blocks = sizeof(T) == 4 || DROPOUT ? 1 : 2;
    static const int warp_rows = blocks * CUDA_MMA_ROWS;
    static const int rows = cuda_tile<T>::warps * warp_rows;
};

/* A tile of keys and their values. */
template <class T, int D, int COLUMNS> struct forward_stage {
    T k[COLUMNS * CUDA_MMA_STRIDE(T, D)];
    T v[COLUMNS * CUDA_MMA_STRIDE(T, D)];
};

/* The block's arrays in shared memory. The next tile of columns comes while one
 * is computed. */
template <class T, int D, bool DROPOUT> struct forward_shared {
    T q[forward<T, D, DROPOUT>::rows * CUDA_MMA_STRIDE(T, D)];
    struct forward_stage<T, D, forward<T, D, DROPOUT>::columns> stage[2];
    T spare[cuda_tile<T>::warps *
                cuda_mma_spare<T, forward<T, D, DROPOUT>::columns>::count +
            cuda_lanes<T>::count];
};

/* Over the four lanes that share a row. */
template <class F> CUDA_DEVICE float quad_reduce(float x, F f)
{
    x = f(x, __shfl_xor_sync(CUDA_ALL_LANES, x, 1));
    return f(x, __shfl_xor_sync(CUDA_ALL_LANES, x, 2));
}

/* The running maximum and sum of a lane's two rows. */
struct running {
    float peak[2]; /* of scores in units of log 2 */
    float sum[2];  /* of this lane's columns */
};

/* The 16 queries from `first` on. Of those that saw keys before out is their
 * products' sum, with a peak of lse and a sum of 1. */
template <int D>
CUDA_DEVICE void begin(const struct cuda_pair &pair, const struct cuda_view &v,
                       int first, const float *out, const float *lse,
                       struct running *all, float (*sum)[4])
{
    *all = { { -FLT_MAX, -FLT_MAX }, { 0, 0 } };
    cuda_tile_zero<D>(sum);
    if (!pair.more)
        return;
    int width = (int)pair.shape.head_dim;
    int row = first + cuda_lane() / 4, column = cuda_lane() % 4 * 2;
    CUDA_UNROLL
    for (int r = 0; r < 2; r++, row += 8) {
        float before = row < pair.seq ? lse[v.stats + row] : -INFINITY;
        bool seen = before != -INFINITY;
        const float *p = out + v.out + row * pair.shape.heads * width + column;
        all->peak[r] = seen ? before * CUDA_LOG2_E : -FLT_MAX;
        all->sum[r] = seen && column == 0 ? 1.0f : 0.0f;
        CUDA_UNROLL
        for (int j = 0; j < D / 8; j++) {
            for (int i = 0; i < 2; i++)
                sum[j][2 * r + i] =
                    seen && j * 8 + column + i < width ? p[j * 8 + i] : 0.0f;
        }
    }
}

/* Scores become exp2(score - peak), with dropout; factor is what former tiles'
 * products must be multiplied by. */
template <bool DROPOUT, int N>
CUDA_DEVICE void softmax(const struct cuda_pair &pair,
                         const struct cuda_view &v,
                         const struct cuda_part &part, bool mixed,
                         float (*x)[4], struct running *all, float factor[2])
{
    float top[2] = { -INFINITY, -INFINITY };
    float kept = 1.0f / (1.0f - pair.shape.dropout);
    cuda_bias<false, N>(pair, v, part, x);
    if (cuda_at_edge<false, N>(pair, part, mixed))
        cuda_mask<false, N>(pair, v, part, -INFINITY, x);
    CUDA_UNROLL
    for (int j = 0; j < N / 8; j++)
        for (int i = 0; i < 4; i++)
            top[i / 2] = fmaxf(top[i / 2], x[j][i]);
    for (int r = 0; r < 2; r++) {
        top[r] = quad_reduce(top[r], cuda_most());
        top[r] = fmaxf(all->peak[r], top[r] * v.unit);
        factor[r] = cuda_exp2(all->peak[r] - top[r]);
        all->sum[r] *= factor[r];
        all->peak[r] = top[r];
    }
    CUDA_UNROLL
    for (int j = 0; j < N / 8; j++) {
        unsigned dropped = DROPOUT ? cuda_dropped<false>(pair, v, part, j) : 0;
        for (int i = 0; i < 4; i++) {
            x[j][i] = cuda_exp2(fmaf(x[j][i], v.unit, -top[i / 2]));
            all->sum[i / 2] += x[j][i];
            if (DROPOUT)
                x[j][i] *= dropped >> i & 1 ? 0.0f : kept;
        }
    }
}

template <int D>
CUDA_DEVICE void scale_rows(const float factor[2], float (*x)[4])
{
    CUDA_UNROLL
    for (int j = 0; j < D / 8; j++)
        for (int i = 0; i < 4; i++)
            x[j][i] *= factor[i / 2];
}

/* Queries that had seen keys and saw no more keep what they have, bit by bit.
 */
template <class T, int D>
CUDA_DEVICE void finish(const struct cuda_pair &pair, const struct cuda_view &v,
                        int first, struct running all, const float (*sum)[4],
                        void *out, float *lse)
{
    float factor[2];
    unsigned rows = 0;
    for (int r = 0; r < 2; r++) {
        int row = first + cuda_lane() / 4 + 8 * r;
        float before = pair.more && row < pair.seq ? lse[v.stats + row] : 0.0f;
        float total = quad_reduce(all.sum[r], cuda_plus());
        bool same =
            pair.more && total == 1.0f && all.peak[r] == before * CUDA_LOG2_E;
        factor[r] = total == 0 ? 0.0f : 1.0f / total;
        rows |= (unsigned)!same << r;
        __syncwarp();
        if (cuda_lane() % 4 == 0 && row < pair.seq && !same)
            lse[v.stats + row] = (all.peak[r] + log2f(total)) * CUDA_LN_2;
    }
    cuda_results_store<D, T>(pair, first, rows, factor, sum,
                             pair.shape.heads * pair.shape.head_dim, false, out,
                             v.out);
}

template <class T, int D, int COLUMNS>
CUDA_DEVICE void load_keys(const struct cuda_pair &pair,
                           const struct cuda_view &v, int at, const T *kv,
                           struct forward_stage<T, D, COLUMNS> *stage)
{
    cuda_tile_load<COLUMNS, D>(pair, at, kv + v.k, pair.key_stride, stage->k);
    cuda_tile_load<COLUMNS, D>(pair, at, kv + v.v, pair.key_stride, stage->v);
}

/* A tile of keys: sum = sum * factor + p v, for the warp's rows. */
template <class T, int D, bool DROPOUT>
CUDA_DEVICE void add_keys(
    const struct cuda_pair &pair, const struct cuda_view &v,
    const struct cuda_part *part, bool mixed,
    struct forward_shared<T, D, DROPOUT> *shared,
    const struct forward_stage<T, D, forward<T, D, DROPOUT>::columns> *stage,
    struct running *all, float (*sum)[4])
{
    const int columns = forward<T, D, DROPOUT>::columns;
    const int blocks = forward<T, D, DROPOUT>::blocks;
    const int warp_rows = forward<T, D, DROPOUT>::warp_rows;
    int warp = (int)threadIdx.x / CUDA_WARP;
    T *spare = shared->spare + warp * cuda_mma_spare<T, columns>::count;
    float x[blocks * columns / 8][4], factor[2];
    cuda_tile_zero<blocks * columns>(x);
    cuda_mma_rows<blocks, columns, D>(
        shared->q + warp * warp_rows * CUDA_MMA_STRIDE(T, D), stage->k, x);
    CUDA_UNROLL
    for (int m = 0; m < blocks; m++) {
        softmax<DROPOUT, columns>(pair, v, part[m], mixed, x + m * columns / 8,
                                  &all[m], factor);
        /* the peaks seldom rise once many keys were seen */
        if (__any_sync(CUDA_ALL_LANES, factor[0] != 1 || factor[1] != 1))
            scale_rows<D>(factor, sum + m * D / 8);
    }
    cuda_mma_columns<blocks, D, columns>(x, spare, stage->v, sum);
}

/* The last queries, which have the most keys, come first: that balances better.
 */
template <class T, int D, bool DROPOUT>
static __global__ void CUDA_RESIDENT(cuda_tile<T>::threads,
                                     cuda_tile<T>::resident)
    attention_forward(struct cuda_pair pair, const T *q, const T *kv, void *out,
                      float *lse)
{
    const int rows = forward<T, D, DROPOUT>::rows,
              columns = forward<T, D, DROPOUT>::columns;
    const int blocks = forward<T, D, DROPOUT>::blocks,
              warp_rows = forward<T, D, DROPOUT>::warp_rows;
    typedef struct forward_shared<T, D, DROPOUT> arrays;
    CUDA_SHARED(arrays, shared);
    const struct attention &s = pair.shape;
    int64_t heads = s.batch * s.heads, head = blockIdx.x % heads;
    int first = (int)(gridDim.x / heads - 1 - blockIdx.x / heads) * rows;
    int warp = (int)threadIdx.x / CUDA_WARP, stage = 0;
    struct cuda_view v = cuda_view_of(pair, head / s.heads, head % s.heads);
    const struct cuda_range range =
        cuda_range_of(pair, cuda_ids_of(pair, v, false), first, rows);
    struct cuda_walk walk = cuda_walk_keys(pair, first, rows, columns);
    struct cuda_part part[blocks];
    struct running all[blocks];
    float sum[blocks * D / 8][4];
    CUDA_UNROLL
    for (int m = 0; m < blocks; m++) {
        part[m].first_row = first + warp * warp_rows + m * CUDA_MMA_ROWS;
        begin<D>(pair, v, part[m].first_row, (const float *)out, lse, &all[m],
                 sum + m * D / 8);
    }
    cuda_walk_on(pair, cuda_ids_of(pair, v, true), range, columns, &walk);
    if (walk.at < walk.end) {
        cuda_tile_load<rows, D>(pair, first, q + v.q, cuda_qkv_stride(s),
                                shared->q);
        load_keys<T, D, columns>(pair, v, walk.at, kv, &shared->stage[0]);
    }
    for (; walk.at < walk.end; stage = 1 - stage) {
        bool mixed = walk.mixed;
        CUDA_UNROLL
        for (int m = 0; m < blocks; m++)
            part[m].first_column = walk.at;
        cuda_mma_fetched();
        __syncthreads();
        walk.at += columns;
        cuda_walk_on(pair, cuda_ids_of(pair, v, true), range, columns, &walk);
        if (walk.at < walk.end)
            load_keys<T, D, columns>(pair, v, walk.at, kv,
                                     &shared->stage[1 - stage]);
        if (cuda_apart<false, columns>(pair, part[0], warp_rows))
            continue;
        add_keys<T, D, DROPOUT>(pair, v, part, mixed, shared,
                                &shared->stage[stage], all, sum);
    }
    head = cuda_anew((int)blockIdx.x) % heads;
    v = cuda_view_of(pair, head / s.heads, head % s.heads);
    CUDA_UNROLL
    for (int m = 0; m < blocks; m++)
        finish<T, D>(pair, v, part[m].first_row, all[m], sum + m * D / 8, out,
                     lse);
}

/* What a launch is asked for. */
struct forward_call {
    const char *op;
    const struct kernel_ctx *ctx;
    struct cuda_pair pair;
    const void *q, *kv;
    void *out;
    float *lse;
};

template <class T, int D, bool DROPOUT>
static enum err forward_launch(const struct forward_call *c)
{
    const struct attention *s = &c->pair.shape;
    auto kernel = attention_forward<T, D, DROPOUT>;
    const size_t bytes = sizeof(struct forward_shared<T, D, DROPOUT>);
    int64_t tiles = cuda_parts(s->seq, forward<T, D, DROPOUT>::rows);
    TRY(cuda_attention_grant(c->op, kernel, bytes));
    CUDA_LAUNCH(kernel, cuda_blocks(tiles * s->batch * s->heads),
                cuda_tile<T>::threads, bytes, cuda_stream(c->ctx), c->pair,
                (const T *)c->q, (const T *)c->kv, c->out, c->lse);
    return cuda_launched(c->op);
}

template <class T, int D>
static enum err forward_run(const struct forward_call *c)
{
    return c->pair.shape.dropout > 0 ? forward_launch<T, D, true>(c)
                                     : forward_launch<T, D, false>(c);
}

static enum err forward_any(enum dtype dtype, const struct forward_call *c)
{
    return cuda_by_dtype(dtype, c->op, [&](auto element) {
        typedef decltype(element) T;
        return CUDA_BY_HEAD_DIM(T, &c->pair.shape, c->op, forward_run, c);
    });
}

enum err CUDA_SYMBOL(attention_forward) KERNEL_LIKE(attention_forward)
{
    const char *op = "attention_forward";
    const struct forward_call c = { op,
                                    ctx,
                                    cuda_pair_whole(shape),
                                    qkv,
                                    (const char *)qkv +
                                        cuda_keys_at(dtype, shape),
                                    out,
                                    lse };
    return forward_any(dtype, &c);
}

enum err CUDA_SYMBOL(attention_chunk_forward)
    KERNEL_LIKE(attention_chunk_forward)
{
    const char *op = "attention_chunk_forward";
    const struct forward_call c = { op, ctx, cuda_pair_chunks(chunk, !first),
                                    q,  kv,  out,
                                    lse };
    return forward_any(dtype, &c);
}
