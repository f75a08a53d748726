/* What attention's forward and backward share. A block owns a tile of rows, 16
 * for each of its warps, and goes through tiles of columns: rows are queries
 * and columns keys, or, where the matrix of scores is turned, the other way
 * round. Scores are in units of log 2, as the processor has exp2. */
#ifndef TESSERA_KERNELS_CUDA_ATTENTION_H
#define TESSERA_KERNELS_CUDA_ATTENTION_H

#include <limits.h>

#include "kernels/cuda_mma.h"
#include "kernels/cuda_random.h"
#include "kernels/cuda_reduce.h"

#define CUDA_LOG2_E 1.44269504f
#define CUDA_LN_2 0.693147181f
/* The widest head. */
#define CUDA_HEAD_DIM_MAX 128

/* Fewer warps in fp32, whose tiles need twice the shared memory: every kernel
 * stays below the 99 KiB that the smallest devices grant. */
template <class T> struct cuda_tile {
    static const int warps = sizeof(T) == 2 ? 4 : 2;
    static const int threads = warps * CUDA_WARP;
    static const int rows = warps * CUDA_MMA_ROWS;
};

/* A query head of a sequence. */
struct cuda_view {
    int64_t sequence, head;
    int64_t q, k, v; /* of the head's first token in qkv */
    int64_t out;     /* and in out */
    int64_t stats;   /* and in lse */
    const int32_t *ids;
    float scale, slope;
    uint64_t random_key;
};

CUDA_DEVICE int64_t cuda_qkv_stride(const struct attention &s)
{
    return (s.heads + 2 * s.kv_heads) * s.head_dim;
}

CUDA_DEVICE struct cuda_view cuda_view_of(const struct attention &s,
                                          int64_t sequence, int64_t head)
{
    struct cuda_view v;
    int64_t base = sequence * s.seq * cuda_qkv_stride(s);
    int64_t kv = head / (s.heads / s.kv_heads);
    v.sequence = sequence;
    v.head = head;
    v.q = base + head * s.head_dim;
    v.k = base + (s.heads + kv) * s.head_dim;
    v.v = v.k + s.kv_heads * s.head_dim;
    v.out = (sequence * s.seq * s.heads + head) * s.head_dim;
    v.stats = (sequence * s.heads + head) * s.seq;
    v.ids = s.sequence_ids == NULL ? NULL : s.sequence_ids + sequence * s.seq;
    v.scale = s.scale * CUDA_LOG2_E;
    v.slope =
        s.alibi_slopes == NULL ? 0.0f : s.alibi_slopes[head] * CUDA_LOG2_E;
    v.random_key = s.dropout > 0 ? cuda_random_key(s.random, sequence) : 0;
    return v;
}

/* to[ROWS, D] = the tokens from `first` on, zeros after seq and head_dim. By
 * all threads of the block; before it is read each of them must wait by
 * cuda_mma_fetched, then for the others. */
template <int ROWS, int D, class T>
CUDA_DEVICE void cuda_tile_load(const struct attention &s, int64_t first,
                                const T *from, int64_t stride, T *to)
{
    const int lanes = cuda_lanes<T>::count, vectors = D / lanes;
    for (int i = (int)threadIdx.x; i < ROWS * vectors; i += (int)blockDim.x) {
        int row = i / vectors, column = i % vectors * lanes;
        int64_t left = first + row < s.seq ? s.head_dim - column : 0;
        const T *p = from + (first + row) * stride + column;
        T *q = to + row * CUDA_MMA_STRIDE(T, D) + column;
        if (left >= lanes && (uintptr_t)p % CUDA_VECTOR_BYTES == 0) {
            cuda_mma_fetch(p, q);
            continue;
        }
        for (int k = 0; k < lanes; k++) {
            if (k < left)
                q[k] = p[k];
            else
                cuda_put(0.0f, q + k);
        }
    }
}

/* to[tokens of a tile of COLUMNS from `first` on] = from, `rest` after seq. */
template <int COLUMNS, class T>
CUDA_DEVICE void cuda_list_load(const struct attention &s, int64_t first,
                                const T *from, T rest, T *to)
{
    for (int i = (int)threadIdx.x; i < COLUMNS; i += (int)blockDim.x)
        to[i] = from != NULL && first + i < s.seq ? from[first + i] : rest;
}

