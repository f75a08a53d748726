/* Attention backward without atomics: one kernel for dq, a block per tile of
 * queries, and one for dk and dv, a block per tile of keys, which takes the
 * query heads of its group one after the other. With P = 2^(x - lse), the
 * probabilities that forward had, and delta = rowsum(out * dout),
 *
 *     dV = P^T dout
 *     dS = P * (dout V^T - delta)
 *     dQ = scale dS K, dK = scale dS^T Q
 *
 * delta stands for rowsum(P * dP), by which a softmax's gradient is centred: it
 * is the same number, as out = P V, and needs no second pass over the keys (Dao
 * et al. 2022, appendix B).
 *
 * Dao's kernel goes through the keys once and adds to dq from all blocks by
 * atomics, whose order is that of chance. Here scores and dP are computed twice,
 * seven products instead of five, and every sum has one order: dq's over keys,
 * dk's and dv's over queries. The second kernel computes the matrices turned, so
 * that they are in the registers that the next product reads. */
#include "kernels/cuda/cuda_attention.h"

/* Two matrices of scores are in registers, beside one or two of sums. */
template <class T, int D> struct backward {
    static const int columns = sizeof(T) == 4 ? 16 : D <= 64 ? 64 : 32;
};

/* A tile of columns: keys and values, or queries and dout with their lse, in
 * units of log 2, and delta. */
template <class T, int D> struct backward_stage {
    T columns[2][backward<T, D>::columns * CUDA_MMA_STRIDE(T, D)];
    float list[2 * backward<T, D>::columns];
};

/* The block's arrays in shared memory. The next tile of columns comes while one
 * is computed. */
template <class T, int D> struct backward_shared {
    T rows[2][cuda_tile<T>::rows * CUDA_MMA_STRIDE(T, D)];
    struct backward_stage<T, D> stage[2];
    T spare[cuda_tile<T>::warps *
                cuda_mma_spare<T, backward<T, D>::columns>::count +
            cuda_lanes<T>::count];
};

/* delta[batch, heads, seq]: the sum of out * dout, a warp per row. */
template <class T>
static __global__ void attention_delta(struct attention s, const T *out,
                                       const T *dout, float *delta)
{
    int64_t row = cuda_index() / CUDA_WARP, rows = s.batch * s.seq * s.heads;
    float sum = 0;
    if (row >= rows)
        return;
    for (int64_t i = cuda_lane(); i < s.head_dim; i += CUDA_WARP)
        sum = fmaf(cuda_value(out[row * s.head_dim + i]),
                   cuda_value(dout[row * s.head_dim + i]), sum);
    sum = cuda_warp_sum(sum);
    int64_t head = row % s.heads, token = row / s.heads;
    if (cuda_lane() == 0)
        delta[(token / s.seq * s.heads + head) * s.seq + token % s.seq] = sum;
}

/* A tile of keys: dq += ds k / scale. `lse` is in units of log 2. */
template <bool DROPOUT, class T, int D>
CUDA_DEVICE void
add_keys(const struct cuda_pair &pair, const struct cuda_view &v,
         const struct cuda_part &part, bool mixed, const float lse[2],
         const float delta[2], struct backward_shared<T, D> *shared,
         const struct backward_stage<T, D> *stage, float (*dq)[4])
{
    const int columns = backward<T, D>::columns;
    int warp = (int)threadIdx.x / CUDA_WARP;
    int mine = warp * CUDA_MMA_ROWS * CUDA_MMA_STRIDE(T, D);
    T *spare = shared->spare + warp * cuda_mma_spare<T, columns>::count;
    float p[columns / 8][4], dp[columns / 8][4];
    float kept = 1.0f / (1.0f - pair.shape.dropout);
    cuda_tile_zero<columns>(p);
    cuda_tile_zero<columns>(dp);
    cuda_mma_rows<1, columns, D>(shared->rows[0] + mine, stage->columns[0], p);
    cuda_mma_rows<1, columns, D>(shared->rows[1] + mine, stage->columns[1], dp);
    cuda_bias<false, columns>(pair, v, part, p);
    CUDA_UNROLL
    for (int j = 0; j < columns / 8; j++) {
        unsigned dropped = DROPOUT ? cuda_dropped<false>(pair, v, part, j) : 0;
        for (int i = 0; i < 4; i++) {
            if (DROPOUT)
                dp[j][i] *= dropped >> i & 1 ? 0.0f : kept;
            p[j][i] = cuda_exp2(fmaf(p[j][i], v.unit, -lse[i / 2])) *
                      (dp[j][i] - delta[i / 2]);
        }
    }
    if (cuda_at_edge<false, columns>(pair, part, mixed))
        cuda_mask<false, columns>(pair, v, part, 0, p);
    cuda_mma_columns<1, D, columns>(p, spare, stage->columns[0], dq);
}

