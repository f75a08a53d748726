/* Causal attention by tiles of queries and keys.
 *
 * The scores of a tile are one GEMM into a panel of scratch that stays in the
 * second-level cache, however long the sequence is. Forward keeps a running
 * maximum and sum per query (Milakov and Gimelshein 2018), backward recomputes
 * the probabilities from lse (FlashAttention, Dao et al. 2022). The GEMMs are
 * single-threaded. Forward's tasks are tiles of queries; in backward tile (i,
 * j) adds to the queries' dq after (i, j + 1) and to the keys' dk and dv after
 * (i - 1, j), and every order of tasks that respects this gives the same
 * bits. */
#include "kernels/cpu.h"
#include "kernels/cpu_math.h"
#include "kernels/cpu_random.h"

#include <cblas.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#define TILE 128 /* queries, and keys */
/* Rows of panels start on cache lines, at a distance that is not a power of
 * two, which would map a column to few cache sets. */
#define PANEL_STRIDE (TILE + 16)
#define PANEL_FLOATS (TILE * PANEL_STRIDE)
#define PANELS 2 /* per thread */
/* Keys that no query sees are left out in units: of whole random blocks. */
#define KEY_UNIT 16
/* Backward's heads are tasks of their own if threads are this often busy. */
#define HEADS_PER_THREAD 4

/* One head's scores of `count` queries and `keys` keys. */
struct tile {
    const struct attention *shape;
    int64_t sequence, head;
    int64_t first, count;
    int64_t first_key, keys;
    uint64_t random_key;
    float *panel;
};

/* One query of a tile. */
struct row {
    int64_t seen;       /* of the tile's keys: those not after the query */
    const int32_t *ids; /* documents from the tile's first key on, or NULL */
    int64_t ids_left;   /* that may be read */
    int32_t id;         /* the query's */
    float slope;        /* 0: no ALiBi */
    float distance;     /* from query to first key, <= 0 */
};

struct backward {
    const struct attention *shape;
    const float *qkv, *out, *lse, *dout;
    float *dqkv;
};

size_t CPU_SYMBOL(attention_scratch)(const struct kernel_limits *limits)
{
    return (size_t)limits->threads * PANELS * PANEL_FLOATS * sizeof(float);
}

static float *thread_panels(const struct kernel_ctx *ctx)
{
    return (float *)ctx->scratch + omp_get_thread_num() * PANELS * PANEL_FLOATS;
}

static int qkv_stride(const struct attention *shape)
{
    return (int)((shape->heads + 2 * shape->kv_heads) * shape->head_dim);
}

static int out_stride(const struct attention *shape)
{
    return (int)(shape->heads * shape->head_dim);
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

static struct tile tile_of(const struct attention *shape, int64_t sequence,
                           int64_t head, float *panel)
{
    struct tile tile = {
        .shape = shape, .sequence = sequence, .head = head, .panel = panel
    };
    if (shape->dropout > 0)
        tile.random_key = cpu_random_key(&shape->random, sequence);
    return tile;
}

/* panel[queries, keys] = scale * rows[queries, head_dim] others[keys, head_dim]
 * transposed. */
static void tile_products(const struct tile *tile, float scale,
                          const float *rows, int rows_stride,
                          const float *others, float *panel)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)tile->count,
                (int)tile->keys, (int)tile->shape->head_dim, scale, rows,
                rows_stride, others, qkv_stride(tile->shape), 0.0f, panel,
                PANEL_STRIDE);
}

/* out[queries, head_dim] += scale * panel[queries, keys] rows[keys, head_dim],
 * = if it is the first. */
static void queries_add(const struct tile *tile, bool first, float scale,
                        const float *panel, const float *rows, float *out,
                        int stride)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)tile->count,
                (int)tile->shape->head_dim, (int)tile->keys, scale, panel,
                PANEL_STRIDE, rows, qkv_stride(tile->shape),
                first ? 0.0f : 1.0f, out, stride);
}

/* out[keys, head_dim] += scale * panel[queries, keys] transposed
 * rows[queries, head_dim], = if it is the first. */
