/* What forward and backward of attention share, over a whole sequence and over
 * a pair of its chunks: the former is the pair of a chunk with itself whose
 * keys lie in the queries' tensor.
 *
 * A tile's scores are kept the other way round, [keys, queries]: queries lie
 * side by side in a vector, so softmax adds and compares whole vectors, and
 * what a query must not see is left out by vectors. Tiles stay in the
 * second-level cache, however long the sequence is. */
#pragma once

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_math.h"
#include "kernels/cpu/cpu_random.h"
#include "kernels/cpu/cpu_tile.h"
#include "src/base/rng.h"

#include <math.h>
#include <omp.h>

#define TILE 128 /* queries, and keys */
/* Rows of queries start on cache lines, at a distance that is not a power of
 * two, which would map a column to few cache sets. */
#define STRIDE (TILE + 16)
/* Keys that no query sees are left out in units: of whole random blocks. */
#define KEY_UNIT 16

/* A thread's scratch. */
struct buffers {
    float *p, *ds;                 /* [TILE keys, STRIDE] */
    float *turned_q, *turned_dout; /* [head_dim, STRIDE] */
    float *q, *dout, *keys;        /* [TILE, packed_stride] */
    float *delta;                  /* [TILE] */
};

/* One head's scores of `count` queries and `keys` keys. */
struct tile {
    const struct attention *shape;
    const struct attention_chunk *chunk;
    int64_t key_stride; /* from one token's keys to the next one's */
    int64_t sequence, head;
    int64_t first, count;
    int64_t first_key, keys;
    uint64_t random_key;
    struct buffers buffers;
};

/* As many queries as a vector has lanes, from `at` on in the tile. */
struct lanes {
    int64_t at;
    int64_t ahead;      /* of the first query before the first key */
    int64_t end;        /* of the keys that any of them may see */
    const int32_t *ids; /* documents from the tile's first key on, or NULL */
    vec_i32 id;
    float slope; /* 0: no ALiBi */
    int32_t window;
};

/* Rows of whole vectors of any kernel set. */
static inline int64_t packed_stride(int64_t head_dim)
{
    return cpu_parts(head_dim, 16) * 16;
}

static inline int64_t buffers_floats(int64_t head_dim)
{
    return 2 * TILE * STRIDE + 2 * head_dim * STRIDE +
           3 * TILE * packed_stride(head_dim) + TILE;
}

static inline struct buffers thread_buffers(const struct kernel_ctx *ctx,
                                            int64_t head_dim)
{
    int64_t packed = TILE * packed_stride(head_dim);
    struct buffers b;
    b.p =
        (float *)ctx->scratch + omp_get_thread_num() * buffers_floats(head_dim);
    b.ds = b.p + TILE * STRIDE;
    b.turned_q = b.ds + TILE * STRIDE;
    b.turned_dout = b.turned_q + head_dim * STRIDE;
    b.q = b.turned_dout + head_dim * STRIDE;
    b.dout = b.q + packed;
    b.keys = b.dout + packed;
    b.delta = b.keys + packed;
    return b;
}

static inline int64_t qkv_stride(const struct attention *shape)
{
    return (shape->heads + 2 * shape->kv_heads) * shape->head_dim;
}

/* The stride of a chunk's keys and values, which lie in a tensor of their
 * own. */
static inline int64_t kv_stride(const struct attention *shape)
{
    return 2 * shape->kv_heads * shape->head_dim;
}

static inline int64_t out_stride(const struct attention *shape)
{
    return shape->heads * shape->head_dim;
}

static inline int64_t queries_at(const struct tile *tile)
{
    const struct attention *shape = tile->shape;
    return (tile->sequence * shape->seq + tile->first) * qkv_stride(shape) +
           tile->head * shape->head_dim;
}

/* From the first token's keys on, like values_at. */
static inline int64_t keys_at(const struct tile *tile)
{
    const struct attention *shape = tile->shape;
    int64_t group = shape->heads / shape->kv_heads;
    return (tile->sequence * shape->seq + tile->first_key) * tile->key_stride +
           tile->head / group * shape->head_dim;
}

static inline int64_t values_at(const struct tile *tile)
{
    return keys_at(tile) + tile->shape->kv_heads * tile->shape->head_dim;
}

static inline int64_t out_at(const struct tile *tile)
{
    const struct attention *shape = tile->shape;
    return (tile->sequence * shape->seq + tile->first) * out_stride(shape) +
           tile->head * shape->head_dim;
}

static inline int64_t lse_at(const struct tile *tile)
{
    const struct attention *shape = tile->shape;
    return (tile->sequence * shape->heads + tile->head) * shape->seq +
           tile->first;
}

/* Leaves out keys before the first and after the last one whose document lies
 * between the queries' documents. */