template <class T, int D>
CUDA_DEVICE void load_keys(const struct cuda_pair &pair,
                           const struct cuda_view &v, int at, const T *kv,
                           struct backward_stage<T, D> *stage)
{
    const int columns = backward<T, D>::columns;
    cuda_tile_load<columns, D>(pair, at, kv + v.k, pair.key_stride,
                               stage->columns[0]);
    cuda_tile_load<columns, D>(pair, at, kv + v.v, pair.key_stride,
                               stage->columns[1]);
}

template <class T, int D, bool DROPOUT>
static __global__ void CUDA_RESIDENT(cuda_tile<T>::threads,
                                     cuda_tile<T>::resident)
    attention_dq(struct cuda_pair pair, const T *q, const T *kv,
                 const float *lse, const float *delta, const T *dout, void *dq)
{
    typedef struct backward_shared<T, D> arrays;
    const int rows = cuda_tile<T>::rows, columns = backward<T, D>::columns;
    CUDA_SHARED(arrays, shared);
    const struct attention &s = pair.shape;
    int64_t heads = s.batch * s.heads, stride = cuda_qkv_stride(s);
    int64_t head = blockIdx.x % heads;
    int first = (int)(gridDim.x / heads - 1 - blockIdx.x / heads) * rows;
    int warp = (int)threadIdx.x / CUDA_WARP, stage = 0;
    const struct cuda_view v =
        cuda_view_of(pair, head / s.heads, head % s.heads);
    const struct cuda_range range =
        cuda_range_of(pair, cuda_ids_of(pair, v, false), first, rows);
    struct cuda_part part = { first + warp * CUDA_MMA_ROWS, 0 };
    struct cuda_walk walk = cuda_walk_keys(pair, first, rows, columns);
    float sum[D / 8][4], row_lse[2], row_delta[2];
    for (int r = 0; r < 2; r++) {
        int row = part.first_row + cuda_lane() / 4 + 8 * r;
        row_lse[r] = row < pair.seq ? lse[v.stats + row] * CUDA_LOG2_E : 0;
        row_delta[r] = row < pair.seq ? delta[v.stats + row] : 0;
    }
    cuda_tile_zero<D>(sum);
    cuda_walk_on(pair, cuda_ids_of(pair, v, true), range, columns, &walk);
    if (walk.at < walk.end) {
        cuda_tile_load<rows, D>(pair, first, q + v.q, stride, shared->rows[0]);
        cuda_tile_load<rows, D>(pair, first, dout + v.out, s.heads * s.head_dim,
                                shared->rows[1]);
        load_keys<T, D>(pair, v, walk.at, kv, &shared->stage[0]);
    }
    for (; walk.at < walk.end; stage = 1 - stage) {
        bool mixed = walk.mixed;
        part.first_column = walk.at;
        cuda_mma_fetched();
        __syncthreads();
        walk.at += columns;
        cuda_walk_on(pair, cuda_ids_of(pair, v, true), range, columns, &walk);
        if (walk.at < walk.end)
            load_keys<T, D>(pair, v, walk.at, kv, &shared->stage[1 - stage]);
        if (!cuda_apart<false, columns>(pair, part, CUDA_MMA_ROWS))
            add_keys<DROPOUT, T, D>(pair, v, part, mixed, row_lse, row_delta,
                                    shared, &shared->stage[stage], sum);
    }
    const float factor[2] = { s.scale, s.scale };
    cuda_results_store<D, T>(pair, part.first_row, 3, factor, sum,
                             pair.dq_stride, pair.more, dq, v.dq);
}

