/* Causal attention by tiles of queries and keys.
 *
 * A tile's scores are kept the other way round, [keys, queries]: queries lie
 * side by side in a vector, so softmax adds and compares whole vectors, and
 * what a query must not see is left out by vectors. Tiles stay in the
 * second-level cache, however long the sequence is. Forward keeps a running
 * maximum and sum per query (Milakov and Gimelshein 2018), backward recomputes
 * the probabilities from lse (FlashAttention, Dao et al. 2022).
 *
 * Forward's tasks are tiles of queries. In backward tile (i, j) adds to the
 * queries' dq after (i, j + 1) and to the keys' dk and dv after (i - 1, j) and
 * after the group's head before: every order of tasks that respects this gives
 * the same bits. */
#include "kernels/cpu.h"
#include "kernels/cpu_math.h"
#include "kernels/cpu_random.h"
#include "kernels/cpu_tile.h"
#include "src/base/rng.h"

#include <float.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#define TILE 128 /* queries, and keys */
#define TILE_VECS (TILE / VEC_LANES)
/* Rows of queries start on cache lines, at a distance that is not a power of
 * two, which would map a column to few cache sets. */
#define STRIDE (TILE + 16)
/* Keys that no query sees are left out in units: of whole random blocks. */
#define KEY_UNIT 16
/* Backward's heads are tasks of their own if threads are this often busy. */
#define HEADS_PER_THREAD 4

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
};

struct backward {
    const struct attention *shape;
    const float *qkv, *out, *lse, *dout;
    float *dqkv;
};

/* Rows of whole vectors of any kernel set. */
static int64_t packed_stride(int64_t head_dim)
{
    return cpu_parts(head_dim, 16) * 16;
}

static int64_t buffers_floats(int64_t head_dim)
{
    return 2 * TILE * STRIDE + 2 * head_dim * STRIDE +
           3 * TILE * packed_stride(head_dim) + TILE;
}

