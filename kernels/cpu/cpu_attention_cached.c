/* Attention over a cache of keys and values. Scores of sixteen keys lie side by
 * side in vectors, as the cache's keys do, each a chain over head_dim; softmax
 * takes two passes over a row's scores, which stay in scratch; the values are
 * added in the order of positions. Neighbouring rows of a slot go through keys
 * and values together, each with its own chains, so a row's bits do not depend
 * on its neighbours. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_math.h"

#include <math.h>
#include <omp.h>

/* Rows that go together; vectors of keys, and of a value, whose chains the
 * registers hold for so many rows and for one. */
#define ROWS 6
#define KEYS KERNEL_CACHE_KEYS
#define KEY_VECS (KEYS / VEC_LANES)
#if VEC_LANES == 16
#define VALUE_VECS 4
#else
#define VALUE_VECS 2
#endif

/* Multiply-adds that are worth another thread. */
#define THREAD_WORTH 32768

struct head {
    const struct attention_cached *shape;
    const float *q; /* of the first row */
    float *out;
    int64_t q_stride, out_stride;
    const float *keys, *values; /* of the slot and head */
    int64_t position;           /* of the first row; the others' follow */
    int64_t rows;
    int64_t window; /* as many as there are positions: none */
    float slope;
    float *scores; /* [ROWS][capacity] */
};

size_t CPU_SYMBOL(attention_cached_scratch)(const struct kernel_limits *limits)
{
    int64_t capacity = cpu_parts(limits->positions, KEYS) * KEYS;
    return (size_t)(limits->threads * ROWS * capacity) * sizeof(float);
}

/* --- scores --- */

/* Scores of KEYS keys from `at` on for `rows` rows, a constant; -Inf where a
 * row must not see the key. */
static inline __attribute__((always_inline)) void
keys_run(const struct head *h, int64_t at, const int rows)
{
    const struct attention_cached *s = h->shape;
    const float *keys = h->keys + at * s->head_dim;
    vec sum[ROWS][KEY_VECS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < KEY_VECS; v++)
            sum[i][v] = (vec){ 0 };
    for (int64_t l = 0; l < s->head_dim; l++)
#pragma GCC unroll 4
        for (int v = 0; v < KEY_VECS; v++) {
            vec key = vec_load(keys + l * KEYS + v * VEC_LANES, VEC_LANES);
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++)
                sum[i][v] = vec_fma(vec_splat(h->q[i * h->q_stride + l]), key,
                                    sum[i][v]);
        }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < KEY_VECS; v++) {
            vec_i32 number = { 0 }; /* the key's distance from the row */
            for (int lane = 0; lane < VEC_LANES; lane++)
                number[lane] = lane + v * VEC_LANES;
            number += (int32_t)(at - h->position - i);
            vec score = sum[i][v] * s->scale;
            if (h->slope != 0)
                score = vec_fma(__builtin_convertvector(number, vec),
                                vec_splat(h->slope), score);
            score = vec_select(number <= 0, score, vec_splat(-INFINITY));
            if (s->window > 0)
                score = vec_select(number > -(int32_t)h->window, score,
                                   vec_splat(-INFINITY));
            vec_store(h->scores + i * s->capacity + at + v * VEC_LANES,
                      VEC_LANES, score);
        }
}

static void scores_of_one(const struct head *h, int64_t begin, int64_t end)
{
    for (int64_t at = begin; at < end; at += KEYS)
        keys_run(h, at, 1);
}

static void scores_of_all(const struct head *h, int64_t begin, int64_t end)
{
    for (int64_t at = begin; at < end; at += KEYS)
        keys_run(h, at, ROWS);
}

/* Scores become exp(score - the largest); returns their sum, over sixteen lanes
 * by position. What a row must not see becomes 0. */
static float softmax(float *scores, int64_t begin, int64_t end)
{
    vec top = vec_splat(-INFINITY);
    struct wide total = { 0 };
    for (int64_t at = begin; at < end; at += VEC_LANES)
        top = vec_max(vec_load(scores + at, VEC_LANES), top);
    float peak = vec_peak(top);
    for (int64_t at = begin; at < end; at += WIDE_LANES)
        for (int i = 0; i < WIDE_VECS; i++) {
            float *to = scores + at + i * VEC_LANES;
            vec e = vec_exp(vec_load(to, VEC_LANES) - peak);
            total.part[i] += e;
            vec_store(to, VEC_LANES, e);
        }
    return wide_sum(total);
}