/* A tile of queries of one head: dv += p^T dout, dk += ds^T q / scale. */
template <bool DROPOUT, class T, int D>
CUDA_DEVICE void add_queries(const struct cuda_pair &pair,
                             const struct cuda_view &v,
                             const struct cuda_part &part, bool mixed,
                             struct backward_shared<T, D> *shared,
                             const struct backward_stage<T, D> *stage,
                             float (*dk)[4], float (*dv)[4])
{
    const int columns = backward<T, D>::columns;
    int warp = (int)threadIdx.x / CUDA_WARP;
    int mine = warp * CUDA_MMA_ROWS * CUDA_MMA_STRIDE(T, D);
    T *spare = shared->spare + warp * cuda_mma_spare<T, columns>::count;
    const float *lse = stage->list + cuda_lane() % 4 * 2;
    const float *delta = lse + columns;
    float p[columns / 8][4], x[columns / 8][4];
    float kept = 1.0f / (1.0f - pair.shape.dropout);
    unsigned dropped = 0;
    cuda_tile_zero<columns>(p);
    cuda_mma_rows<1, columns, D>(shared->rows[0] + mine, stage->columns[0], p);
    cuda_bias<true, columns>(pair, v, part, p);
    CUDA_UNROLL
    for (int j = 0; j < columns / 8; j++)
        for (int i = 0; i < 4; i++)
            p[j][i] = cuda_exp2(fmaf(p[j][i], v.unit, -lse[j * 8 + i % 2]));
    if (cuda_at_edge<true, columns>(pair, part, mixed))
        cuda_mask<true, columns>(pair, v, part, 0, p);
    CUDA_UNROLL
    for (int j = 0; j < columns / 8; j++) {
        if (DROPOUT)
            dropped |= cuda_dropped<true>(pair, v, part, j) << 4 * j;
        for (int i = 0; i < 4; i++)
            x[j][i] = dropped >> (4 * j + i) & 1 ? 0.0f
                      : DROPOUT                  ? p[j][i] * kept
                                                 : p[j][i];
    }
    cuda_mma_columns<1, D, columns>(x, spare, stage->columns[1], dv);
    cuda_tile_zero<columns>(x);
    cuda_mma_rows<1, columns, D>(shared->rows[1] + mine, stage->columns[1], x);
    CUDA_UNROLL
    for (int j = 0; j < columns / 8; j++)
        for (int i = 0; i < 4; i++) {
            if (DROPOUT)
                x[j][i] *= dropped >> (4 * j + i) & 1 ? 0.0f : kept;
            p[j][i] *= x[j][i] - delta[j * 8 + i % 2];
        }
    cuda_mma_columns<1, D, columns>(p, spare, stage->columns[0], dk);
}

/* Where the queries that a block of keys goes through lie: of the group's
 * first head and token. */
template <class T> struct queries {
    const T *q, *dout;
    const float *lse, *delta;
};

/* A tile of queries; the thread's element of its list is held in a register
 * until the tile before has been computed. */
template <class T, int D>
CUDA_DEVICE void load_queries(const struct cuda_pair &pair,
                              const struct queries<T> &from, int member, int at,
                              struct backward_stage<T, D> *stage, float *held)
{
    const struct attention &s = pair.shape;
    const int columns = backward<T, D>::columns;
    int query = at + (int)threadIdx.x % columns;
    int64_t stat = member * s.seq + query;
    cuda_tile_load<columns, D>(pair, at, from.q + member * s.head_dim,
                               cuda_qkv_stride(s), stage->columns[0]);
    cuda_tile_load<columns, D>(pair, at, from.dout + member * s.head_dim,
                               s.heads * s.head_dim, stage->columns[1]);
    *held = 0;
    if (query < pair.seq && threadIdx.x < 2 * columns)
        *held = threadIdx.x < columns ? from.lse[stat] * CUDA_LOG2_E
                                      : from.delta[stat];
}

