/* Attention forward: a task per tile of queries.
 *
 * The softmax of a row needs its maximum and its sum before the first
 * probability is known, and the row is as long as the sequence. The online
 * softmax (Milakov and Gimelshein 2018) does without them: it goes through the
 * keys tile by tile with a running maximum m, sum s and output o; when a tile
 * raises the maximum to m', what is there is multiplied by exp(m - m') and the
 * tile's terms are added. At the end o / s is what the whole row would have
 * given, and lse = m + log s is all that backward needs to make the
 * probabilities again. So no row of scores is ever in memory, and a query that
 * meets its keys in several calls, as across the chunks of a sequence, resumes
 * from (o, lse) alone. */
#include "kernels/cpu/cpu_attention.h"

#include <float.h>

#define TILE_VECS (TILE / VEC_LANES)

struct forward {
    const struct attention_chunk *chunk;
    int64_t key_stride;
    const float *q, *kv;
    bool first; /* out and lse hold nothing yet */
    float *out, *lse;
};

size_t CPU_SYMBOL(attention_scratch)(const struct kernel_limits *limits)
{
    return (size_t)(limits->threads * buffers_floats(limits->head_dim)) *
           sizeof(float);
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

static void tile_forward(const struct tile *tile, bool first, const float *kv,
                         vec peak[TILE_VECS], vec sum[TILE_VECS], float *out)
{
    const struct attention *shape = tile->shape;
    const struct buffers *b = &tile->buffers;
    tile_products(tile, shape->scale, kv + keys_at(tile), b->turned_q, b->p);
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
    cpu_tile_pack(tile->keys, shape->head_dim, kv + values_at(tile),
                  tile->key_stride, b->keys, packed_stride(shape->head_dim));
    queries_add(tile, first, 1.0f, b->p, b->keys, out, out_stride(shape));
}

/* The state of queries that saw keys before: out is their products' sum, with a
 * peak of lse and a sum of 1. */
static void queries_resume(const struct tile *tile, const float *lse,
                           vec peak[TILE_VECS], vec sum[TILE_VECS])
{
    for (int64_t at = 0; at < tile->count; at += VEC_LANES) {
        vec before = vec_load(lse + at, tile->count - at);
        vec_i32 seen = before != -INFINITY;
        peak[at / VEC_LANES] = vec_select(seen, before, vec_splat(-FLT_MAX));
        sum[at / VEC_LANES] = vec_select(seen, vec_splat(1), (vec){ 0 });
    }
}

/* A query that saw no key has a sum of 0, and the logarithm makes its lse -Inf.
 */
static void queries_finish(const struct tile *tile, const vec peak[TILE_VECS],
                           const vec sum[TILE_VECS], float *out, float *lse)
{
    int64_t d = tile->shape->head_dim, stride = out_stride(tile->shape);
    for (int64_t at = 0; at < tile->count; at += VEC_LANES)
        vec_store(lse + at, tile->count - at,
                  peak[at / VEC_LANES] + vec_log(sum[at / VEC_LANES]));
    for (int64_t q = 0; q < tile->count; q++) {
        float total = sum[q / VEC_LANES][q % VEC_LANES];
        if (total == 0)
            memset(out + q * stride, 0, (size_t)d * sizeof(*out));
        else
            row_scale(d, 1.0f / total, out + q * stride);
    }
}

/* The i-th tile of queries, all its keys from the last to the first. */
static void queries_forward(struct tile *tile, const struct forward *f,
                            int64_t i)
{
    const struct attention *shape = tile->shape;
    bool first = f->first;
    vec peak[TILE_VECS];
    vec sum[TILE_VECS];
    for (int64_t v = 0; v < TILE_VECS; v++) {
        peak[v] = vec_splat(-FLT_MAX);
        sum[v] = (vec){ 0 };
    }
    tile_place(tile, i, i);
    float *out = f->out + out_at(tile);
    float *lse = f->lse + lse_at(tile);
    if (!first)
        queries_resume(tile, lse, peak, sum);
    cpu_tile_transpose(tile->count, shape->head_dim, f->q + queries_at(tile),
                       qkv_stride(shape), tile->buffers.turned_q, STRIDE);
    for (int64_t j = tile_last(f->chunk, i); j >= tile_first(f->chunk, i); j--)
        if (tile_place(tile, i, j)) {
            tile_forward(tile, first, f->kv, peak, sum, out);
            first = false;
        }
    queries_finish(tile, peak, sum, out, lse);
}

static void forward(const struct kernel_ctx *ctx, const struct forward *f)
{
    const struct attention *shape = &f->chunk->shape;
    int64_t tiles = cpu_parts(shape->seq, TILE);
    int64_t heads = shape->batch * shape->heads;
    /* Long tasks, the last queries, come first: they balance better. */
#pragma omp parallel for num_threads(ctx->threads) schedule(dynamic, 1)
    for (int64_t task = 0; task < tiles * heads; task++) {
        int64_t head = task % heads;
        struct tile tile = tile_of(ctx, f->chunk, f->key_stride,
                                   head / shape->heads, head % shape->heads);
        queries_forward(&tile, f, tiles - 1 - task / heads);
    }
}

enum err CPU_SYMBOL(attention_forward) KERNEL_LIKE(attention_forward)
{
    const struct attention_chunk chunk = attention_whole(shape);
    TRY(attention_check(ctx, dtype, &chunk, "attention_forward"));
    const struct forward f = {
        .chunk = &chunk,
        .key_stride = qkv_stride(shape),
        .q = qkv,
        .kv = (const float *)qkv + out_stride(shape),
        .first = true,
        .out = out,
        .lse = lse,
    };
    forward(ctx, &f);
    return ERR_OK;
}

enum err CPU_SYMBOL(attention_chunk_forward)
    KERNEL_LIKE(attention_chunk_forward)
{
    TRY(attention_check(ctx, dtype, chunk, "attention_chunk_forward"));
    const struct forward f = {
        .chunk = chunk,
        .key_stride = kv_stride(&chunk->shape),
        .q = q,
        .kv = kv,
        .first = first,
        .out = out,
        .lse = lse,
    };
    forward(ctx, &f);
    return ERR_OK;
}
