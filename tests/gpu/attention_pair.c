#include "tests/gpu/attention_pair.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/base/rng.h"

#define NEARBY 128 /* tokens of a head that an error is relative to */
#define PLACES 6   /* compared with fp64 in every sample */
#define SHARP 3.0f /* queries and keys are in +- this */

/* What one side has made, in the host's memory. */
struct made {
    float *out, *dqkv, *lse;
};

struct run {
    const struct attention_pair *pair;
    struct attention shape; /* slopes lie on the device */
    float *slopes;          /* the host's; NULL: none */
    float *qkv, *dout;      /* the host's, of numbers that the dtype has */
    int64_t qkv_count, out_count, lse_count;
    struct arena device, host;
    void *device_qkv, *device_out, *device_dout, *device_dqkv;
    float *device_lse;
    struct made made[2];
};

static float rounded(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float *numbers(const struct run *run, int64_t count, uint64_t stream,
                      float size)
{
    float *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; x != NULL && i < count; i++) {
        double unit =
            (double)(rng_u64(23, stream, (uint64_t)i) >> 11) * 0x1p-53;
        x[i] = (float)(2 * unit - 1) * size;
        if (run->pair->dtype == DTYPE_BF16)
            x[i] = rounded(x[i]);
    }
    return x;
}

/* Values are not sharp. */
static void soften_values(const struct run *run)
{
    const struct attention *s = &run->shape;
    int64_t width = (s->heads + 2 * s->kv_heads) * s->head_dim;
    int64_t values = (s->heads + s->kv_heads) * s->head_dim;
    for (int64_t i = 0; i < run->qkv_count; i++)
        if (i % width >= values)
            run->qkv[i] *= 0.25f; /* exact */
}

/* --- the device --- */

static enum err send(const struct run *run, const float *from, int64_t count,
                     void *tensor)
{
    const struct attention_pair *pair = run->pair;
    uint16_t *halves = (void *)run->host.base;
    memcpy(run->host.base, from, (size_t)count * sizeof *from);
    if (pair->dtype == DTYPE_BF16)
        for (int64_t i = 0; i < count; i++) {
            uint32_t bits;
            memcpy(&bits, from + i, sizeof bits);
            halves[i] = (uint16_t)(bits >> 16);
        }
    TRY(pair->memory->upload(pair->ctx.stream,
                             (size_t)count * dtype_bytes(pair->dtype),
                             run->host.base, tensor));
    return pair->memory->wait(pair->ctx.stream);
}

static enum err fetch(const struct run *run, const void *tensor, int64_t count,
                      enum dtype dtype, float **out)
{
    const struct attention_pair *pair = run->pair;
    const uint16_t *halves = (const void *)run->host.base;
    TRY(new_room(out, (size_t)count));
    TRY(pair->memory->download(pair->ctx.stream,
                               (size_t)count * dtype_bytes(dtype), tensor,
                               run->host.base));
    TRY(pair->memory->wait(pair->ctx.stream));
    if (dtype == DTYPE_F32)
        memcpy(*out, run->host.base, (size_t)count * sizeof **out);
    for (int64_t i = 0; dtype == DTYPE_BF16 && i < count; i++) {
        uint32_t bits = (uint32_t)halves[i] << 16;
        memcpy(*out + i, &bits, sizeof bits);
    }
    return ERR_OK;
}

static enum err make_room(struct run *run)
{
    const struct attention_pair *pair = run->pair;
    size_t element = dtype_bytes(pair->dtype);
    size_t qkv = (size_t)run->qkv_count * element;
    size_t out = (size_t)run->out_count * element;
    size_t rest = (size_t)(run->lse_count + run->shape.heads) * sizeof(float);
    TRY(pair->memory->tensors_create(2 * qkv + 2 * out + rest + 4096,
                                     &run->device));
    TRY(pair->memory->host_create((size_t)run->qkv_count * sizeof(float),
                                  &run->host));
    run->device_qkv = arena_take(&run->device, qkv);
    run->device_dqkv = arena_take(&run->device, qkv);
    run->device_out = arena_take(&run->device, out);
    run->device_dout = arena_take(&run->device, out);
    run->device_lse =
        arena_take(&run->device, (size_t)run->lse_count * sizeof(float));
    TRY(send(run, run->qkv, run->qkv_count, run->device_qkv));
    TRY(send(run, run->dout, run->out_count, run->device_dout));
    if (run->slopes != NULL) {
        size_t bytes = (size_t)run->shape.heads * sizeof(float);
        float *slopes = arena_take(&run->device, bytes);
        memcpy(run->host.base, run->slopes, bytes);
        TRY(pair->memory->upload(pair->ctx.stream, bytes, run->host.base,
                                 slopes));
        TRY(pair->memory->wait(pair->ctx.stream));
        run->shape.alibi_slopes = slopes;
    }
    return ERR_OK;
}