/* --- values --- */

/* out[rows][column ...] += weights times values [begin, end), as many vectors
 * of a value, a constant like `rows`; with `first` the chains begin. */
static inline __attribute__((always_inline)) void
values_run(const struct head *h, int64_t row, const int rows, bool first,
           int64_t begin, int64_t end, int64_t column, const int vecs)
{
    const int64_t d = h->shape->head_dim, capacity = h->shape->capacity;
    const float *values = h->values + column;
    const float *weights = h->scores + row * capacity;
    float *out = h->out + row * h->out_stride + column;
    vec sum[ROWS][VALUE_VECS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++) {
            sum[i][v] = (vec){ 0 };
            if (!first)
                sum[i][v] = vec_load(out + i * h->out_stride + v * VEC_LANES,
                                     d - column - v * VEC_LANES);
        }
    for (int64_t t = begin; t < end; t++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++) {
            vec value = vec_load(values + t * d + v * VEC_LANES,
                                 d - column - v * VEC_LANES);
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++)
                sum[i][v] = vec_fma(vec_splat(weights[i * capacity + t]), value,
                                    sum[i][v]);
        }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            vec_store(out + i * h->out_stride + v * VEC_LANES,
                      d - column - v * VEC_LANES, sum[i][v]);
}

/* All columns; whole vectors where they are, so that the compiler sees no
 * tails. */
static inline __attribute__((always_inline)) void
values_add(const struct head *h, int64_t row, const int rows, bool first,
           int64_t begin, int64_t end)
{
    int64_t column = 0, d = h->shape->head_dim;
    for (; column + VALUE_VECS * VEC_LANES <= d;
         column += VALUE_VECS * VEC_LANES)
        values_run(h, row, rows, first, begin, end, column, VALUE_VECS);
    for (; column < d; column += VEC_LANES)
        values_run(h, row, rows, first, begin, end, column, 1);
}

static void values_of_one(const struct head *h, int64_t row, bool first,
                          int64_t begin, int64_t end)
{
    values_add(h, row, 1, first, begin, end);
}

static void values_of_all(const struct head *h, bool first, int64_t begin,
                          int64_t end)
{
    values_add(h, 0, ROWS, first, begin, end);
}

/* The first position that row `i` sees. */
static int64_t oldest(const struct head *h, int64_t i)
{
    int64_t at = h->position + i - h->window + 1;
    return at > 0 ? at : 0;
}

/* All rows, each in the order of positions: what the first ones see alone, what
 * all see, what the last ones see alone. */
static void values_of_rows(const struct head *h)
{
    int64_t seen = h->position + 1, common = oldest(h, h->rows - 1);
    bool together = h->rows == ROWS && common < seen;
    for (int64_t i = 0; i < h->rows && !together; i++)
        values_of_one(h, i, true, oldest(h, i), seen + i);
    if (!together)
        return;
    for (int64_t i = 0; i < ROWS && common > 0; i++)
        values_of_one(h, i, true, oldest(h, i), common);
    values_of_all(h, common == 0, common, seen);
    for (int64_t i = 0; i < ROWS; i++)
        values_of_one(h, i, false, seen, seen + i);
}

/* --- rows of one head --- */

static void head_run(const struct head *h)
{
    int64_t d = h->shape->head_dim;
    int64_t begin = oldest(h, 0) / KEYS * KEYS;
    int64_t end = cpu_parts(h->position + h->rows, KEYS) * KEYS;
    float total[ROWS] = { 0 };
    if (h->rows == ROWS)
        scores_of_all(h, begin, end);
    for (int64_t i = 0; i < h->rows && h->rows < ROWS; i++) {
        struct head one = *h;
        one.q += i * h->q_stride;
        one.scores += i * h->shape->capacity;
        one.position += i;
        scores_of_one(&one, begin, end);
    }
    for (int64_t i = 0; i < h->rows; i++)
        total[i] = softmax(h->scores + i * h->shape->capacity, begin, end);
    values_of_rows(h);
    for (int64_t i = 0; i < h->rows; i++) {
        float *out = h->out + i * h->out_stride;
        vec factor = vec_splat(1.0f / total[i]);
        for (int64_t j = 0; j < d; j += VEC_LANES)
            vec_store(out + j, d - j, vec_load(out + j, d - j) * factor);
    }
}

