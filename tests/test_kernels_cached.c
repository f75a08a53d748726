/* Attention over a cache on every table against fp64; a row's bits however rows
 * come. */
#include "tests/kernel_check.h"

#define KEYS KERNEL_CACHE_KEYS

static const struct cached_case {
    int64_t heads, kv_heads, head_dim, capacity, length;
    bool alibi;
    int64_t window;
} cases[] = {
    { 1, 1, 1, 16, 1, false, 0 },     { 2, 1, 16, 16, 5, true, 0 },
    { 3, 3, 20, 48, 33, false, 0 },   { 4, 2, 64, 64, 64, true, 0 },
    { 6, 2, 40, 208, 200, false, 0 }, { 2, 2, 130, 32, 19, true, 0 },
    { 2, 1, 16, 48, 40, true, 1 },    { 2, 1, 20, 48, 40, false, 5 },
    { 4, 2, 24, 80, 75, true, 6 },    { 2, 1, 64, 208, 200, false, 37 },
    { 1, 1, 8, 32, 20, false, 64 },
};

#define SLOTS 2

/* Both slots' texts: qkv of all tokens, and the cache. */
struct world {
    const struct cached_case *c;
    int64_t width, tokens;
    float *qkv;    /* [SLOTS * length, width] */
    float *slopes; /* [heads] */
    float *keys, *values;
    int64_t cache; /* floats of each */
};

static struct world world_create(const struct cached_case *c)
{
    struct world w = { .c = c,
                       .width = (c->heads + 2 * c->kv_heads) * c->head_dim,
                       .tokens = SLOTS * c->length };
    w.qkv = check_random(w.tokens * w.width, 3, 1);
    w.slopes = check_random(c->heads, 4, 0.5);
    w.cache = SLOTS * c->kv_heads * c->capacity * c->head_dim;
    w.keys = check_poisoned(w.cache);
    w.values = check_poisoned(w.cache);
    return w;
}

/* Rows of both slots from `first` on, `count` of each, slot by slot; their
 * outputs go to their places in out[SLOTS * length, heads * head_dim]. */
static enum err run(const struct kernels *k, struct world *w, int64_t first,
                    int64_t count, int threads, float *out)
{
    const struct cached_case *c = w->c;
    int64_t rows = SLOTS * count, d = c->heads * c->head_dim;
    int32_t *slots = check_alloc((size_t)rows * sizeof *slots);
    int32_t *positions = check_alloc((size_t)rows * sizeof *positions);
    float *qkv = check_alloc((size_t)(rows * w->width) * sizeof *qkv);
    float *some = check_poisoned(rows * d);
    for (int64_t i = 0; i < rows; i++) {
        slots[i] = (int32_t)(i / count);
        positions[i] = (int32_t)(first + i % count);
        memcpy(qkv + i * w->width,
               w->qkv + (slots[i] * c->length + positions[i]) * w->width,
               (size_t)w->width * sizeof *qkv);
    }
    struct kernel_ctx ctx = check_ctx(
        k, (struct kernel_limits){ .positions = c->capacity, .tokens = rows },
        threads);
    const struct attention_cached shape = {
        .rows = rows,
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .head_dim = c->head_dim,
        .window = c->window,
        .scale = (float)(1 / sqrt((double)c->head_dim)),
        .alibi_slopes = c->alibi ? w->slopes : NULL,
        .slots = slots,
        .positions = positions,
        .capacity = c->capacity,
        .keys = w->keys,
        .values = w->values,
    };
    enum err rc = k->attention_cached(&ctx, &shape, qkv, some);
    for (int64_t i = 0; i < rows; i++)
        memcpy(out + (slots[i] * c->length + positions[i]) * d, some + i * d,
               (size_t)d * sizeof *out);
    return rc;
}

/* In calls of so many rows of each slot, into a fresh cache. */
static float *text(const struct kernels *k, struct world *w, int64_t step,
                   int threads)
{
    float *out = check_poisoned(w->tokens * w->c->heads * w->c->head_dim);
    for (int64_t i = 0; i < w->cache; i++)
        w->keys[i] = w->values[i] = check_nan();
    for (int64_t at = 0; at < w->c->length; at += step) {
        int64_t left = w->c->length - at;
        run(k, w, at, left < step ? left : step, threads, out);
    }
    return out;
}

static void reference(const struct world *w, int64_t token, int64_t head,
                      double *out)
{
    const struct cached_case *c = w->c;
    int64_t d = c->head_dim, position = token % c->length;
    int64_t begin = token - position;
    int64_t key = (c->heads + head / (c->heads / c->kv_heads)) * d;
    const float *q = w->qkv + token * w->width + head * d;
    double *score = check_f64(position + 1), total = 0;
    int64_t oldest = c->window == 0 ? 0 : position - c->window + 1;
    for (int64_t t = oldest > 0 ? oldest : 0; t <= position; t++) {
        const float *from = w->qkv + (begin + t) * w->width + key;
        for (int64_t l = 0; l < d; l++)
            score[t] += (double)q[l] * (double)from[l];
        score[t] /= sqrt((double)d);
        if (c->alibi)
            score[t] += (double)w->slopes[head] * (double)(t - position);
        total += exp(score[t]);
    }
    for (int64_t t = oldest > 0 ? oldest : 0; t <= position; t++)
        for (int64_t l = 0; l < d; l++)
            out[l] +=
                exp(score[t]) / total *
                (double)
                    w->qkv[(begin + t) * w->width + key + c->kv_heads * d + l];
}

static void check_case(const struct kernels *k, const struct cached_case *c)
{
    struct world w = world_create(c);
    int64_t d = c->heads * c->head_dim, n = w.tokens * d;
    double *want = check_f64(n);
    char what[96];
    snprintf(what, sizeof what,
             "%lld of %lld heads of %lld, %lld tokens%s, window %lld",
             (long long)c->kv_heads, (long long)c->heads,
             (long long)c->head_dim, (long long)c->length,
             c->alibi ? ", ALiBi" : "", (long long)c->window);
    for (int64_t i = 0; i < w.tokens * c->heads; i++)
        reference(&w, i / c->heads, i % c->heads, want + i * c->head_dim);
    float *whole = text(k, &w, c->length, 1);
    const int64_t steps[] = { 1, 4, 6, 7, 13 };
    bool same = true;
    for (int i = 0; i < 5; i++) {
        float *other = text(k, &w, steps[i], 1 + i % 3);
        same = same && check_same(other, whole, n);
    }
    check_below(k, "attention_cached", what, check_error(whole, want, n), 5e-6);
    check_that(k, same, "attention_cached: %s, same bits however rows come",
               what);
    check_release();
}

/* What lies behind a row's position is not looked at. */
static void check_behind(const struct kernels *k)
{
    const struct cached_case c = { 2, 1, 24, 32, 20, false, 0 };
    struct world w = world_create(&c);
    int64_t row = c.heads * c.head_dim;
    float *clean = text(k, &w, 20, 2);
    w.qkv[19 * w.width + c.heads * c.head_dim] = NAN;            /* a key */
    w.qkv[18 * w.width + (c.heads + 1) * c.head_dim] = INFINITY; /* a value */
    float *odd = text(k, &w, 20, 2);
    check_that(k,
               check_same(odd, clean, 18 * row) && isnan(odd[19 * row]) &&
                   !isfinite(odd[18 * row]) &&
                   check_same(odd + 20 * row, clean + 20 * row, 20 * row),
               "attention_cached: later keys and values are not seen");
    check_release();
}

int main(void)
{
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++) {
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
            check_case(*t, &cases[i]);
        check_behind(*t);
    }
    return tap_done();
}
