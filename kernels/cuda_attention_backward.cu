/* Attention backward without atomics: one kernel for dq, a block per tile of
 * queries, and one for dk and dv, a block per tile of keys, which takes the
 * query heads of its group one after the other. Both compute the probabilities
 * anew, the second one turned, so that they are in the registers that the next
 * product reads. */
#include "kernels/cuda_attention.h"

/* Two matrices of scores are in registers, beside one or two of sums. */
template <class T, int D> struct backward {
    static const int columns = sizeof(T) == 2 && D <= 64 ? 64 : 32;
};

/* The block's arrays in shared memory. */
template <class T, int D> struct backward_shared {
    T rows[2][cuda_tile<T>::rows * CUDA_MMA_STRIDE(T, D)];
    T columns[2][backward<T, D>::columns * CUDA_MMA_STRIDE(T, D)];
    T spare[cuda_tile<T>::warps *
                cuda_mma_spare<T, backward<T, D>::columns>::count +
            cuda_lanes<T>::count];
    int32_t ids[backward<T, D>::columns];
    float lse[backward<T, D>::columns];
    float delta[backward<T, D>::columns];
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
template <class T, int D>
CUDA_DEVICE void add_keys(const struct attention &s, const struct cuda_view &v,
                          const struct cuda_part &part, const float lse[2],
                          const float delta[2],
                          struct backward_shared<T, D> *shared, float (*dq)[4])
{
    const int columns = backward<T, D>::columns;
    int warp = (int)threadIdx.x / CUDA_WARP;
    int mine = warp * CUDA_MMA_ROWS * CUDA_MMA_STRIDE(T, D);
    T *spare = shared->spare + warp * cuda_mma_spare<T, columns>::count;
    float p[columns / 8][4], dp[columns / 8][4];
    float kept = 1.0f / (1.0f - s.dropout);
    cuda_tile_zero<columns>(p);
    cuda_tile_zero<columns>(dp);
    cuda_mma_rows<columns, D>(shared->rows[0] + mine, shared->columns[0], p);
    cuda_mma_rows<columns, D>(shared->rows[1] + mine, shared->columns[1], dp);
    CUDA_UNROLL
    for (int j = 0; j < columns / 8; j++) {
        unsigned dropped =
            s.dropout > 0 ? cuda_dropped<false>(s, v, part, j) : 0;
        for (int i = 0; i < 4; i++) {
            float score = cuda_score<false>(s, v, part, j, i, p[j][i]);
            float share = dropped >> i & 1 ? 0.0f : kept;
            float change = dp[j][i] * share - delta[i / 2];
            p[j][i] =
                score == -INFINITY ? 0.0f : exp2f(score - lse[i / 2]) * change;
        }
    }
    cuda_mma_columns<D, columns>(p, spare, shared->columns[0], dq);
}

template <class T, int D>
static __global__ void __launch_bounds__(cuda_tile<T>::threads)
    attention_dq(struct attention s, const T *qkv, const float *lse,
                 const float *delta, const T *dout, T *dqkv)
{
    typedef struct backward_shared<T, D> arrays;
    const int rows = cuda_tile<T>::rows, columns = backward<T, D>::columns;
    CUDA_SHARED(arrays, shared);
    int64_t heads = s.batch * s.heads, stride = cuda_qkv_stride(s);
    int64_t head = blockIdx.x % heads;
    int64_t first = (gridDim.x / heads - 1 - blockIdx.x / heads) * rows;
    int warp = (int)threadIdx.x / CUDA_WARP;
    const struct cuda_view v = cuda_view_of(s, head / s.heads, head % s.heads);
    const struct cuda_range range = cuda_range_of(s, v.ids, first, rows);
    struct cuda_part part = {
        first + warp * CUDA_MMA_ROWS, 0, { 0, 0 }, shared->ids
    };
    float sum[D / 8][4], row_lse[2], row_delta[2];
    for (int r = 0; r < 2; r++) {
        int64_t row = part.first_row + cuda_lane() / 4 + 8 * r;
        row_lse[r] = row < s.seq ? lse[v.stats + row] * CUDA_LOG2_E : 0;
        row_delta[r] = row < s.seq ? delta[v.stats + row] : 0;
    }
    cuda_part_rows(s, v, &part);
    cuda_tile_zero<D>(sum);
    cuda_tile_load<rows, D>(s, first, qkv + v.q, stride, shared->rows[0]);
    cuda_tile_load<rows, D>(s, first, dout + v.out, s.heads * s.head_dim,
                            shared->rows[1]);
    for (int64_t at = 0; at < first + rows; at += columns) {
        if (!cuda_range_meets(s, v.ids, range, at, columns))
            continue;
        __syncthreads();
        cuda_tile_load<columns, D>(s, at, qkv + v.k, stride,
                                   shared->columns[0]);
        cuda_tile_load<columns, D>(s, at, qkv + v.v, stride,
                                   shared->columns[1]);
        cuda_list_load<columns>(s, at, v.ids, 0, shared->ids);
        cuda_mma_fetched();
        __syncthreads();
        part.first_column = at;
        add_keys<T, D>(s, v, part, row_lse, row_delta, shared, sum);
    }
    const float factor[2] = { s.scale, s.scale };
    cuda_tile_store<D>(s, part.first_row, factor, sum, stride, dqkv + v.q);
}

/* A tile of queries of one head: dv += p^T dout, dk += ds^T q / scale. */
template <class T, int D>
CUDA_DEVICE void
add_queries(const struct attention &s, const struct cuda_view &v,
            const struct cuda_part &part, struct backward_shared<T, D> *shared,
            float (*dk)[4], float (*dv)[4])
{
    const int columns = backward<T, D>::columns;
    int warp = (int)threadIdx.x / CUDA_WARP;
    int mine = warp * CUDA_MMA_ROWS * CUDA_MMA_STRIDE(T, D);
    T *spare = shared->spare + warp * cuda_mma_spare<T, columns>::count;
    float p[columns / 8][4], x[columns / 8][4];
    float kept = 1.0f / (1.0f - s.dropout);
    unsigned dropped = 0;
    cuda_tile_zero<columns>(p);
    cuda_mma_rows<columns, D>(shared->rows[0] + mine, shared->columns[0], p);
    CUDA_UNROLL
    for (int j = 0; j < columns / 8; j++) {
        if (s.dropout > 0)
            dropped |= cuda_dropped<true>(s, v, part, j) << 4 * j;
        for (int i = 0; i < 4; i++) {
            int query = j * 8 + cuda_lane() % 4 * 2 + i % 2;
            float score = cuda_score<true>(s, v, part, j, i, p[j][i]);
            p[j][i] = score == -INFINITY
                          ? 0.0f
                          : exp2f(score - shared->lse[query] * CUDA_LOG2_E);
            x[j][i] = dropped >> (4 * j + i) & 1 ? 0.0f : p[j][i] * kept;
        }
    }
    cuda_mma_columns<D, columns>(x, spare, shared->columns[1], dv);
    cuda_tile_zero<columns>(x);
    cuda_mma_rows<columns, D>(shared->rows[1] + mine, shared->columns[1], x);
    CUDA_UNROLL
    for (int j = 0; j < columns / 8; j++)
        for (int i = 0; i < 4; i++) {
            int query = j * 8 + cuda_lane() % 4 * 2 + i % 2;
            float share = dropped >> (4 * j + i) & 1 ? 0.0f : kept;
            p[j][i] *= x[j][i] * share - shared->delta[query];
        }
    cuda_mma_columns<D, columns>(p, spare, shared->columns[0], dk);
}

template <class T, int D>
static __global__ void __launch_bounds__(cuda_tile<T>::threads)
    attention_dkv(struct attention s, const T *qkv, const float *lse,
                  const float *delta, const T *dout, T *dqkv)
{
    typedef struct backward_shared<T, D> arrays;
    const int rows = cuda_tile<T>::rows, columns = backward<T, D>::columns;
    CUDA_SHARED(arrays, shared);
    int64_t kv_heads = s.batch * s.kv_heads, stride = cuda_qkv_stride(s);
    int64_t sequence = blockIdx.x % kv_heads / s.kv_heads;
    int64_t kv = blockIdx.x % kv_heads % s.kv_heads;
    int64_t first = blockIdx.x / kv_heads * rows, group = s.heads / s.kv_heads;
    int warp = (int)threadIdx.x / CUDA_WARP;
    struct cuda_view v = cuda_view_of(s, sequence, kv * group);
    const struct cuda_range range = cuda_range_of(s, v.ids, first, rows);
    struct cuda_part part = {
        first + warp * CUDA_MMA_ROWS, 0, { 0, 0 }, shared->ids
    };
    float dk[D / 8][4], dv[D / 8][4];
    cuda_part_rows(s, v, &part);
    cuda_tile_zero<D>(dk);
    cuda_tile_zero<D>(dv);
    cuda_tile_load<rows, D>(s, first, qkv + v.k, stride, shared->rows[0]);
    cuda_tile_load<rows, D>(s, first, qkv + v.v, stride, shared->rows[1]);
    for (int64_t head = kv * group; head < (kv + 1) * group; head++) {
        v = cuda_view_of(s, sequence, head);
        for (int64_t at = first / columns * columns; at < s.seq;
             at += columns) {
            if (!cuda_range_meets(s, v.ids, range, at, columns))
                continue;
            __syncthreads();
            cuda_tile_load<columns, D>(s, at, qkv + v.q, stride,
                                       shared->columns[0]);
            cuda_tile_load<columns, D>(
                s, at, dout + v.out, s.heads * s.head_dim, shared->columns[1]);
            cuda_list_load<columns>(s, at, v.ids, 0, shared->ids);
            cuda_list_load<columns>(s, at, lse + v.stats, 0.0f, shared->lse);
            cuda_list_load<columns>(s, at, delta + v.stats, 0.0f,
                                    shared->delta);
            cuda_mma_fetched();
            __syncthreads();
            part.first_column = at;
            add_queries<T, D>(s, v, part, shared, dk, dv);
        }
    }
    const float factor[2] = { s.scale, s.scale }, one[2] = { 1, 1 };
    cuda_tile_store<D>(s, part.first_row, factor, dk, stride, dqkv + v.k);
    cuda_tile_store<D>(s, part.first_row, one, dv, stride, dqkv + v.v);
}

size_t CUDA_SYMBOL(attention_scratch)(const struct kernel_limits *limits)
{
    return (size_t)(limits->tokens * limits->heads) * sizeof(float);
}

template <class T, int D>
static enum err backward_run(const struct kernel_ctx *ctx,
                             const struct attention *s, const void *qkv,
                             const float *lse, const void *dout, void *dqkv)
{
    auto dq_kernel = attention_dq<T, D>;
    auto dkv_kernel = attention_dkv<T, D>;
    const size_t bytes = sizeof(struct backward_shared<T, D>);
    const float *delta = (const float *)ctx->scratch;
    int64_t tiles = cuda_parts(s->seq, cuda_tile<T>::rows);
    enum err rc = cuda_attention_grant("attention_backward", dq_kernel, bytes);
    if (rc == ERR_OK)
        rc = cuda_attention_grant("attention_backward", dkv_kernel, bytes);
    if (rc != ERR_OK)
        return rc;
    CUDA_LAUNCH(dkv_kernel, cuda_blocks(tiles * s->batch * s->kv_heads),
                cuda_tile<T>::threads, bytes, cuda_stream(ctx), *s,
                (const T *)qkv, lse, delta, (const T *)dout, (T *)dqkv);
    CUDA_LAUNCH(dq_kernel, cuda_blocks(tiles * s->batch * s->heads),
                cuda_tile<T>::threads, bytes, cuda_stream(ctx), *s,
                (const T *)qkv, lse, delta, (const T *)dout, (T *)dqkv);
    return cuda_launched("attention_backward");
}

template <class T>
static enum err backward_any(const struct kernel_ctx *ctx,
                             const struct attention *s, const void *qkv,
                             const void *out, const float *lse,
                             const void *dout, void *dqkv)
{
    auto delta_kernel = attention_delta<T>;
    int64_t rows = s->batch * s->seq * s->heads;
    if (s->head_dim > CUDA_HEAD_DIM_MAX)
        return cuda_lacks_head_dim("attention_backward", s);
    assert(ctx->scratch_bytes >= (size_t)rows * sizeof(float));
    CUDA_LAUNCH(delta_kernel,
                cuda_blocks(cuda_parts(rows, CUDA_THREADS / CUDA_WARP)),
                CUDA_THREADS, 0, cuda_stream(ctx), *s, (const T *)out,
                (const T *)dout, (float *)ctx->scratch);
    return CUDA_BY_HEAD_DIM(T, s, "attention_backward", backward_run, ctx, s,
                            qkv, lse, dout, dqkv);
}

enum err CUDA_SYMBOL(attention_backward)(const struct kernel_ctx *ctx,
                                         enum dtype dtype,
                                         const struct attention *shape,
                                         const void *qkv, const void *out,
                                         const float *lse, const void *dout,
                                         void *dqkv)
{
    cuda_attention_check(shape);
    return CUDA_BY_DTYPE(dtype, "attention_backward", backward_any, ctx, shape,
                         qkv, out, lse, dout, dqkv);
}