static void keys_add(const struct tile *tile, bool first, float scale,
                     const float *panel, const float *rows, int stride,
                     float *out)
{
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)tile->keys,
                (int)tile->shape->head_dim, (int)tile->count, scale, panel,
                PANEL_STRIDE, rows, stride, first ? 0.0f : 1.0f, out,
                qkv_stride(tile->shape));
}

static struct row tile_row(const struct tile *tile, int64_t i)
{
    const struct attention *shape = tile->shape;
    const int32_t *ids = ids_of(tile);
    int64_t query = tile->first + i;
    struct row row = {
        .seen = cpu_min(tile->keys, query + 1 - tile->first_key),
        .distance = (float)(tile->first_key - query),
    };
    if (shape->alibi_slopes != NULL)
        row.slope = shape->alibi_slopes[tile->head];
    if (ids != NULL) {
        row.ids = ids + tile->first_key;
        row.ids_left = shape->seq - tile->first_key;
        row.id = ids[query];
    }
    return row;
}

/* keep[j]: what dropout multiplies the probability of key j by. */
static void row_keep(const struct tile *tile, int64_t i, float keep[TILE])
{
    const struct attention *shape = tile->shape;
    vec_u32 words[2];
    uint32_t threshold = cpu_random_threshold(shape->dropout);
    float factor = 1.0f / (1.0f - shape->dropout);
    int64_t blocks_per_query = cpu_parts(shape->seq, 4);
    int64_t query = tile->head * shape->seq + tile->first + i;
    int64_t block = query * blocks_per_query + tile->first_key / 4;
    for (int64_t j = 0; j < tile->keys; j += CPU_RANDOM_WORDS) {
        cpu_random_words(tile->random_key, (uint64_t)(block + j / 4), words);
        for (int64_t k = 0; k < 2; k++)
            vec_store(keep + j + k * VEC_LANES, VEC_LANES,
                      cpu_random_keep(words[k], threshold, factor));
    }
}

/* Scores of keys from j on; -Inf, which is 0 after exp, for those that the
 * query must not see. Whole vectors are read: rows of panels have the room. */
static inline vec row_scores(const struct row *row, const float *panel,
                             int64_t j)
{
    vec place;
    vec_i32 number;
    for (int i = 0; i < VEC_LANES; i++) {
        place[i] = (float)i;
        number[i] = i;
    }
    vec s = vec_fma(place + (row->distance + (float)j), vec_splat(row->slope),
                    vec_load(panel + j, VEC_LANES));
    vec_i32 seen = number < (int32_t)(row->seen - j);
    if (row->ids != NULL)
        seen &= vec_load_i32(row->ids + j, row->ids_left - j) == row->id;
    return vec_select(seen, s, vec_splat(-INFINITY));
}

/* Zero for keys after the query. */
static void row_clear(const struct tile *tile, const struct row *row,
                      float *panel)
{
    int64_t done = cpu_parts(row->seen, VEC_LANES) * VEC_LANES;
    if (done < tile->keys)
        memset(panel + done, 0, (size_t)(tile->keys - done) * sizeof(float));
}

/* Scores become exp(score - peak), times `keep` if that is not NULL; peak and
 * sum, that without keep, become those of all tiles so far. Returns what the
 * former tiles' products must be multiplied by. */
static float row_softmax(const struct row *row, const float *keep, float *panel,
                         float *peak, vec *sum)
{
    vec top = vec_splat(*peak);
    for (int64_t j = 0; j < row->seen; j += VEC_LANES)
        top = vec_max(row_scores(row, panel, j), top);
    float now = vec_peak(top);
    float factor = *peak == now ? 1.0f : vec_exp(vec_splat(*peak - now))[0];
    vec total = *sum * factor;
    for (int64_t j = 0; j < row->seen; j += VEC_LANES) {
        vec e = vec_exp(row_scores(row, panel, j) - now);
        total += e;
        if (keep != NULL)
            e *= vec_load(keep + j, VEC_LANES);
        vec_store(panel + j, VEC_LANES, e);
    }
    *peak = now;
    *sum = total;
    return factor;
}