/* rows [first, first + 16) of the warp and columns [0, D) = factor * x. */
template <int D, class T>
CUDA_DEVICE void cuda_tile_store(const struct attention &s, int64_t first,
                                 const float factor[2], const float (*x)[4],
                                 int64_t stride, T *to)
{
    int64_t row = first + cuda_lane() / 4;
    int column = cuda_lane() % 4 * 2;
    CUDA_UNROLL
    for (int r = 0; r < 2; r++)
        CUDA_UNROLL
    for (int j = 0; j < D / 8; j++) {
        int64_t left = s.head_dim - j * 8 - column;
        const float pair[2] = { x[j][2 * r] * factor[r],
                                x[j][2 * r + 1] * factor[r] };
        if (row + 8 * r < s.seq)
            cuda_store<2>(to + (row + 8 * r) * stride + j * 8 + column, left,
                          pair);
    }
}

struct cuda_range {
    int32_t low, high;
};

struct cuda_least {
    __device__ int32_t operator()(int32_t a, int32_t b) const
    {
        return a < b ? a : b;
    }
};

/* Of the documents of tokens [first, first + count), by each warp for itself.
 */
CUDA_DEVICE struct cuda_range cuda_range_of(const struct attention &s,
                                            const int32_t *ids, int64_t first,
                                            int count)
{
    struct cuda_range range = { INT_MAX, INT_MIN };
    int64_t end = cuda_min(s.seq, first + count);
    if (ids == NULL)
        return range;
    for (int64_t i = first + cuda_lane(); i < end; i += CUDA_WARP) {
        range.low = ids[i] < range.low ? ids[i] : range.low;
        range.high = ids[i] > range.high ? ids[i] : range.high;
    }
    range.low = cuda_warp_reduce(range.low, cuda_least());
    range.high = cuda_warp_reduce(range.high, cuda_most());
    return range;
}

/* Whether a row may see a column of the tile at `first`. All warps agree. */
CUDA_DEVICE bool cuda_range_meets(const struct attention &s, const int32_t *ids,
                                  struct cuda_range rows, int64_t first,
                                  int count)
{
    if (ids == NULL)
        return true;
    struct cuda_range columns = cuda_range_of(s, ids, first, count);
    return columns.low <= rows.high && rows.low <= columns.high;
}

/* What a lane knows of its two rows and of the tile of columns. */
struct cuda_part {
    int64_t first_row, first_column; /* of the warp's rows, of the tile */
    int32_t ids[2];                  /* of the lane's rows */
    const int32_t *column_ids;       /* in shared memory */
};

/* The score of element i of part j, -Inf where the query does not see the key.
 */
template <bool TURNED>
CUDA_DEVICE float
cuda_score(const struct attention &s, const struct cuda_view &v,
           const struct cuda_part &p, int j, int i, float product)
{
    int place = j * 8 + cuda_lane() % 4 * 2 + i % 2;
    int64_t row = p.first_row + cuda_lane() / 4 + i / 2 * 8;
    int64_t column = p.first_column + place;
    int64_t query = TURNED ? column : row, key = TURNED ? row : column;
    bool sees = key <= query && query < s.seq &&
                (v.ids == NULL || p.ids[i / 2] == p.column_ids[place]);
    float bias = v.slope * (float)(int32_t)(key - query);
    return sees ? fmaf(product, v.scale, bias) : -INFINITY;
}

/* Bit i is set where dropout drops element i of part j. A Philox block has four
 * keys of one query, so lanes that share blocks draw a different one each and
 * exchange words: two lanes if columns are keys, four if rows are. */