/* To the next tile of queries, of the next head of the group after the last;
 * every head's first one is at `begin`. */
template <int COLUMNS>
CUDA_DEVICE void walk_queries(const struct cuda_pair &pair, const int32_t *ids,
                              struct cuda_range keys, int begin, int group,
                              struct cuda_walk *walk, int *member)
{
    walk->at += COLUMNS;
    cuda_walk_on(pair, ids, keys, COLUMNS, walk);
    if (walk->at < walk->end || *member + 1 == group)
        return;
    walk->at = begin;
    cuda_walk_on(pair, ids, keys, COLUMNS, walk);
    *member += 1;
}

template <class T, int D, bool DROPOUT>
static __global__ void CUDA_RESIDENT(cuda_tile<T>::threads,
                                     cuda_tile<T>::resident)
    attention_dkv(struct cuda_pair pair, const T *q, const T *kv,
                  const float *lse, const float *delta, const T *dout,
                  void *dkv)
{
    typedef struct backward_shared<T, D> arrays;
    const int rows = cuda_tile<T>::rows, columns = backward<T, D>::columns;
    CUDA_SHARED(arrays, shared);
    const struct attention &s = pair.shape;
    int64_t kv_heads = s.batch * s.kv_heads, stride = pair.key_stride;
    int64_t sequence = blockIdx.x % kv_heads / s.kv_heads;
    int group = (int)(s.heads / s.kv_heads), member = 0, stage = 0;
    int64_t head = blockIdx.x % kv_heads % s.kv_heads * group;
    int first = (int)(blockIdx.x / kv_heads) * rows;
    struct cuda_view v = cuda_view_of(pair, sequence, head);
    const struct cuda_range range =
        cuda_range_of(pair, cuda_ids_of(pair, v, true), first, rows);
    const struct queries<T> from = {
        q + v.q, dout + v.out, lse + v.stats, delta + v.stats
    };
    struct cuda_part part = {
        first + (int)threadIdx.x / CUDA_WARP * CUDA_MMA_ROWS, 0
    };
    /* the last key's last query, and one */
    int64_t last = (int64_t)first + rows - 1 + pair.window - pair.distance;
    struct cuda_walk walk = { pair.distance == 0 ? first / columns * columns
                                                 : 0,
                              (int)cuda_min(pair.seq, last), false };
    float dk[D / 8][4], dv[D / 8][4], held = 0;
    cuda_tile_zero<D>(dk);
    cuda_tile_zero<D>(dv);
    cuda_walk_on(pair, cuda_ids_of(pair, v, false), range, columns, &walk);
    const int begin = walk.at;
    if (begin < walk.end) {
        cuda_tile_load<rows, D>(pair, first, kv + v.k, stride, shared->rows[0]);
        cuda_tile_load<rows, D>(pair, first, kv + v.v, stride, shared->rows[1]);
        load_queries<T, D>(pair, from, 0, begin, &shared->stage[0], &held);
    }
    for (; walk.at < walk.end; stage = 1 - stage) {
        struct backward_stage<T, D> *now = &shared->stage[stage];
        bool mixed = walk.mixed;
        int before = member;
        part.first_column = walk.at;
        if (threadIdx.x < 2 * columns)
            now->list[threadIdx.x] = held;
        cuda_mma_fetched();
        __syncthreads();
        walk_queries<columns>(pair, cuda_ids_of(pair, v, false), range, begin,
                              group, &walk, &member);
        if (walk.at < walk.end)
            load_queries<T, D>(pair, from, member, walk.at,
                               &shared->stage[1 - stage], &held);
        if (!cuda_apart<true, columns>(pair, part, CUDA_MMA_ROWS))
            add_queries<DROPOUT, T, D>(pair, v, part, mixed, shared, now, dk,
                                       dv);
        if (member != before)
            v = cuda_view_of(pair, sequence, head + member);
    }
    const float factor[2] = { s.scale, s.scale }, one[2] = { 1, 1 };
    sequence = cuda_anew((int)blockIdx.x) % kv_heads / s.kv_heads;
    head = cuda_anew((int)blockIdx.x) % kv_heads % s.kv_heads * group;
    v = cuda_view_of(pair, sequence, head);
    cuda_results_store<D, T>(pair, part.first_row, 3, factor, dk, stride,
                             pair.more, dkv, v.k);
    cuda_results_store<D, T>(pair, part.first_row, 3, one, dv, stride,
                             pair.more, dkv, v.v);
}

