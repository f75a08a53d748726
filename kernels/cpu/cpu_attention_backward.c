/* Attention backward (FlashAttention, Dao et al. 2022).
 *
 * Forward keeps no probabilities, only lse of each row: P = exp(S - lse) makes
 * them again from queries and keys, a tile at a time, which costs a product
 * more and saves a tensor of seq x seq. With D = the sum of dout * out of a row
 * the softmax' own derivative is dS = P * (dout v^T - D), and dq, dk, dv are
 * products of dS and P with what is there.
 *
 * A tile adds to dq of its queries and to dk and dv of its keys, so two tiles
 * of a row or of a column must not add at once, and sums have bits by their
 * order. Tile (i, j) adds to the queries' dq after (i, j + 1) and to the keys'
 * dk and dv after (i - 1, j), and after the group's head before: every order of
 * tasks that respects this gives the same bits. */
#include "kernels/cpu/cpu_attention.h"

/* Backward's heads are tasks of their own if threads are this often busy. */
#define HEADS_PER_THREAD 4

struct backward {
    const struct attention_chunk *chunk;
    int64_t key_stride;
    const float *q, *kv, *out, *lse, *dout;
    bool accumulate; /* into dq and dkv */
    int64_t dq_stride;
    float *dq, *dkv;
};

/* dkeys[keys, head_dim] += scale * panel[keys, queries] packed[queries,
 * head_dim]; = if it is the first. */
static void keys_add(const struct tile *tile, bool first, float scale,
                     const float *panel, const float *packed, float *dkeys)
{
    int64_t d = tile->shape->head_dim;
    int64_t stride = tile->key_stride;
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

/* What all tiles of the i-th tile of queries need. */
static void queries_prepare(struct tile *tile, const struct backward *b,
                            int64_t i)
{
    const struct attention *shape = tile->shape;
    struct buffers *to = &tile->buffers;
    int64_t d = shape->head_dim, stride = out_stride(shape);
    tile_place(tile, i, i);
    const float *q = b->q + queries_at(tile);
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
            vec_dot(dout + q_row * stride, out + q_row * stride, d);
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
    int64_t d = shape->head_dim;
    bool first_head = tile->head % (shape->heads / shape->kv_heads) == 0;
    bool first = !b->accumulate && i == j; /* nothing was added to dq */
    bool first_keys = first && first_head; /* nor to dk and dv */
    if (!tile_place(tile, i, j))
        return;
    const float *k = b->kv + keys_at(tile);
    tile_products(tile, shape->scale, k, in->turned_q, in->p);
    tile_products(tile, 1.0f, b->kv + values_at(tile), in->turned_dout, in->ds);
    for (int64_t at = 0; at < tile->count; at += VEC_LANES) {
        struct lanes lanes = tile_lanes(tile, at);
        lanes_gradient(tile, &lanes,
                       vec_load(b->lse + lse_at(tile) + at, tile->count - at),
                       vec_load(in->delta + at, tile->count - at));
    }
    cpu_tile_pack(tile->keys, d, k, tile->key_stride, in->keys,
                  packed_stride(d));
    queries_add(tile, first, shape->scale, in->ds, in->keys,
                b->dq +
                    (tile->sequence * shape->seq + tile->first) * b->dq_stride +
                    tile->head * d,
                b->dq_stride);
    keys_add(tile, first_keys, shape->scale, in->ds, in->q,
             b->dkv + keys_at(tile));
    keys_add(tile, first_keys, 1.0f, in->p, in->dout, b->dkv + values_at(tile));
}

/* Query head `member` of a key head, numbered over the batch. */
static struct tile group_tile(const struct kernel_ctx *ctx,
                              const struct backward *b, int64_t kv_head,
                              int64_t member)
{
    const struct attention *shape = &b->chunk->shape;
    int64_t group = shape->heads / shape->kv_heads;
    return tile_of(ctx, b->chunk, b->key_stride, kv_head / shape->kv_heads,
                   kv_head % shape->kv_heads * group + member);
}

/* All tiles of a query head. */
static void head_backward(struct tile *tile, const struct backward *b)
{
    for (int64_t i = 0; i < cpu_parts(tile->shape->seq, TILE); i++) {
        queries_prepare(tile, b, i);
        for (int64_t j = tile_last(b->chunk, i); j >= tile_first(b->chunk, i);
             j--)
            tile_backward(tile, b, i, j);
    }
}

/* Tiles on a diagonal have no queries and no keys in common: few key heads keep
 * all threads busy. Those above the main one come first. */
static void diagonals_backward(const struct kernel_ctx *ctx,
                               const struct backward *b, int64_t member)
{
    const struct attention *shape = &b->chunk->shape;
    int64_t tiles = cpu_parts(shape->seq, TILE);
    int64_t kv_heads = shape->batch * shape->kv_heads;
    for (int64_t diagonal = -tile_last(b->chunk, 0); diagonal < tiles;
         diagonal++) {
        int64_t begin = diagonal < 0 ? -diagonal : 0;
        int64_t end = cpu_min(tiles, tiles - diagonal);
#pragma omp parallel for num_threads(ctx->threads) schedule(dynamic, 1)
        for (int64_t task = begin * kv_heads; task < end * kv_heads; task++) {
            struct tile tile = group_tile(ctx, b, task % kv_heads, member);
            int64_t j = task / kv_heads;
            if (j < tile_first(b->chunk, diagonal + j))
                continue;
            queries_prepare(&tile, b, diagonal + j);
            tile_backward(&tile, b, diagonal + j, j);
        }
    }
}

static void backward(const struct kernel_ctx *ctx, const struct backward *b)
{
    const struct attention *shape = &b->chunk->shape;
    int64_t kv_heads = shape->batch * shape->kv_heads;
    int64_t group = shape->heads / shape->kv_heads;
    if (kv_heads % ctx->threads != 0 &&
        kv_heads < HEADS_PER_THREAD * ctx->threads) {
        for (int64_t member = 0; member < group; member++)
            diagonals_backward(ctx, b, member);
        return;
    }
#pragma omp parallel for num_threads(ctx->threads) schedule(dynamic, 1)
    for (int64_t kv_head = 0; kv_head < kv_heads; kv_head++)
        for (int64_t member = 0; member < group; member++) {
            struct tile tile = group_tile(ctx, b, kv_head, member);
            head_backward(&tile, b);
        }
}

enum err CPU_SYMBOL(attention_backward) KERNEL_LIKE(attention_backward)
{
    const struct attention_chunk chunk = attention_whole(shape);
    TRY(attention_check(ctx, dtype, &chunk, "attention_backward"));
    const struct backward b = {
        .chunk = &chunk,
        .key_stride = qkv_stride(shape),
        .q = qkv,
        .kv = (const float *)qkv + out_stride(shape),
        .out = out,
        .lse = lse,
        .dout = dout,
        .dq_stride = qkv_stride(shape),
        .dq = dqkv,
        .dkv = (float *)dqkv + out_stride(shape),
    };
    backward(ctx, &b);
    return ERR_OK;
}

enum err CPU_SYMBOL(attention_chunk_backward)
    KERNEL_LIKE(attention_chunk_backward)
{
    TRY(attention_check(ctx, dtype, chunk, "attention_chunk_backward"));
    const struct backward b = {
        .chunk = chunk,
        .key_stride = kv_stride(&chunk->shape),
        .q = q,
        .kv = kv,
        .out = out,
        .lse = lse,
        .dout = dout,
        .accumulate = true,
        .dq_stride = chunk->dq_stride,
        .dq = dq,
        .dkv = dkv,
    };
    backward(ctx, &b);
    return ERR_OK;
}