template <bool TURNED>
CUDA_DEVICE unsigned cuda_dropped(const struct attention &s,
                                  const struct cuda_view &v,
                                  const struct cuda_part &p, int j)
{
    uint32_t threshold = (uint32_t)(s.dropout * 0x1p32f), w[4], bits = 0;
    int group = cuda_lane() / 4, pair = cuda_lane() % 4;
    int mine = TURNED ? group % 4 : pair % 2;
    int64_t row = p.first_row, column = p.first_column + j * 8;
    int64_t query =
        TURNED ? column + 2 * pair + mine % 2 : row + group + 8 * mine;
    int64_t key =
        TURNED ? row + group / 4 * 4 + mine / 2 * 8 : column + pair / 2 * 4;
    int64_t blocks = cuda_parts(s.seq, 4);
    cuda_philox(v.random_key,
                (uint64_t)((v.head * s.seq + query) * blocks + key / 4), 0, w);
    if (TURNED) {
        CUDA_UNROLL
        for (int change = 0; change < 4; change++) {
            int other = mine ^ change;
            uint32_t word = other < 2 ? (other == 0 ? w[0] : w[1])
                                      : (other == 2 ? w[2] : w[3]);
            if (change > 0)
                word = __shfl_xor_sync(CUDA_ALL_LANES, word, 4 * change);
            bits |= (unsigned)(word < threshold) << other;
        }
        return bits;
    }
    uint32_t a = __shfl_xor_sync(CUDA_ALL_LANES, mine ? w[0] : w[2], 1);
    uint32_t b = __shfl_xor_sync(CUDA_ALL_LANES, mine ? w[1] : w[3], 1);
    const uint32_t words[4] = { mine ? a : w[0], mine ? b : w[1],
                                mine ? w[2] : a, mine ? w[3] : b };
    for (int i = 0; i < 4; i++)
        bits |= (unsigned)(words[i] < threshold) << i;
    return bits;
}

/* The lane's documents of its rows. */
CUDA_DEVICE void cuda_part_rows(const struct attention &s,
                                const struct cuda_view &v, struct cuda_part *p)
{
    for (int r = 0; r < 2; r++) {
        int64_t row = p->first_row + cuda_lane() / 4 + 8 * r;
        p->ids[r] = v.ids != NULL && row < s.seq ? v.ids[row] : 0;
    }
}

template <int D> CUDA_DEVICE void cuda_tile_zero(float (*x)[4])
{
    CUDA_UNROLL
    for (int j = 0; j < D / 8; j++)
        for (int i = 0; i < 4; i++)
            x[j][i] = 0;
}

static inline void cuda_attention_check(const struct attention *s)
{
    assert(s->batch > 0 && s->head_dim > 0);
    assert(s->seq > 0 && s->seq <= INT32_MAX);
    assert(s->kv_heads > 0 && s->heads % s->kv_heads == 0);
    assert(s->dropout >= 0 && s->dropout < 1);
    (void)s;
}

/* Before every launch: asks for what exceeds CUDA_SHARED_BYTES. That it has
 * been asked for is the driver's to remember. */
template <class K>
static enum err cuda_attention_grant(const char *op, K kernel, size_t bytes)
{
    if (bytes <= CUDA_SHARED_BYTES)
        return ERR_OK;
    cudaError_t code = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (code == cudaSuccess)
        return ERR_OK;
    return err_set(ERR_UNSUPPORTED,
                   "op %s: CUDA grants no %zu bytes of shared memory: %s", op,
                   bytes, cudaGetErrorString(code));
}

/* Calls function<T, D>(...), D being the width of a head, filled up. */
#define CUDA_BY_HEAD_DIM(T, s, op, function, ...)                              \
    ((s)->head_dim <= 32   ? function<T, 32>(__VA_ARGS__)                      \
     : (s)->head_dim <= 64 ? function<T, 64>(__VA_ARGS__)                      \
     : (s)->head_dim <= 96 ? function<T, 96>(__VA_ARGS__)                      \
     : (s)->head_dim <= CUDA_HEAD_DIM_MAX                                      \
         ? function<T, CUDA_HEAD_DIM_MAX>(__VA_ARGS__)                         \
         : cuda_lacks_head_dim(op, s))

static inline enum err cuda_lacks_head_dim(const char *op,
                                           const struct attention *s)
{
    return err_set(ERR_UNSUPPORTED,
                   "op %s: the CUDA kernels have heads of at most %d elements, "
                   "not %lld",
                   op, CUDA_HEAD_DIM_MAX, (long long)s->head_dim);
}

#endif