/* Rows from `row` on that are one slot's and follow each other. */
static int64_t run_length(const struct attention_cached *s, int64_t row)
{
    int64_t n = 1;
    while (n < ROWS && row + n < s->rows &&
           s->slots[row + n] == s->slots[row] &&
           s->positions[row + n] == s->positions[row] + n)
        n++;
    return n;
}

static void rows_run(const struct kernel_ctx *ctx,
                     const struct attention_cached *s, const float *qkv,
                     int64_t row, int64_t rows, int64_t head, float *out)
{
    int64_t width = (s->heads + 2 * s->kv_heads) * s->head_dim;
    int64_t kv = s->slots[row] * s->kv_heads + head / (s->heads / s->kv_heads);
    const struct head h = {
        .shape = s,
        .q = qkv + row * width + head * s->head_dim,
        .q_stride = width,
        .out = out + (row * s->heads + head) * s->head_dim,
        .out_stride = s->heads * s->head_dim,
        .keys = s->keys + kv * s->capacity * s->head_dim,
        .values = s->values + kv * s->capacity * s->head_dim,
        .position = s->positions[row],
        .rows = rows,
        .window = s->window > 0 ? cpu_min(s->window, s->capacity) : s->capacity,
        .slope = s->alibi_slopes != NULL ? s->alibi_slopes[head] : 0,
        .scores =
            (float *)ctx->scratch + omp_get_thread_num() * ROWS * s->capacity,
    };
    head_run(&h);
}

/* --- the op --- */

static void row_store(const struct attention_cached *s, const float *qkv,
                      int64_t row)
{
    int64_t d = s->head_dim, position = s->positions[row];
    const float *keys =
        qkv + (row * (s->heads + 2 * s->kv_heads) + s->heads) * d;
    assert(position >= 0 && position < s->capacity && s->slots[row] >= 0);
    for (int64_t head = 0; head < s->kv_heads; head++) {
        int64_t base = (s->slots[row] * s->kv_heads + head) * s->capacity * d;
        float *key =
            s->keys + base + position / KEYS * KEYS * d + position % KEYS;
        for (int64_t l = 0; l < d; l++)
            key[l * KEYS] = keys[head * d + l];
        memcpy(s->values + base + position * d, keys + (s->kv_heads + head) * d,
               (size_t)d * sizeof(float));
    }
}

/* How much the rows attend to. */
static double work_of(const struct attention_cached *s)
{
    double keys = 0;
    for (int64_t row = 0; row < s->rows; row++)
        keys += s->positions[row] + 1;
    return 2.0 * keys * (double)(s->heads * s->head_dim);
}

enum err CPU_SYMBOL(attention_cached) KERNEL_LIKE(attention_cached)
{
    assert(shape->heads > 0 && shape->kv_heads > 0 &&
           shape->heads % shape->kv_heads == 0);
    assert(shape->head_dim > 0 && shape->capacity % KEYS == 0 &&
           shape->rows >= 0);
    assert(shape->capacity <= INT32_MAX);
    double worth = work_of(shape) / THREAD_WORTH + 1;
    int threads = worth < ctx->threads ? (int)worth : ctx->threads;
    assert(ctx->scratch_bytes >=
           (size_t)(threads * ROWS * shape->capacity) * sizeof(float));
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int64_t row = 0; row < shape->rows; row++)
            row_store(shape, qkv, row);
        for (int64_t row = 0, n; row < shape->rows; row += n) {
            n = run_length(shape, row);
#pragma omp for schedule(dynamic, 1) nowait
            for (int64_t head = 0; head < shape->heads; head++)
                rows_run(ctx, shape, qkv, row, n, head, out);
        }
    }
    return ERR_OK;
}