static void row_scale(int64_t n, float factor, float *x)
{
    for (int64_t j = 0; j < n; j += VEC_LANES)
        vec_store(x + j, n - j, vec_load(x + j, n - j) * factor);
}

static void tile_forward(const struct tile *tile, bool first, const float *qkv,
                         float peak[TILE], vec sum[TILE], float *out)
{
    const struct attention *shape = tile->shape;
    float keep[TILE];
    bool drops = shape->dropout > 0;
    tile_products(tile, shape->scale, qkv + queries_at(tile), qkv_stride(shape),
                  qkv + keys_at(tile), tile->panel);
    for (int64_t i = 0; i < tile->count; i++) {
        struct row row = tile_row(tile, i);
        float *panel = tile->panel + i * PANEL_STRIDE;
        if (drops)
            row_keep(tile, i, keep);
        float factor =
            row_softmax(&row, drops ? keep : NULL, panel, &peak[i], &sum[i]);
        row_clear(tile, &row, panel);
        if (!first && factor != 1.0f)
            row_scale(shape->head_dim, factor, out + i * out_stride(shape));
    }
    queries_add(tile, first, 1.0f, tile->panel, qkv + values_at(tile), out,
                out_stride(shape));
}

/* The i-th tile of queries, all its keys from the last to the first. */
static void queries_forward(struct tile *tile, int64_t i, const float *qkv,
                            float *all_out, float *all_lse)
{
    const struct attention *shape = tile->shape;
    float peak[TILE];
    vec sum[TILE];
    for (int64_t q = 0; q < TILE; q++) {
        peak[q] = -FLT_MAX;
        sum[q] = (vec){ 0 };
    }
    for (int64_t j = i; j >= 0; j--)
        if (tile_place(tile, i, j))
            tile_forward(tile, j == i, qkv, peak, sum, all_out + out_at(tile));
    float *out = all_out + out_at(tile);
    float *lse = all_lse + lse_at(tile);
    for (int64_t q = 0; q < tile->count; q++) {
        float total = vec_sum(sum[q]);
        lse[q] = peak[q] + logf(total);
        row_scale(shape->head_dim, 1.0f / total, out + q * out_stride(shape));
    }
}

static enum err attention_check(const struct kernel_ctx *ctx, enum dtype dtype,
                                const struct attention *shape, const char *op)
{
    assert(shape->batch > 0 && shape->seq > 0 && shape->head_dim > 0);
    assert(shape->kv_heads > 0 && shape->heads % shape->kv_heads == 0);
    assert((shape->heads + 2 * shape->kv_heads) * shape->head_dim <= INT_MAX);
    assert(shape->dropout >= 0 && shape->dropout < 1);
    assert(ctx->scratch_bytes >=
           (size_t)ctx->threads * PANELS * PANEL_FLOATS * sizeof(float));
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
        struct tile tile = tile_of(shape, head / shape->heads,
                                   head % shape->heads, thread_panels(ctx));
        queries_forward(&tile, tiles - 1 - task / heads, qkv, out, lse);
    }
    return ERR_OK;
}

/* p[j], a score, becomes the probability exp(p[j] - lse) times keep, dp[j] the
 * score's gradient exp(p[j] - lse) (keep dp - delta). */
static void row_gradient(const struct row *row, const float *keep, float lse,
                         float delta, float *p, float *dp)
{
    for (int64_t j = 0; j < row->seen; j += VEC_LANES) {
        vec probability = vec_exp(row_scores(row, p, j) - lse);
        vec kept = probability;
        vec d = vec_load(dp + j, VEC_LANES);
        if (keep != NULL) {
            vec k = vec_load(keep + j, VEC_LANES);
            kept *= k;
            d *= k;
        }
        vec_store(p + j, VEC_LANES, kept);
        vec_store(dp + j, VEC_LANES, probability * (d - delta));
    }
}