static enum err compute(struct run *run, int i)
{
    const struct attention_pair *pair = run->pair;
    const struct attention_side *side = &pair->sides[i];
    struct made *made = &run->made[i];
    TRY(side->forward(side->self, &pair->ctx, pair->dtype, &run->shape,
                      run->device_qkv, run->device_out, run->device_lse));
    TRY(side->backward(side->self, &pair->ctx, pair->dtype, &run->shape,
                       run->device_qkv, run->device_out, run->device_lse,
                       run->device_dout, run->device_dqkv));
    TRY(fetch(run, run->device_out, run->out_count, pair->dtype, &made->out));
    TRY(fetch(run, run->device_dqkv, run->qkv_count, pair->dtype, &made->dqkv));
    return fetch(run, run->device_lse, run->lse_count, DTYPE_F32, &made->lse);
}

/* --- where things lie --- */

/* The row of a token's part: of query head h, or of its key or value. */
static int64_t place(const struct attention *s, int64_t b, int64_t t,
                     enum attention_part part, int64_t h)
{
    int64_t kv = h / (s->heads / s->kv_heads);
    int64_t slot = part == ATTENTION_DQ   ? h
                   : part == ATTENTION_DK ? s->heads + kv
                                          : s->heads + s->kv_heads + kv;
    if (part == ATTENTION_OUT)
        return ((b * s->seq + t) * s->heads + h) * s->head_dim;
    return ((b * s->seq + t) * (s->heads + 2 * s->kv_heads) + slot) *
           s->head_dim;
}

static const float *row_of(const struct made *made, const struct attention *s,
                           int64_t b, int64_t t, enum attention_part part,
                           int64_t h)
{
    return (part == ATTENTION_OUT ? made->out : made->dqkv) +
           place(s, b, t, part, h);
}

/* The largest element of a part near token t, of the first side. */
static double largest_near(const struct run *run, int64_t b, int64_t t,
                           enum attention_part part, int64_t h)
{
    const struct attention *s = &run->shape;
    double largest = 0;
    int64_t begin = t / NEARBY * NEARBY;
    int64_t end = begin + NEARBY < s->seq ? begin + NEARBY : s->seq;
    for (int64_t i = begin; i < end; i++) {
        const float *row = row_of(&run->made[0], s, b, i, part, h);
        for (int64_t d = 0; d < s->head_dim; d++)
            largest = fmax(largest, fabs((double)row[d]));
    }
    return largest;
}

/* NaN counts as infinitely wrong. */
static double worse(double worst, double error)
{
    return error >= 0 ? fmax(worst, error) : INFINITY;
}

/* --- one side and the other --- */

static double difference_near(const struct run *run, int64_t b, int64_t first,
                              enum attention_part part, int64_t h)
{
    const struct attention *s = &run->shape;
    double largest = largest_near(run, b, first, part, h), worst = 0;
    for (int64_t t = first; t < first + NEARBY && t < s->seq; t++) {
        const float *x = row_of(&run->made[0], s, b, t, part, h);
        const float *y = row_of(&run->made[1], s, b, t, part, h);
        for (int64_t d = 0; d < s->head_dim; d++)
            if (x[d] != y[d])
                worst =
                    worse(worst, fabs((double)x[d] - (double)y[d]) / largest);
    }
    return worst;
}