size_t CUDA_SYMBOL(attention_scratch)(const struct kernel_limits *limits)
{
    return (size_t)(limits->tokens * limits->heads) * sizeof(float);
}

/* What a launch is asked for. */
struct backward_call {
    const char *op;
    const struct kernel_ctx *ctx;
    struct cuda_pair pair;
    const void *q, *kv, *out;
    const float *lse;
    const void *dout;
    void *dq, *dkv;
};

template <class T, int D>
static enum err backward_run(const struct backward_call *c)
{
    const struct attention *s = &c->pair.shape;
    auto dq_kernel =
        s->dropout > 0 ? attention_dq<T, D, true> : attention_dq<T, D, false>;
    auto dkv_kernel =
        s->dropout > 0 ? attention_dkv<T, D, true> : attention_dkv<T, D, false>;
    const size_t bytes = sizeof(struct backward_shared<T, D>);
    const float *delta = (const float *)c->ctx->scratch;
    int64_t tiles = cuda_parts(s->seq, cuda_tile<T>::rows);
    TRY(cuda_attention_grant(c->op, dq_kernel, bytes));
    TRY(cuda_attention_grant(c->op, dkv_kernel, bytes));
    CUDA_LAUNCH(dkv_kernel, cuda_blocks(tiles * s->batch * s->kv_heads),
                cuda_tile<T>::threads, bytes, cuda_stream(c->ctx), c->pair,
                (const T *)c->q, (const T *)c->kv, c->lse, delta,
                (const T *)c->dout, c->dkv);
    CUDA_LAUNCH(dq_kernel, cuda_blocks(tiles * s->batch * s->heads),
                cuda_tile<T>::threads, bytes, cuda_stream(c->ctx), c->pair,
                (const T *)c->q, (const T *)c->kv, c->lse, delta,
                (const T *)c->dout, c->dq);
    return cuda_launched(c->op);
}

static enum err backward_any(enum dtype dtype, const struct backward_call *c)
{
    const struct attention *s = &c->pair.shape;
    int64_t rows = s->batch * s->seq * s->heads;
    if (s->head_dim > CUDA_HEAD_DIM_MAX)
        return cuda_lacks_head_dim(c->op, s);
    assert(c->ctx->scratch_bytes >= (size_t)rows * sizeof(float));
    return cuda_by_dtype(dtype, c->op, [&](auto element) {
        typedef decltype(element) T;
        CUDA_LAUNCH(attention_delta<T>,
                    cuda_blocks(cuda_parts(rows, CUDA_THREADS / CUDA_WARP)),
                    CUDA_THREADS, 0, cuda_stream(c->ctx), *s, (const T *)c->out,
                    (const T *)c->dout, (float *)c->ctx->scratch);
        return CUDA_BY_HEAD_DIM(T, s, c->op, backward_run, c);
    });
}

enum err CUDA_SYMBOL(attention_backward) KERNEL_LIKE(attention_backward)
{
    const char *op = "attention_backward";
    size_t keys = cuda_keys_at(dtype, shape);
    const struct backward_call c = { op,
                                     ctx,
                                     cuda_pair_whole(shape),
                                     qkv,
                                     (const char *)qkv + keys,
                                     out,
                                     lse,
                                     dout,
                                     dqkv,
                                     (char *)dqkv + keys };
    return backward_any(dtype, &c);
}

enum err CUDA_SYMBOL(attention_chunk_backward)
    KERNEL_LIKE(attention_chunk_backward)
{
    const char *op = "attention_chunk_backward";
    const struct backward_call c = {
        op, ctx, cuda_pair_chunks(chunk, true), q, kv, out, lse, dout, dq, dkv
    };
    return backward_any(dtype, &c);
}