static float row_dot(const float *a, const float *b, int64_t n)
{
    vec sum = { 0 };
    for (int64_t j = 0; j < n; j += VEC_LANES)
        sum = vec_fma(vec_load(a + j, n - j), vec_load(b + j, n - j), sum);
    return vec_sum(sum);
}

static void tile_gradients(const struct tile *tile, const float *out,
                           const float *lse, const float *dout, float *p,
                           float *ds)
{
    const struct attention *shape = tile->shape;
    float keep[TILE];
    bool drops = shape->dropout > 0;
    for (int64_t i = 0; i < tile->count; i++) {
        struct row row = tile_row(tile, i);
        int64_t at = i * out_stride(shape);
        float delta = row_dot(dout + at, out + at, shape->head_dim);
        if (drops)
            row_keep(tile, i, keep);
        row_gradient(&row, drops ? keep : NULL, lse[i], delta,
                     p + i * PANEL_STRIDE, ds + i * PANEL_STRIDE);
        row_clear(tile, &row, p + i * PANEL_STRIDE);
        row_clear(tile, &row, ds + i * PANEL_STRIDE);
    }
}

/* `first_query` and `first_key`: nothing was added to dq, to dk and dv. */
static void tile_backward(const struct backward *b, const struct tile *tile,
                          bool first_query, bool first_key)
{
    const struct attention *shape = b->shape;
    int stride = qkv_stride(shape);
    float *p = tile->panel;
    float *ds = tile->panel + PANEL_FLOATS;
    const float *q = b->qkv + queries_at(tile);
    const float *k = b->qkv + keys_at(tile);
    const float *dout = b->dout + out_at(tile);
    tile_products(tile, shape->scale, q, stride, k, p);
    tile_products(tile, 1.0f, dout, out_stride(shape), b->qkv + values_at(tile),
                  ds);
    tile_gradients(tile, b->out + out_at(tile), b->lse + lse_at(tile), dout, p,
                   ds);
    queries_add(tile, first_query, shape->scale, ds, k,
                b->dqkv + queries_at(tile), stride);
    keys_add(tile, first_key, shape->scale, ds, q, stride,
             b->dqkv + keys_at(tile));
    keys_add(tile, first_key, 1.0f, p, dout, out_stride(shape),
             b->dqkv + values_at(tile));
}

/* Tile (i, j) of all query heads of a key head, numbered over the batch. */
static void group_backward(const struct kernel_ctx *ctx,
                           const struct backward *b, int64_t kv_head, int64_t i,
                           int64_t j)
{
    const struct attention *shape = b->shape;
    int64_t group = shape->heads / shape->kv_heads;
    int64_t first = kv_head % shape->kv_heads * group;
    struct tile tile =
        tile_of(shape, kv_head / shape->kv_heads, first, thread_panels(ctx));
    if (!tile_place(&tile, i, j))
        return;
    for (int64_t g = 0; g < group; g++) {
        tile.head = first + g;
        tile_backward(b, &tile, i == j, i == j && g == 0);
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
    int64_t tiles = cpu_parts(shape->seq, TILE);
    int64_t heads = shape->batch * shape->kv_heads;
    if (heads % ctx->threads == 0 || heads >= HEADS_PER_THREAD * ctx->threads) {
#pragma omp parallel for num_threads(ctx->threads) schedule(dynamic, 1)
        for (int64_t head = 0; head < heads; head++)
            for (int64_t i = 0; i < tiles; i++)
                for (int64_t j = i; j >= 0; j--)
                    group_backward(ctx, &b, head, i, j);
        return ERR_OK;
    }
    /* Few heads: tiles on a diagonal have no queries and no keys in common. */
    for (int64_t diagonal = 0; diagonal < tiles; diagonal++) {
#pragma omp parallel for num_threads(ctx->threads) schedule(dynamic, 1)
        for (int64_t task = 0; task < (tiles - diagonal) * heads; task++)
            group_backward(ctx, &b, task % heads, diagonal + task / heads,
                           task / heads);
    }
    return ERR_OK;
}
