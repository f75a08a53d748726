/* Attention forward: a block per tile of queries, which goes through the keys
 * from the first to the last with a running maximum and sum per query (Milakov
 * and Gimelshein 2018; Dao et al. 2022). The scores become probabilities in the
 * registers that they were summed in. */
#include "kernels/cuda_attention.h"

#include <float.h>

template <class T> struct forward {
    static const int columns = sizeof(T) == 2 ? 64 : 32;
};

/* The block's arrays in shared memory. */
template <class T, int D> struct forward_shared {
    T q[cuda_tile<T>::rows * CUDA_MMA_STRIDE(T, D)];
    T k[forward<T>::columns * CUDA_MMA_STRIDE(T, D)];
    T v[forward<T>::columns * CUDA_MMA_STRIDE(T, D)];
    T spare[cuda_tile<T>::warps *
                cuda_mma_spare<T, forward<T>::columns>::count +
            cuda_lanes<T>::count];
    int32_t ids[forward<T>::columns];
};

/* Over the four lanes that share a row. */
template <class F> CUDA_DEVICE float quad_reduce(float x, F f)
{
    x = f(x, __shfl_xor_sync(CUDA_ALL_LANES, x, 1));
    return f(x, __shfl_xor_sync(CUDA_ALL_LANES, x, 2));
}

/* Of a lane's two rows. */
struct running {
    float peak[2];
    float sum[2]; /* of this lane's columns */
};

/* Scores become exp2(score - peak), with dropout; factor is what former tiles'
 * products must be multiplied by. */
template <int N>
CUDA_DEVICE void softmax(const struct attention &s, const struct cuda_view &v,
                         const struct cuda_part &part, float (*x)[4],
                         struct running *all, float factor[2])
{
    float top[2] = { all->peak[0], all->peak[1] };
    float kept = 1.0f / (1.0f - s.dropout);
    CUDA_UNROLL
    for (int j = 0; j < N / 8; j++)
        for (int i = 0; i < 4; i++) {
            x[j][i] = cuda_score<false>(s, v, part, j, i, x[j][i]);
            top[i / 2] = cuda_most()(top[i / 2], x[j][i]);
        }
    for (int r = 0; r < 2; r++) {
        top[r] = quad_reduce(top[r], cuda_most());
        factor[r] = exp2f(all->peak[r] - top[r]);
        all->sum[r] *= factor[r];
        all->peak[r] = top[r];
    }
    CUDA_UNROLL
    for (int j = 0; j < N / 8; j++) {
        unsigned dropped =
            s.dropout > 0 ? cuda_dropped<false>(s, v, part, j) : 0;
        for (int i = 0; i < 4; i++) {
            x[j][i] = exp2f(x[j][i] - top[i / 2]);
            all->sum[i / 2] += x[j][i];
            if (s.dropout > 0)
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

template <class T, int D>
CUDA_DEVICE void finish(const struct attention &s, const struct cuda_view &v,
                        const struct cuda_part &part, struct running all,
                        const float (*sum)[4], T *out, float *lse)
{
    float factor[2];
    for (int r = 0; r < 2; r++) {
        int64_t row = part.first_row + cuda_lane() / 4 + 8 * r;
        float total = quad_reduce(all.sum[r], cuda_plus());
        factor[r] = 1.0f / total;
        if (cuda_lane() % 4 == 0 && row < s.seq)
            lse[v.stats + row] = (all.peak[r] + log2f(total)) * CUDA_LN_2;
    }
    cuda_tile_store<D>(s, part.first_row, factor, sum, s.heads * s.head_dim,
                       out + v.out);
}

/* The last queries, which have the most keys, come first: that balances better.
 */
template <class T, int D>
static __global__ void __launch_bounds__(cuda_tile<T>::threads)
    attention_forward(struct attention s, const T *qkv, T *out, float *lse)
{
    const int rows = cuda_tile<T>::rows, columns = forward<T>::columns;
    typedef struct forward_shared<T, D> arrays;
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
    struct running all = { { -FLT_MAX, -FLT_MAX }, { 0, 0 } };
    T *spare = shared->spare + warp * cuda_mma_spare<T, columns>::count;
    float sum[D / 8][4], x[columns / 8][4], factor[2];
    cuda_part_rows(s, v, &part);
    cuda_tile_zero<D>(sum);
    cuda_tile_load<rows, D>(s, first, qkv + v.q, stride, shared->q);
    for (int64_t at = 0; at < first + rows; at += columns) {
        if (!cuda_range_meets(s, v.ids, range, at, columns))
            continue;
        __syncthreads();
        cuda_tile_load<columns, D>(s, at, qkv + v.k, stride, shared->k);
        cuda_tile_load<columns, D>(s, at, qkv + v.v, stride, shared->v);
        cuda_list_load<columns>(s, at, v.ids, 0, shared->ids);
        cuda_mma_fetched();
        __syncthreads();
        part.first_column = at;
        cuda_tile_zero<columns>(x);
        cuda_mma_rows<columns, D>(shared->q + warp * CUDA_MMA_ROWS *
                                                  CUDA_MMA_STRIDE(T, D),
                                  shared->k, x);
        softmax<columns>(s, v, part, x, &all, factor);
        scale_rows<D>(factor, sum);
        cuda_mma_columns<D, columns>(x, spare, shared->v, sum);
    }
    finish<T, D>(s, v, part, all, sum, out, lse);
}

template <class T, int D>
static enum err forward_run(const struct kernel_ctx *ctx,
                            const struct attention *s, const void *qkv,
                            void *out, float *lse)
{
    auto kernel = attention_forward<T, D>;
    const size_t bytes = sizeof(struct forward_shared<T, D>);
    int64_t tiles = cuda_parts(s->seq, cuda_tile<T>::rows);
    enum err rc = cuda_attention_grant("attention_forward", kernel, bytes);
    if (rc != ERR_OK)
        return rc;
    CUDA_LAUNCH(kernel, cuda_blocks(tiles * s->batch * s->heads),
                cuda_tile<T>::threads, bytes, cuda_stream(ctx), *s,
                (const T *)qkv, (T *)out, lse);
    return cuda_launched("attention_forward");
}

template <class T>
static enum err forward_any(const struct kernel_ctx *ctx,
                            const struct attention *s, const void *qkv,
                            void *out, float *lse)
{
    return CUDA_BY_HEAD_DIM(T, s, "attention_forward", forward_run, ctx, s, qkv,
                            out, lse);
}

enum err CUDA_SYMBOL(attention_forward)(const struct kernel_ctx *ctx,
                                        enum dtype dtype,
                                        const struct attention *shape,
                                        const void *qkv, void *out, float *lse)
{
    cuda_attention_check(shape);
    return CUDA_BY_DTYPE(dtype, "attention_forward", forward_any, ctx, shape,
                         qkv, out, lse);
}