static void compare_sides(const struct run *run,
                          struct attention_errors *errors)
{
    const struct attention *s = &run->shape;
    for (int part = 0; part < ATTENTION_PARTS; part++) {
        int64_t heads = s->batch * s->heads;
        double worst = 0;
#pragma omp parallel for schedule(dynamic) reduction(max : worst)
        for (int64_t i = 0; i < heads; i++)
            for (int64_t t = 0; t < s->seq; t += NEARBY)
                worst = worse(worst, difference_near(run, i / s->heads, t,
                                                     (enum attention_part)part,
                                                     i % s->heads));
        errors->between[part] = worst;
    }
    for (int64_t i = 0; i < run->lse_count; i++)
        errors->lse = worse(errors->lse, fabs((double)run->made[0].lse[i] -
                                              (double)run->made[1].lse[i]));
}

/* --- fp64 --- */

static double dot(const float *x, const float *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)y[i];
    return sum;
}

static double score(const struct run *run, int64_t b, int64_t h, int64_t t,
                    int64_t j)
{
    const struct attention *s = &run->shape;
    double slope = run->slopes != NULL ? (double)run->slopes[h] : 0;
    return (double)s->scale * dot(run->qkv + place(s, b, t, ATTENTION_DQ, h),
                                  run->qkv + place(s, b, j, ATTENTION_DK, h),
                                  s->head_dim) +
           slope * (double)(j - t);
}

static void add(double factor, const float *x, double *sum, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += factor * (double)x[i];
}

/* Of one query: its out, and the gradient that it gets. p[seq] */
static void query_reference(const struct run *run, int64_t b, int64_t h,
                            int64_t t, double *p, double *out, double *dq)
{
    const struct attention *s = &run->shape;
    const float *dout = run->dout + place(s, b, t, ATTENTION_OUT, h);
    double largest = -INFINITY, sum = 0, delta = 0;
    for (int64_t j = 0; j <= t; j++) {
        p[j] = score(run, b, h, t, j);
        largest = fmax(largest, p[j]);
    }
    for (int64_t j = 0; j <= t; j++)
        sum += p[j] = exp(p[j] - largest);
    for (int64_t j = 0; j <= t; j++)
        add(p[j] / sum, run->qkv + place(s, b, j, ATTENTION_DV, h), out,
            s->head_dim);
    for (int64_t d = 0; d < s->head_dim; d++)
        delta += out[d] * (double)dout[d];
    for (int64_t j = 0; j <= t; j++) {
        double dp =
            dot(dout, run->qkv + place(s, b, j, ATTENTION_DV, h), s->head_dim);
        add(p[j] / sum * (dp - delta) * (double)s->scale,
            run->qkv + place(s, b, j, ATTENTION_DK, h), dq, s->head_dim);
    }
}

/* Of one key and its value: what all queries of its heads give them. The log
 * sums and the outs of those are the first side's, which others are compared
 * with everywhere. */
static void key_reference(const struct run *run, int64_t b, int64_t h,
                          int64_t j, double *dk, double *dv)
{
    const struct attention *s = &run->shape;
    int64_t group = s->heads / s->kv_heads;
    for (int64_t g = h / group * group; g < (h / group + 1) * group; g++)
        for (int64_t t = j; t < s->seq; t++) {
            const float *dout = run->dout + place(s, b, t, ATTENTION_OUT, g);
            double lse =
                (double)run->made[0].lse[(b * s->heads + g) * s->seq + t];
            double p = exp(score(run, b, g, t, j) - lse);
            double dp = dot(dout, run->qkv + place(s, b, j, ATTENTION_DV, g),
                            s->head_dim);
            double delta =
                dot(dout, row_of(&run->made[0], s, b, t, ATTENTION_OUT, g),
                    s->head_dim);
            add(p, dout, dv, s->head_dim);
            add(p * (dp - delta) * (double)s->scale,
                run->qkv + place(s, b, t, ATTENTION_DQ, g), dk, s->head_dim);
        }
}