static inline void tile_trim(struct tile *tile)
{
    int64_t row = tile->sequence * tile->shape->seq;
    const int32_t *ids = tile->shape->sequence_ids + row;
    const int32_t *key_ids = tile->chunk->key_ids + row;
    int32_t low = ids[tile->first];
    int32_t high = low;
    for (int64_t i = tile->first; i < tile->first + tile->count; i++) {
        low = ids[i] < low ? ids[i] : low;
        high = ids[i] > high ? ids[i] : high;
    }
    int64_t begin = tile->first_key;
    int64_t end = begin + tile->keys;
    while (begin < end && (key_ids[begin] < low || key_ids[begin] > high))
        begin++;
    while (end > begin && (key_ids[end - 1] < low || key_ids[end - 1] > high))
        end--;
    tile->first_key = begin / KEY_UNIT * KEY_UNIT;
    tile->keys = begin < end ? end - tile->first_key : 0;
}

/* The first key that a query of the i-th tile may see, from the chunk's first
 * on; it may be one before that, or behind the last. */
static inline int64_t tile_oldest(const struct attention_chunk *chunk,
                                  int64_t i)
{
    int64_t window = chunk->shape.window;
    return window == 0 ? 0 : chunk->distance + i * TILE - window + 1;
}

/* Places `tile` at the i-th tile of queries and the j-th of keys; false if no
 * query sees a key there. On the sequence's diagonal every key is seen. */
static inline bool tile_place(struct tile *tile, int64_t i, int64_t j)
{
    const struct attention *shape = tile->shape;
    tile->first = i * TILE;
    tile->count = cpu_min(TILE, shape->seq - tile->first);
    tile->first_key = j * TILE;
    tile->keys = cpu_min(TILE, shape->seq - tile->first_key);
    if (shape->sequence_ids != NULL && (i != j || tile->chunk->distance > 0))
        tile_trim(tile);
    int64_t end = tile->first_key + tile->keys;
    int64_t oldest = tile_oldest(tile->chunk, i) / KEY_UNIT * KEY_UNIT;
    if (oldest > tile->first_key) {
        tile->first_key = cpu_min(oldest, end);
        tile->keys = end - tile->first_key;
    }
    return tile->keys > 0;
}

/* The first and the last tile of keys that the i-th tile of queries may see. */
static inline int64_t tile_first(const struct attention_chunk *chunk, int64_t i)
{
    int64_t oldest = tile_oldest(chunk, i);
    return oldest > 0 ? oldest / TILE : 0;
}

static inline int64_t tile_last(const struct attention_chunk *chunk, int64_t i)
{
    return chunk->distance == 0 ? i : cpu_parts(chunk->shape.seq, TILE) - 1;
}

static inline struct tile tile_of(const struct kernel_ctx *ctx,
                                  const struct attention_chunk *chunk,
                                  int64_t key_stride, int64_t sequence,
                                  int64_t head)
{
    const struct attention *shape = &chunk->shape;
    struct tile tile = { .shape = shape,
                         .chunk = chunk,
                         .key_stride = key_stride,
                         .sequence = sequence,
                         .head = head,
                         .buffers = thread_buffers(ctx, shape->head_dim) };
    if (shape->dropout > 0)
        tile.random_key = cpu_random_key(&shape->random, sequence);
    return tile;
}

/* How far the tile's first query lies behind its first key. */
static inline int64_t tile_ahead(const struct tile *tile)
{
    return tile->chunk->distance + tile->first - tile->first_key;
}

/* panel[keys, queries] = scale * rows[keys, head_dim] turned[head_dim,
 * queries], but for vectors of queries that do not see the key. */
static inline void tile_products(const struct tile *tile, float scale,
                                 const float *rows, const float *turned,
                                 float *panel)
{
    int64_t width = cpu_parts(tile->count, VEC_LANES) * VEC_LANES;
    int64_t stride = tile->key_stride;
    for (int64_t j = 0; j < tile->keys; j += CPU_TILE_ROWS) {
        int64_t behind = j - tile_ahead(tile);
        int64_t from = behind > 0 ? behind / VEC_LANES * VEC_LANES : 0;
        const struct cpu_tile t = {
            .rows = cpu_min(CPU_TILE_ROWS, tile->keys - j),
            .n = width - from,
            .k = tile->shape->head_dim,
            .a = rows + j * stride,
            .a_row = stride,
            .a_column = 1,
            .b = turned + from,
            .b_stride = STRIDE,
            .c = panel + j * STRIDE + from,
            .c_stride = STRIDE,
            .scale = scale,
        };
        cpu_tile_product(&t);
    }
}

/* out[queries, head_dim] += scale * panel[keys, queries] transposed
 * packed[keys, head_dim]; = if it is the first. */
static inline void queries_add(const struct tile *tile, bool first, float scale,
                               const float *panel, const float *packed,
                               float *out, int64_t stride)
{
    int64_t d = tile->shape->head_dim;
    for (int64_t i = 0; i < tile->count; i += CPU_TILE_ROWS) {
        const struct cpu_tile t = {
            .rows = cpu_min(CPU_TILE_ROWS, tile->count - i),
            .n = d,
            .k = cpu_min(tile->keys, tile_ahead(tile) + i + CPU_TILE_ROWS),
            .a = panel + i,
            .a_row = 1,
            .a_column = STRIDE,
            .b = packed,
            .b_stride = packed_stride(d),
            .c = out + i * stride,
            .c_stride = stride,
            .scale = scale,
            .accumulate = !first,
        };
        cpu_tile_product(&t);
    }
}

