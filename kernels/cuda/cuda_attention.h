/* What attention's forward and backward share. A block owns a tile of rows, 16
 * for each of its warps, and goes through tiles of columns: rows are queries
 * and columns keys, or, where the matrix of scores is turned, the other way
 * round. Scores are in units of log 2, as the processor has exp2. */
#pragma once

#include <limits.h>

#include "kernels/cuda/cuda_mma.h"
#include "kernels/cuda/cuda_random.h"
#include "kernels/cuda/cuda_reduce.h"

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
    /* Blocks of a multiprocessor for which the compiler may use up the
     * registers; 0: it weighs more blocks against registers itself. */
    static const int resident = sizeof(T) == 2 ? 0 : 2;
};

/* Results below 2^-126 are 0. */
CUDA_DEVICE float cuda_exp2(float x)
{
#ifdef __CUDA_ARCH__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

/* Queries and the keys that they see: of one chunk after the other, or of a
 * whole sequence, which is the pair of a chunk with itself whose keys lie in
 * the queries' tensor. */
struct cuda_pair {
    struct attention shape;
    const int32_t *key_ids; /* NULL if sequence_ids are */
    int64_t key_stride;     /* from one token's keys to the next one's */
    int64_t dq_stride;
    int seq, distance;
    int window; /* keys that a query sees, itself the last; INT_MAX: all */
    /* There are results already: forward merges its own with them, backward
     * adds to them. */
    bool more;
    bool sums; /* results are fp32, whatever the operands are */
};

static inline struct cuda_pair cuda_pair_of(const struct attention_chunk *chunk,
                                            int64_t key_stride, bool more,
                                            bool sums)
{
    const struct attention *s = &chunk->shape;
    assert(s->batch > 0 && s->head_dim > 0);
    assert(s->seq > 0 && s->seq <= INT32_MAX / 2);
    assert(s->kv_heads > 0 && s->heads % s->kv_heads == 0);
    assert(s->dropout >= 0 && s->dropout < 1);
    assert(chunk->distance >= 0 && chunk->distance <= INT32_MAX - s->seq);
    assert(chunk->distance % s->seq == 0);
    assert((chunk->key_ids == NULL) == (s->sequence_ids == NULL));
    bool bound = s->window > 0 && s->window < INT_MAX;
    struct cuda_pair pair = {
        *s,
        chunk->key_ids,
        key_stride,
        chunk->dq_stride,
        (int)s->seq,
        (int)chunk->distance,
        bound ? (int)s->window : INT_MAX,
        more,
        sums,
    };
    return pair;
}

static inline __host__ __device__ int64_t
cuda_qkv_stride(const struct attention &s)
{
    return (s.heads + 2 * s.kv_heads) * s.head_dim;
}

static inline struct cuda_pair cuda_pair_whole(const struct attention *s)
{
    const struct attention_chunk chunk = { *s, 0, s->sequence_ids,
                                           cuda_qkv_stride(*s) };
    return cuda_pair_of(&chunk, cuda_qkv_stride(*s), false, false);
}

static inline struct cuda_pair
cuda_pair_chunks(const struct attention_chunk *chunk, bool more)
{
    const struct attention *s = &chunk->shape;
    return cuda_pair_of(chunk, 2 * s->kv_heads * s->head_dim, more, true);
}

/* Bytes from the first queries to the first keys of a packed tensor. */
static inline size_t cuda_keys_at(enum dtype dtype, const struct attention *s)
{
    return (size_t)(s->heads * s->head_dim) * dtype_bytes(dtype);
}

/* A query head of a sequence. */
struct cuda_view {
    int64_t q, dq; /* of the head's first token among the queries */
    int64_t k, v;  /* among the keys and values */
    int64_t out;   /* and in out */
    int64_t stats; /* and in lse */
    int64_t token; /* the sequence's first one */
    float scale, slope;
    /* Without a bias scores stay products until exp2, whose argument's
     * multiplication by `unit`, then the scale, costs nothing. */
    bool biased;
    float unit;
    uint64_t random_key;
    int64_t random_row; /* of the first query */
};

CUDA_DEVICE struct cuda_view cuda_view_of(const struct cuda_pair &pair,
                                          int64_t sequence, int64_t head)
{
    const struct attention &s = pair.shape;
    struct cuda_view v;
    int64_t kv = head / (s.heads / s.kv_heads), token = sequence * s.seq;
    v.token = token;
    v.q = token * cuda_qkv_stride(s) + head * s.head_dim;
    v.dq = token * pair.dq_stride + head * s.head_dim;
    v.k = token * pair.key_stride + kv * s.head_dim;
    v.v = v.k + s.kv_heads * s.head_dim;
    v.out = (token * s.heads + head) * s.head_dim;
    v.stats = (sequence * s.heads + head) * s.seq;
    v.scale = s.scale * CUDA_LOG2_E;
    v.slope =
        s.alibi_slopes == NULL ? 0.0f : s.alibi_slopes[head] * CUDA_LOG2_E;
    v.biased = v.slope != 0 || !(v.scale > 0);
    v.unit = v.biased ? 1.0f : v.scale;
    v.random_key = s.dropout > 0 ? cuda_random_key(s.random, sequence) : 0;
    v.random_row = head * s.seq;
    return v;
}

/* The documents of the sequence's keys, or of its queries, NULL if there is but
 * one. */
CUDA_DEVICE const int32_t *cuda_ids_of(const struct cuda_pair &pair,
                                       const struct cuda_view &v, bool keys)
{
    const int32_t *ids = pair.shape.sequence_ids;
    if (ids == NULL)
        return NULL;
    return (keys ? pair.key_ids : ids) + v.token;
}

/* to[ROWS, D] = the tokens from `first` on, zeros after seq and head_dim. By
 * all threads of the block; before it is read each of them must wait by
 * cuda_mma_fetched, then for the others. */
template <int ROWS, int D, class T>
CUDA_DEVICE void cuda_tile_load(const struct cuda_pair &pair, int first,
                                const T *from, int64_t stride, T *to)
{
    const int lanes = cuda_lanes<T>::count, vectors = D / lanes;
    const int threads = cuda_tile<T>::threads;
    const int64_t width = pair.shape.head_dim;
    bool even = (uintptr_t)from % CUDA_VECTOR_BYTES == 0 && stride % lanes == 0;
    bool whole = even && width == D && first + ROWS <= pair.seq;
    from += first * stride;
    CUDA_ROLL
    for (int i = cuda_anew((int)threadIdx.x); i < ROWS * vectors;
         i += threads) {
        int row = i / vectors, column = i % vectors * lanes;
        const T *p = from + row * stride + column;
        T *q = to + row * CUDA_MMA_STRIDE(T, D) + column;
        int left = first + row < pair.seq ? (int)width - column : 0;
        if (whole || (even && left >= lanes)) {
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

/* The lane's elements of rows [first, first + 16) and columns [0, D), of row
 * number r only if bit r of `rows` is set: to = factor * x, with `add` more
 * than is there. */
template <int D, class T>
CUDA_DEVICE void cuda_tile_store(const struct cuda_pair &pair, int first,
                                 unsigned rows, const float factor[2],
                                 const float (*x)[4], int64_t stride, bool add,
                                 T *to)
{
    int row = first + cuda_lane() / 4, column = cuda_lane() % 4 * 2;
    to += row * stride + column;
    CUDA_UNROLL
    for (int r = 0; r < 2; r++)
        CUDA_UNROLL
    for (int j = 0; j < D / 8; j++) {
        int64_t left = pair.shape.head_dim - j * 8 - column;
        T *p = to + 8 * r * stride + j * 8;
        float two[2] = { x[j][2 * r] * factor[r], x[j][2 * r + 1] * factor[r] };
        if (row + 8 * r >= pair.seq || (rows >> r & 1) == 0)
            continue;
        for (int i = 0; i < 2; i++)
            two[i] += add && i < left ? cuda_value(p[i]) : 0.0f;
        cuda_store<2>(p, left, two);
    }
}

/* The same for results: from element `at` of `to` on, in the type that those
 * of this pair have. */
template <int D, class T>
CUDA_DEVICE void cuda_results_store(const struct cuda_pair &pair, int first,
                                    unsigned rows, const float factor[2],
                                    const float (*x)[4], int64_t stride,
                                    bool add, void *to, int64_t at)
{
    if (pair.sums)
        cuda_tile_store<D>(pair, first, rows, factor, x, stride, add,
                           (float *)to + at);
    else
        cuda_tile_store<D>(pair, first, rows, factor, x, stride, add,
                           (T *)to + at);
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

/* The range of documents among tokens [first, first + count), found by each
 * warp for itself. */
CUDA_DEVICE struct cuda_range cuda_range_of(const struct cuda_pair &pair,
                                            const int32_t *ids, int first,
                                            int count)
{
    struct cuda_range range = { INT_MAX, INT_MIN };
    if (ids == NULL)
        return range;
    int end = (int)cuda_min(pair.seq, (int64_t)first + count);
    for (int i = first + cuda_lane(); i < end; i += CUDA_WARP) {
        range.low = ids[i] < range.low ? ids[i] : range.low;
        range.high = ids[i] > range.high ? ids[i] : range.high;
    }
    range.low = cuda_warp_reduce(range.low, cuda_least());
    range.high = cuda_warp_reduce(range.high, cuda_most());
    return range;
}

/* Where a block is in its tiles of columns. */
struct cuda_walk {
    int at, end;
    bool mixed; /* rows and columns may be of different documents */
};

/* A walk over the keys that `rows` queries from the first on may see, by tiles
 * of so many columns. */
CUDA_DEVICE struct cuda_walk cuda_walk_keys(const struct cuda_pair &pair,
                                            int first, int rows, int columns)
{
    int row = first + rows, oldest = first + pair.distance - pair.window + 1;
    int end = pair.distance == 0 && row < pair.seq ? row : pair.seq;
    struct cuda_walk walk = { oldest > 0 ? oldest / columns * columns : 0, end,
                              false };
    return walk;
}

/* From walk->at on, to the first tile of which a row may see a column. All
 * warps agree. */
CUDA_DEVICE void cuda_walk_on(const struct cuda_pair &pair, const int32_t *ids,
                              struct cuda_range rows, int count,
                              struct cuda_walk *walk)
{
    if (ids == NULL)
        return;
    for (; walk->at < walk->end; walk->at += count) {
        struct cuda_range columns = cuda_range_of(pair, ids, walk->at, count);
        walk->mixed = rows.low != rows.high || columns.low != columns.high;
        if (columns.low <= rows.high && rows.low <= columns.high)
            return;
    }
}

/* Where 16 rows of a warp and the tile of columns are. */
struct cuda_part {
    int first_row, first_column;
};

/* Products become scores if there is a bias. */
template <bool TURNED, int N>
CUDA_DEVICE void cuda_bias(const struct cuda_pair &pair,
                           const struct cuda_view &v, const struct cuda_part &p,
                           float (*x)[4])
{
    if (!v.biased)
        return;
    int behind =
        p.first_column - p.first_row - cuda_lane() / 4 + cuda_lane() % 4 * 2;
    CUDA_UNROLL
    for (int j = 0; j < N / 8; j++)
        CUDA_UNROLL
    for (int i = 0; i < 4; i++) {
        int from_row = behind + j * 8 + i % 2 - i / 2 * 8;
        int from_query = (TURNED ? -from_row : from_row) - pair.distance;
        x[j][i] = fmaf(x[j][i], v.scale, v.slope * (float)from_query);
    }
}

/* Whether some of the 16 rows do not see some of the N columns. */
template <bool TURNED, int N>
CUDA_DEVICE bool cuda_at_edge(const struct cuda_pair &pair,
                              const struct cuda_part &p, bool mixed)
{
    bool diagonal = TURNED ? p.first_column < p.first_row + CUDA_MMA_ROWS - 1
                           : p.first_column + N - 1 > p.first_row;
    int farthest = TURNED ? p.first_column + N - 1 - p.first_row
                          : p.first_row + CUDA_MMA_ROWS - 1 - p.first_column;
    return mixed || p.first_column + N > pair.seq ||
           (pair.distance == 0 && diagonal) ||
           farthest + pair.distance >= pair.window;
}

/* Whether none of `rows` rows sees one of the N columns, but for documents. */
template <bool TURNED, int N>
CUDA_DEVICE bool cuda_apart(const struct cuda_pair &pair,
                            const struct cuda_part &p, int rows)
{
    int nearest = TURNED ? p.first_column - (p.first_row + rows - 1)
                         : p.first_row - (p.first_column + N - 1);
    return nearest + pair.distance >= pair.window ||
           (pair.distance == 0 &&
            (TURNED ? p.first_column + N <= p.first_row
                    : p.first_column >= p.first_row + rows));
}

/* x = value where the query does not see the key. */
template <bool TURNED, int N>
CUDA_DEVICE void cuda_mask(const struct cuda_pair &pair,
                           const struct cuda_view &v, const struct cuda_part &p,
                           float value, float (*x)[4])
{
    const int32_t *ids = cuda_ids_of(pair, v, !TURNED);
    const int32_t *row_ids = cuda_ids_of(pair, v, TURNED);
    int row = p.first_row + cuda_lane() / 4, causal = pair.distance == 0;
    int column = p.first_column + cuda_lane() % 4 * 2;
    int32_t own[2] = { 0, 0 };
    for (int r = 0; r < 2; r++)
        if (ids != NULL && row + 8 * r < pair.seq)
            own[r] = row_ids[row + 8 * r];
    CUDA_UNROLL
    for (int j = 0; j < N / 8; j++)
        CUDA_UNROLL
    for (int i = 0; i < 2; i++) {
        int c = column + j * 8 + i;
        int32_t id = ids != NULL && c < pair.seq ? ids[c] : 0;
        CUDA_UNROLL
        for (int r = 0; r < 2; r++) {
            int rest = TURNED ? c - row - 8 * r : row + 8 * r - c;
            if (c >= pair.seq || (causal && rest < 0) || id != own[r] ||
                rest + pair.distance >= pair.window)
                x[j][2 * r + i] = value;
        }
    }
}

/* Bit i is set where dropout drops element i of part j. A Philox block has four
 * keys of one query, so lanes that share blocks draw a different one each and
 * exchange words: two lanes if columns are keys, four if rows are. */
template <bool TURNED>
CUDA_DEVICE unsigned cuda_dropped(const struct cuda_pair &pair,
                                  const struct cuda_view &v,
                                  const struct cuda_part &p, int j)
{
    uint32_t threshold = (uint32_t)(pair.shape.dropout * 0x1p32f), w[4];
    unsigned bits = 0;
    int group = cuda_lane() / 4, pair_of_columns = cuda_lane() % 4;
    int mine = TURNED ? group % 4 : pair_of_columns % 2;
    int row = p.first_row, column = p.first_column + j * 8;
    int query = TURNED ? column + 2 * pair_of_columns + mine % 2
                       : row + group + 8 * mine;
    int key = TURNED ? row + group / 4 * 4 + mine / 2 * 8
                     : column + pair_of_columns / 2 * 4;
    int64_t blocks = cuda_parts(pair.seq, 4);
    cuda_philox(v.random_key,
                (uint64_t)((v.random_row + query) * blocks + key / 4), 0, w);
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

template <int D> CUDA_DEVICE void cuda_tile_zero(float (*x)[4])
{
    CUDA_UNROLL
    for (int j = 0; j < D / 8; j++)
        for (int i = 0; i < 4; i++)
            x[j][i] = 0;
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
    (void)cudaGetLastError(); /* told here, so not by the next launch */
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