static void compare_place(const struct run *run, int64_t b, int64_t h,
                          int64_t t, double *memory,
                          struct attention_errors *errors)
{
    const struct attention *s = &run->shape;
    double *rows[ATTENTION_PARTS];
    for (int part = 0; part < ATTENTION_PARTS; part++)
        rows[part] = memory + part * s->head_dim;
    memset(memory, 0, (size_t)(ATTENTION_PARTS * s->head_dim) * sizeof *memory);
    query_reference(run, b, h, t, memory + ATTENTION_PARTS * s->head_dim,
                    rows[ATTENTION_OUT], rows[ATTENTION_DQ]);
    key_reference(run, b, h, t, rows[ATTENTION_DK], rows[ATTENTION_DV]);
    for (int side = 0; side < 2; side++)
        for (int part = 0; part < ATTENTION_PARTS; part++) {
            enum attention_part p = (enum attention_part)part;
            double largest = largest_near(run, b, t, p, h);
            const float *got = row_of(&run->made[side], s, b, t, p, h);
            for (int64_t d = 0; d < s->head_dim; d++)
                errors->from[side][part] =
                    worse(errors->from[side][part],
                          fabs((double)got[d] - rows[part][d]) / largest);
        }
}

static enum err compare_places(const struct run *run,
                               struct attention_errors *errors)
{
    const struct attention *s = &run->shape;
    double *memory = NULL;
    TRY(new_room(&memory, (size_t)(s->seq + ATTENTION_PARTS * s->head_dim)));
    for (int64_t b = 0; b < s->batch; b++)
        for (int i = 0; i < PLACES; i++) {
            uint64_t word = rng_u64(29, (uint64_t)b, (uint64_t)i);
            int64_t h = (int64_t)(word % (uint64_t)s->heads);
            int64_t t = (int64_t)((word >> 20) % (uint64_t)s->seq);
            compare_place(run, b, h, i == 0 ? s->seq - 1 : t, memory, errors);
        }
    free(memory);
    return ERR_OK;
}

/* -----------------------------------------------------------------------------
 */

/* 2^(-8 i / n) for i = 1 .. n, n a power of two, as of a model's heads. */
static float *slopes_of(int64_t heads)
{
    float *slopes = malloc((size_t)heads * sizeof *slopes);
    int64_t n = 1;
    while (n < heads)
        n *= 2;
    for (int64_t h = 0; slopes != NULL && h < heads; h++) {
        int64_t i = n == heads  ? h + 1
                    : h < n / 2 ? 2 * (h + 1)
                                : 2 * (h - n / 2) + 1;
        slopes[h] = (float)exp2(-8.0 * (double)i / (double)n);
    }
    return slopes;
}

enum err attention_pair_run(const struct attention_pair *pair,
                            const struct attention *shape, bool alibi,
                            struct attention_errors *errors)
{
    enum err rc = ERR_OK;
    struct run run = { .pair = pair, .shape = *shape };
    int64_t tokens = shape->batch * shape->seq;
    run.qkv_count =
        tokens * (shape->heads + 2 * shape->kv_heads) * shape->head_dim;
    run.out_count = tokens * shape->heads * shape->head_dim;
    run.lse_count = tokens * shape->heads;
    *errors = (struct attention_errors){ .lse = 0 };
    run.qkv = numbers(&run, run.qkv_count, 1, SHARP);
    run.dout = numbers(&run, run.out_count, 2, 1);
    run.slopes = alibi ? slopes_of(shape->heads) : NULL;
    if (run.qkv == NULL || run.dout == NULL || (alibi && run.slopes == NULL))
        TRY_OUT(err_set(ERR_MEMORY, "out of memory"));
    soften_values(&run);
    TRY_OUT(make_room(&run));
    TRY_OUT(compute(&run, 0));
    TRY_OUT(compute(&run, 1));
    compare_sides(&run, errors);
    TRY_OUT(compare_places(&run, errors));
out:
    pair->memory->tensors_destroy(&run.device);
    pair->memory->host_destroy(&run.host);
    for (int i = 0; i < 2; i++) {
        free(run.made[i].out);
        free(run.made[i].dqkv);
        free(run.made[i].lse);
    }
    free(run.qkv);
    free(run.dout);
    free(run.slopes);
    return rc;
}