static inline struct lanes tile_lanes(const struct tile *tile, int64_t at)
{
    const struct attention *shape = tile->shape;
    int64_t row = tile->sequence * shape->seq;
    struct lanes lanes = { .at = at, .ahead = tile_ahead(tile) };
    lanes.end = cpu_min(tile->keys, lanes.ahead + at + VEC_LANES);
    lanes.window =
        (int32_t)(shape->window > 0 && shape->window < INT32_MAX ? shape->window
                                                                 : INT32_MAX);
    if (shape->alibi_slopes != NULL)
        lanes.slope = shape->alibi_slopes[tile->head];
    if (shape->sequence_ids != NULL) {
        lanes.ids = tile->chunk->key_ids + row + tile->first_key;
        lanes.id = vec_load_i32(shape->sequence_ids + row + tile->first + at,
                                tile->count - at);
    }
    return lanes;
}

/* Scores of key j; -Inf, which is 0 after exp, where the query must not see
 * it. */
static inline vec lanes_scores(const struct lanes *lanes, const float *panel,
                               int64_t j)
{
    vec_i32 number = { 0 }; /* the key's distance from the query */
    for (int i = 0; i < VEC_LANES; i++)
        number[i] = -i;
    number += (int32_t)(j - lanes->ahead - lanes->at);
    vec s = vec_load(panel + j * STRIDE + lanes->at, VEC_LANES);
    if (lanes->slope != 0)
        s = vec_fma(__builtin_convertvector(number, vec),
                    vec_splat(lanes->slope), s);
    if (j > lanes->ahead + lanes->at)
        s = vec_select(number <= 0, s, vec_splat(-INFINITY));
    if (lanes->ahead + lanes->at + VEC_LANES - 1 - j >= lanes->window)
        s = vec_select(number > -lanes->window, s, vec_splat(-INFINITY));
    if (lanes->ids != NULL)
        s = vec_select(lanes->id == lanes->ids[j], s, vec_splat(-INFINITY));
    return s;
}

/* What dropout multiplies the probabilities of keys j to j + 3 by. */
static inline void lanes_keep(const struct tile *tile,
                              const struct lanes *lanes, int64_t j, vec keep[4])
{
    const struct attention *shape = tile->shape;
    uint32_t threshold = cpu_random_threshold(shape->dropout);
    int64_t blocks = cpu_parts(shape->seq, 4); /* per query */
    int64_t query = tile->head * shape->seq + tile->first + lanes->at;
    vec_u32 words[4];
    cpu_random_lanes(tile->random_key,
                     (uint64_t)(query * blocks + (tile->first_key + j) / 4),
                     (uint64_t)blocks, words);
    for (int w = 0; w < 4; w++)
        keep[w] =
            vec_select((vec_i32)(words[w] >= threshold),
                       vec_splat(1.0f / (1.0f - shape->dropout)), (vec){ 0 });
}

/* Zeros for the keys after `end` that rows of products may reach. */
static inline void lanes_clear(const struct tile *tile,
                               const struct lanes *lanes, float *panel)
{
    int64_t end = cpu_min(tile->keys, lanes->end + CPU_TILE_ROWS);
    for (int64_t j = lanes->end; j < end; j++)
        vec_store(panel + j * STRIDE + lanes->at, VEC_LANES, (vec){ 0 });
}

/* A whole sequence: one chunk. */
static inline struct attention_chunk
attention_whole(const struct attention *shape)
{
    return (struct attention_chunk){ .shape = *shape,
                                     .key_ids = shape->sequence_ids };
}

static inline enum err attention_check(const struct kernel_ctx *ctx,
                                       enum dtype dtype,
                                       const struct attention_chunk *chunk,
                                       const char *op)
{
    const struct attention *shape = &chunk->shape;
    assert(shape->batch > 0 && shape->head_dim > 0);
    assert(shape->seq > 0 && shape->seq <= INT32_MAX);
    assert(shape->kv_heads > 0 && shape->heads % shape->kv_heads == 0);
    assert(shape->dropout >= 0 && shape->dropout < 1);
    assert(shape->window >= 0);
    assert(chunk->distance >= 0 && chunk->distance <= INT32_MAX - shape->seq);
    assert(chunk->distance % shape->seq == 0);
    assert((chunk->key_ids == NULL) == (shape->sequence_ids == NULL));
    if (dtype != DTYPE_F32)
        return cpu_require_f32(dtype, op);
    assert(ctx->scratch_bytes >=
           (size_t)(ctx->threads * buffers_floats(shape->head_dim)) *
               sizeof(float));
    (void)ctx;
    (void)shape;
    return ERR_OK;
}