static struct buffers thread_buffers(const struct kernel_ctx *ctx,
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

size_t CPU_SYMBOL(attention_scratch)(const struct kernel_limits *limits)
{
    return (size_t)(limits->threads * buffers_floats(limits->head_dim)) *
           sizeof(float);
}

static int64_t qkv_stride(const struct attention *shape)
{
    return (shape->heads + 2 * shape->kv_heads) * shape->head_dim;
}

static int64_t out_stride(const struct attention *shape)
{
    return shape->heads * shape->head_dim;
}

static int64_t qkv_at(const struct tile *tile, int64_t head, int64_t token)
{
    return (tile->sequence * tile->shape->seq + token) *
               qkv_stride(tile->shape) +
           head * tile->shape->head_dim;
}

static int64_t queries_at(const struct tile *tile)
{
    return qkv_at(tile, tile->head, tile->first);
}

static int64_t keys_at(const struct tile *tile)
{
    const struct attention *shape = tile->shape;
    int64_t group = shape->heads / shape->kv_heads;
    return qkv_at(tile, shape->heads + tile->head / group, tile->first_key);
}

static int64_t values_at(const struct tile *tile)
{
    return keys_at(tile) + tile->shape->kv_heads * tile->shape->head_dim;
}

static int64_t out_at(const struct tile *tile)
{
    const struct attention *shape = tile->shape;
    return (tile->sequence * shape->seq + tile->first) * out_stride(shape) +
           tile->head * shape->head_dim;
}

static int64_t lse_at(const struct tile *tile)
{
    const struct attention *shape = tile->shape;
    return (tile->sequence * shape->heads + tile->head) * shape->seq +
           tile->first;
}

static const int32_t *ids_of(const struct tile *tile)
{
    const struct attention *shape = tile->shape;
    if (shape->sequence_ids == NULL)
        return NULL;
    return shape->sequence_ids + tile->sequence * shape->seq;
}

/* Leaves out keys before the first and after the last one whose document lies
 * between the queries' documents. */
static void tile_trim(struct tile *tile, const int32_t *ids)
{
    int32_t low = ids[tile->first];
    int32_t high = low;
    for (int64_t i = tile->first; i < tile->first + tile->count; i++) {
        low = ids[i] < low ? ids[i] : low;
        high = ids[i] > high ? ids[i] : high;
    }
    int64_t begin = tile->first_key;
    int64_t end = begin + tile->keys;
    while (begin < end && (ids[begin] < low || ids[begin] > high))
        begin++;
    while (end > begin && (ids[end - 1] < low || ids[end - 1] > high))
        end--;
    tile->first_key = begin / KEY_UNIT * KEY_UNIT;
    tile->keys = begin < end ? end - tile->first_key : 0;
}

/* Places `tile` at the i-th tile of queries and the j-th of keys; false if no
 * query sees a key there. On the diagonal every key is seen. */
static bool tile_place(struct tile *tile, int64_t i, int64_t j)
{
    const struct attention *shape = tile->shape;
    tile->first = i * TILE;
    tile->count = cpu_min(TILE, shape->seq - tile->first);
    tile->first_key = j * TILE;
    tile->keys = cpu_min(TILE, shape->seq - tile->first_key);
    if (shape->sequence_ids != NULL && i != j)
        tile_trim(tile, ids_of(tile));
    return tile->keys > 0;
}

static struct tile tile_of(const struct kernel_ctx *ctx,
                           const struct attention *shape, int64_t sequence,
                           int64_t head)
{
    struct tile tile = { .shape = shape,
                         .sequence = sequence,
                         .head = head,
                         .buffers = thread_buffers(ctx, shape->head_dim) };
    if (shape->dropout > 0)
        tile.random_key =
            rng_u64(shape->random.seed, shape->random.stream,
                    (uint64_t)(shape->random.first_sample + sequence));
    return tile;
}

/* How many of the tile's keys lie before its first query. */
static int64_t tile_ahead(const struct tile *tile)
{
    return tile->first - tile->first_key;
}

/* panel[keys, queries] = scale * rows[keys, head_dim] turned[head_dim,
 * queries], but for vectors of queries that do not see the key. */
static void tile_products(const struct tile *tile, float scale,
                          const float *rows, const float *turned, float *panel)
{
    int64_t width = cpu_parts(tile->count, VEC_LANES) * VEC_LANES;
    int64_t stride = qkv_stride(tile->shape);
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
static void queries_add(const struct tile *tile, bool first, float scale,
                        const float *panel, const float *packed, float *out,
                        int64_t stride)
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

/* dkeys[keys, head_dim] += scale * panel[keys, queries] packed[queries,
 * head_dim]; = if it is the first. */
static void keys_add(const struct tile *tile, bool first, float scale,
                     const float *panel, const float *packed, float *dkeys)
{
    int64_t d = tile->shape->head_dim;
    int64_t stride = qkv_stride(tile->shape);
    for (int64_t j = 0; j < tile->keys; j += CPU_TILE_ROWS) {
        int64_t behind = j - tile_ahead(tile);
        int64_t from = behind > 0 ? behind : 0;
        const struct cpu_tile t = {
            .rows = cpu_min(CPU_TILE_ROWS, tile->keys - j),
            .n = d,
            .k = tile->count - from,
            .a = panel + j * STRIDE + from,
            .a_row = STRIDE,
            .a_column = 1,
            .b = packed + from * packed_stride(d),
            .b_stride = packed_stride(d),
            .c = dkeys + j * stride,
            .c_stride = stride,
            .scale = scale,
            .accumulate = !first,
        };
        cpu_tile_product(&t);
    }
}

static struct lanes tile_lanes(const struct tile *tile, int64_t at)
{
    const struct attention *shape = tile->shape;
    const int32_t *ids = ids_of(tile);
    struct lanes lanes = { .at = at, .ahead = tile_ahead(tile) };
    lanes.end = cpu_min(tile->keys, lanes.ahead + at + VEC_LANES);
    if (shape->alibi_slopes != NULL)
        lanes.slope = shape->alibi_slopes[tile->head];
    if (ids != NULL) {
        lanes.ids = ids + tile->first_key;
        lanes.id = vec_load_i32(ids + tile->first + at, tile->count - at);
    }
    return lanes;
}

/* Scores of key j; -Inf, which is 0 after exp, where the query must not see
 * it. */
static inline vec lanes_scores(const struct lanes *lanes, const float *panel,
                               int64_t j)
{
    vec_i32 number; /* the key's distance from the query */
    for (int i = 0; i < VEC_LANES; i++)
        number[i] = -i;
    number += (int32_t)(j - lanes->ahead - lanes->at);
    vec s = vec_load(panel + j * STRIDE + lanes->at, VEC_LANES);
    if (lanes->slope != 0)
        s = vec_fma(__builtin_convertvector(number, vec),
                    vec_splat(lanes->slope), s);
    if (j > lanes->ahead + lanes->at)
        s = vec_select(number <= 0, s, vec_splat(-INFINITY));
    if (lanes->ids != NULL)
        s = vec_select(lanes->id == lanes->ids[j], s, vec_splat(-INFINITY));
    return s;
}

/* What dropout multiplies the probabilities of keys j to j + 3 by. */
static inline void lanes_keep(const struct tile *tile,
                              const struct lanes *lanes, int64_t j, vec keep[4])
{
    const struct attention *shape = tile->shape;
    uint32_t threshold = (uint32_t)((double)shape->dropout * 0x1p32);
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
static void lanes_clear(const struct tile *tile, const struct lanes *lanes,
                        float *panel)
{
    int64_t end = cpu_min(tile->keys, lanes->end + CPU_TILE_ROWS);
    for (int64_t j = lanes->end; j < end; j++)
        vec_store(panel + j * STRIDE + lanes->at, VEC_LANES, (vec){ 0 });
}

/* Scores become exp(score - peak), with dropout; peak and sum, that without
 * dropout, become those of all tiles so far. Returns what the former tiles'
 * products must be multiplied by. */
static vec lanes_softmax(const struct tile *tile, const struct lanes *lanes,
                         vec *peak, vec *sum)
{
    float *panel = tile->buffers.p;
    vec top = *peak;
    for (int64_t j = 0; j < lanes->end; j++)
        top = vec_max(lanes_scores(lanes, panel, j), top);
    vec factor = vec_exp(*peak - top);
    vec total = *sum * factor;
    for (int64_t j = 0; j < lanes->end; j += 4) {
        vec keep[4];
        if (tile->shape->dropout > 0)
            lanes_keep(tile, lanes, j, keep);
        for (int64_t k = j; k < cpu_min(j + 4, lanes->end); k++) {
            vec e = vec_exp(lanes_scores(lanes, panel, k) - top);
            total += e;
            if (tile->shape->dropout > 0)
                e *= keep[k - j];
            vec_store(panel + k * STRIDE + lanes->at, VEC_LANES, e);
        }
    }
    lanes_clear(tile, lanes, panel);
    *peak = top;
    *sum = total;
    return factor;
}

static void row_scale(int64_t n, float factor, float *x)
{
    for (int64_t j = 0; j < n; j += VEC_LANES)
        vec_store(x + j, n - j, vec_load(x + j, n - j) * factor);
}

static void tile_forward(const struct tile *tile, bool first, const float *qkv,
                         vec peak[TILE_VECS], vec sum[TILE_VECS], float *out)
{
    const struct attention *shape = tile->shape;
    const struct buffers *b = &tile->buffers;
    tile_products(tile, shape->scale, qkv + keys_at(tile), b->turned_q, b->p);
    for (int64_t at = 0; at < tile->count; at += VEC_LANES) {
        struct lanes lanes = tile_lanes(tile, at);
        int64_t v = at / VEC_LANES;
        vec factor = lanes_softmax(tile, &lanes, &peak[v], &sum[v]);
        for (int64_t i = at; !first && i < cpu_min(at + VEC_LANES, tile->count);
             i++)
            if (factor[i - at] != 1.0f)
                row_scale(shape->head_dim, factor[i - at],
                          out + i * out_stride(shape));
    }
    cpu_tile_pack(tile->keys, shape->head_dim, qkv + values_at(tile),
                  qkv_stride(shape), b->keys, packed_stride(shape->head_dim));
    queries_add(tile, first, 1.0f, b->p, b->keys, out, out_stride(shape));
}

/* The i-th tile of queries, all its keys from the last to the first. */
static void queries_forward(struct tile *tile, int64_t i, const float *qkv,
                            float *all_out, float *all_lse)
{
    const struct attention *shape = tile->shape;
    vec peak[TILE_VECS];
    vec sum[TILE_VECS];
    for (int64_t v = 0; v < TILE_VECS; v++) {
        peak[v] = vec_splat(-FLT_MAX);
        sum[v] = (vec){ 0 };
    }
    tile_place(tile, i, i);
    float *out = all_out + out_at(tile);
    float *lse = all_lse + lse_at(tile);
    cpu_tile_transpose(tile->count, shape->head_dim, qkv + queries_at(tile),
                       qkv_stride(shape), tile->buffers.turned_q, STRIDE);
    for (int64_t j = i; j >= 0; j--)
        if (tile_place(tile, i, j))
            tile_forward(tile, j == i, qkv, peak, sum, out);
    for (int64_t q = 0; q < tile->count; q++) {
        float total = sum[q / VEC_LANES][q % VEC_LANES];
        lse[q] = peak[q / VEC_LANES][q % VEC_LANES] + logf(total);
        row_scale(shape->head_dim, 1.0f / total, out + q * out_stride(shape));
    }
}

static enum err attention_check(const struct kernel_ctx *ctx, enum dtype dtype,
                                const struct attention *shape, const char *op)
{
    assert(shape->batch > 0 && shape->head_dim > 0);
    assert(shape->seq > 0 && shape->seq <= INT32_MAX);
    assert(shape->kv_heads > 0 && shape->heads % shape->kv_heads == 0);
    assert(shape->dropout >= 0 && shape->dropout < 1);
    assert(ctx->scratch_bytes >=
           (size_t)(ctx->threads * buffers_floats(shape->head_dim)) *
               sizeof(float));
    (void)ctx;
    (void)shape;
    return cpu_require_f32(dtype, op);
}

enum err CPU_SYMBOL(attention_forward)(const struct kernel_ctx *ctx,
                                       enum dtype dtype,
                                       const struct attention *shape,
                                       const void *qkv, void *out, float *lse)
{
    enum err rc = attention_check(ctx, dtype, shape, "attention_forward");
    if (rc != ERR_OK)
        return rc;
    int64_t tiles = cpu_parts(shape->seq, TILE);
    int64_t heads = shape->batch * shape->heads;
    /* Long tasks, the last queries, come first: they balance better. */
#pragma omp parallel for num_threads(ctx->threads) schedule(dynamic, 1)
    for (int64_t task = 0; task < tiles * heads; task++) {
        int64_t head = task % heads;
        struct tile tile =
            tile_of(ctx, shape, head / shape->heads, head % shape->heads);
        queries_forward(&tile, tiles - 1 - task / heads, qkv, out, lse);
    }
    return ERR_OK;
}

static float row_dot(const float *a, const float *b, int64_t n)
{
    vec sum = { 0 };
    for (int64_t j = 0; j < n; j += VEC_LANES)
        sum = vec_fma(vec_load(a + j, n - j), vec_load(b + j, n - j), sum);
    return vec_sum(sum);
}

/* What all tiles of the i-th tile of queries need. */
static void queries_prepare(struct tile *tile, const struct backward *b,
                            int64_t i)
{
    const struct attention *shape = tile->shape;
    struct buffers *to = &tile->buffers;
    int64_t d = shape->head_dim, stride = out_stride(shape);
    tile_place(tile, i, i);
    const float *q = b->qkv + queries_at(tile);
    const float *dout = b->dout + out_at(tile);
    const float *out = b->out + out_at(tile);
    cpu_tile_transpose(tile->count, d, q, qkv_stride(shape), to->turned_q,
                       STRIDE);
    cpu_tile_transpose(tile->count, d, dout, stride, to->turned_dout, STRIDE);
    cpu_tile_pack(tile->count, d, q, qkv_stride(shape), to->q,
                  packed_stride(d));
    cpu_tile_pack(tile->count, d, dout, stride, to->dout, packed_stride(d));
    for (int64_t q_row = 0; q_row < tile->count; q_row++)
        to->delta[q_row] =
            row_dot(dout + q_row * stride, out + q_row * stride, d);
}

/* p, the scores, become probabilities exp(score - lse) with dropout, ds, the
 * probabilities' gradients, those of the scores: exp(score - lse) (ds -
 * delta). */
static void lanes_gradient(const struct tile *tile, const struct lanes *lanes,
                           vec lse, vec delta)
{
    float *p = tile->buffers.p + lanes->at;
    float *ds = tile->buffers.ds + lanes->at;
    for (int64_t j = 0; j < lanes->end; j += 4) {
        vec keep[4];
        if (tile->shape->dropout > 0)
            lanes_keep(tile, lanes, j, keep);
        for (int64_t k = j; k < cpu_min(j + 4, lanes->end); k++) {
            vec probability =
                vec_exp(lanes_scores(lanes, tile->buffers.p, k) - lse);
            vec kept = probability;
            vec d = vec_load(ds + k * STRIDE, VEC_LANES);
            if (tile->shape->dropout > 0) {
                kept *= keep[k - j];
                d *= keep[k - j];
            }
            vec_store(p + k * STRIDE, VEC_LANES, kept);
            vec_store(ds + k * STRIDE, VEC_LANES, probability * (d - delta));
        }
    }
    lanes_clear(tile, lanes, tile->buffers.p);
    lanes_clear(tile, lanes, tile->buffers.ds);
}

/* Tile (i, j); its queries are prepared. */
static void tile_backward(struct tile *tile, const struct backward *b,
                          int64_t i, int64_t j)
{
    const struct attention *shape = tile->shape;
    const struct buffers *in = &tile->buffers;
    int64_t stride = qkv_stride(shape), d = shape->head_dim;
    bool first_head = tile->head % (shape->heads / shape->kv_heads) == 0;
    bool first = i == j && first_head; /* nothing was added to dk and dv */
    if (!tile_place(tile, i, j))
        return;
    const float *k = b->qkv + keys_at(tile);
    tile_products(tile, shape->scale, k, in->turned_q, in->p);
    tile_products(tile, 1.0f, b->qkv + values_at(tile), in->turned_dout,
                  in->ds);
    for (int64_t at = 0; at < tile->count; at += VEC_LANES) {
        struct lanes lanes = tile_lanes(tile, at);
        lanes_gradient(tile, &lanes,
                       vec_load(b->lse + lse_at(tile) + at, tile->count - at),
                       vec_load(in->delta + at, tile->count - at));
    }
    cpu_tile_pack(tile->keys, d, k, stride, in->keys, packed_stride(d));
    queries_add(tile, i == j, shape->scale, in->ds, in->keys,
                b->dqkv + queries_at(tile), stride);
    keys_add(tile, first, shape->scale, in->ds, in->q, b->dqkv + keys_at(tile));
    keys_add(tile, first, 1.0f, in->p, in->dout, b->dqkv + values_at(tile));
}

/* Query head `member` of a key head, numbered over the batch. */
static struct tile group_tile(const struct kernel_ctx *ctx,
                              const struct attention *shape, int64_t kv_head,
                              int64_t member)
{
    int64_t group = shape->heads / shape->kv_heads;
    return tile_of(ctx, shape, kv_head / shape->kv_heads,
                   kv_head % shape->kv_heads * group + member);
}

/* All tiles of a query head. */
static void head_backward(struct tile *tile, const struct backward *b)
{
    for (int64_t i = 0; i < cpu_parts(b->shape->seq, TILE); i++) {
        queries_prepare(tile, b, i);
        for (int64_t j = i; j >= 0; j--)
            tile_backward(tile, b, i, j);
    }
}

/* Tiles on a diagonal have no queries and no keys in common: few key heads keep
 * all threads busy. */
static void diagonals_backward(const struct kernel_ctx *ctx,
                               const struct backward *b, int64_t member)
{
    const struct attention *shape = b->shape;
    int64_t tiles = cpu_parts(shape->seq, TILE);
    int64_t kv_heads = shape->batch * shape->kv_heads;
    for (int64_t diagonal = 0; diagonal < tiles; diagonal++) {
#pragma omp parallel for num_threads(ctx->threads) schedule(dynamic, 1)
        for (int64_t task = 0; task < (tiles - diagonal) * kv_heads; task++) {
            struct tile tile = group_tile(ctx, shape, task % kv_heads, member);
            int64_t j = task / kv_heads;
            queries_prepare(&tile, b, diagonal + j);
            tile_backward(&tile, b, diagonal + j, j);
        }
    }
}

enum err CPU_SYMBOL(attention_backward)(const struct kernel_ctx *ctx,
                                        enum dtype dtype,
                                        const struct attention *shape,
                                        const void *qkv, const void *out,
                                        const float *lse, const void *dout,
                                        void *dqkv)
{
    enum err rc = attention_check(ctx, dtype, shape, "attention_backward");
    if (rc != ERR_OK)
        return rc;
    const struct backward b = { shape, qkv, out, lse, dout, dqkv };
    int64_t kv_heads = shape->batch * shape->kv_heads;
    int64_t group = shape->heads / shape->kv_heads;
    if (kv_heads % ctx->threads != 0 &&
        kv_heads < HEADS_PER_THREAD * ctx->threads) {
        for (int64_t member = 0; member < group; member++)
            diagonals_backward(ctx, &b, member);
        return ERR_OK;
    }
#pragma omp parallel for num_threads(ctx->threads) schedule(dynamic, 1)
    for (int64_t kv_head = 0; kv_head < kv_heads; kv_head++)
        for (int64_t member = 0; member < group; member++) {
            struct tile tile = group_tile(ctx, shape, kv_head, member);
            head_backward(&tile, &b);
        }
    return ERR_OK;
}
