/* Ops that memory bounds: bytes that must move over time, beside a copy. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/gpu/bench_device.h"

#define EXPERTS 8
#define TOP_K 2
#define TENSORS 4

struct work {
    struct bench *b;
    int64_t n, d;
    void *t[TENSORS];  /* n * d fp32 numbers each */
    float *stats[2];   /* n */
    float *vectors[4]; /* d */
    int32_t *ids;      /* n, below vocab */
    int32_t *chosen;   /* n * TOP_K, and of route_sort: */
    int32_t *place, *source;
    int64_t *offsets;
    void *dwte; /* vocab * d fp32 */
    int64_t vocab;
    double *sums;
};

/* A call of an op of the table. Names that a call can use: c, type, n, d, all
 * (elements), t, w. */
#define RUN(name, op, ...)                                                     \
    static enum err run_##name(void *argument)                                 \
    {                                                                          \
        struct work *w = argument;                                             \
        const struct kernels *table = w->b->table;                             \
        const struct kernel_ctx *c = &w->b->ctx;                               \
        enum dtype type = w->b->dtype;                                         \
        int64_t n = w->n, d = w->d, all = n * d;                               \
        void **t = w->t;                                                       \
        (void)type, (void)d, (void)all, (void)t;                               \
        return table->op == NULL ? bench_lacks(#op) : table->op(__VA_ARGS__);  \
    }

#define NORM                                                                   \
    &(struct norm)                                                             \
    {                                                                          \
        .kind = NORM_LAYER, .n = n, .groups = 1, .d = d, .stride = d,          \
        .shared = true, .eps = 1e-5f                                           \
    }
#define ROUTE                                                                  \
    &(struct route)                                                            \
    {                                                                          \
        .n = n, .experts = EXPERTS, .top_k = TOP_K                             \
    }
#define PLACE                                                                  \
    &(struct random_place)                                                     \
    {                                                                          \
        .seed = 17, .stream = 1                                                \
    }
#define ADAMW                                                                  \
    &(struct adamw)                                                            \
    {                                                                          \
        .lr = 1e-3f, .grad_scale = 1, .beta1 = 0.9f, .beta2 = 0.95f,           \
        .eps = 1e-8f, .correction1 = 0.1f, .correction2 = 0.05f                \
    }
#define LION                                                                   \
    &(struct lion)                                                             \
    {                                                                          \
        .lr = 1e-3f, .grad_scale = 1, .beta1 = 0.9f, .beta2 = 0.95f            \
    }
#define MOMENTS                                                                \
    (float *[])                                                                \
    {                                                                          \
        t[2], t[3]                                                             \
    }
#define SAMPLES 16

RUN(norm_forward, norm_forward, c, type, NORM, t[0], w->vectors[0],
    w->vectors[1], t[1], w->stats[0], w->stats[1])
RUN(add_norm_forward, add_norm_forward, c, type, NORM, t[0], 1, t[1], t[2],
    w->vectors[0], w->vectors[1], t[3], w->stats[0], w->stats[1])
RUN(norm_backward, norm_backward, c, type, NORM, t[0], t[1], w->vectors[0],
    w->stats[0], w->stats[1], true, t[2], w->vectors[2], w->vectors[3])
RUN(gelu_forward, activation_forward, c, type, ACTIVATION_GELU, all, t[0], t[1])
RUN(gelu_backward, activation_backward, c, type, ACTIVATION_GELU, all, t[0],
    t[1], t[2])
RUN(silu_forward, activation_forward, c, type, ACTIVATION_SILU, all, t[0], t[1])
RUN(glu_forward, glu_forward, c, type, ACTIVATION_SILU, n, d, d, t[0], t[1],
    t[2])
RUN(glu_backward, glu_backward, c, type, ACTIVATION_SILU, n, d, d, t[0], t[1],
    t[2], t[0], t[1])
RUN(clip_forward, clip_forward, c, type, all, 1, t[0])
RUN(clip_backward, clip_backward, c, type, all, 1, t[0], t[1])
RUN(rope, rope, c, type, n, n / SAMPLES, d * w->b->shrink / 128,
    d * w->b->shrink / 128, 128 / w->b->shrink, t[1], false, t[0])
RUN(dropout, dropout, c, type, SAMPLES, all / SAMPLES, 0.1f, PLACE, 1, t[0],
    t[1])
RUN(jitter, jitter, c, type, SAMPLES, all / SAMPLES, 0.1f, PLACE, t[0], t[1])
RUN(bias_backward, bias_backward, c, type, n, d, t[0], w->vectors[0])
RUN(accumulate, accumulate, c, type, all, t[0], t[1])
RUN(add, add, c, type, all, t[0], 0.5f, t[1], t[2])
RUN(zero, zero, c, type, all, t[3])
RUN(convert, convert, c, all, DTYPE_F32, t[0], DTYPE_BF16, t[1])
RUN(sum, sum, c, all, t[0], w->sums)
RUN(chunk_sum_squares, chunk_sum_squares, c, DTYPE_F32,
    all / KERNEL_CHUNK * KERNEL_CHUNK, t[0], w->sums)
RUN(pack_bf16, pack, c, DTYPE_F32, PACKING_BF16, n, d, t[0], t[1])
RUN(unpack_bf16, unpack, c, DTYPE_F32, PACKING_BF16, n, d, t[1], t[0])
RUN(pack_int8, pack, c, type, PACKING_INT8, n, d, t[0], t[1])
RUN(unpack_int8, unpack, c, type, PACKING_INT8, n, d, t[1], t[0])
RUN(embedding_forward, embedding_forward, c, type, n, n / SAMPLES, d, w->ids,
    w->dwte, NULL, t[0])
RUN(embedding_backward, embedding_backward, c, type, n, n / SAMPLES, d, w->ids,
    t[0], w->dwte, NULL)
RUN(cross_entropy, cross_entropy, c, type, n, d, 1, &(struct target){ 0 }, t[0],
    w->ids, true, w->stats[0])
RUN(route_forward, route_forward, c, ROUTE, t[0], w->chosen, t[1])
RUN(route_sort, route_sort, c, ROUTE, w->chosen, w->offsets, w->place,
    w->source)
RUN(expert_gather, expert_gather, c, type, ROUTE, d, w->source, t[0], t[1])
RUN(expert_combine, expert_combine, c, type, ROUTE, d, w->place, w->stats[0],
    t[0], t[1])
RUN(expert_weigh, expert_weigh, c, type, ROUTE, d, w->source, w->stats[0], t[0],
    t[1], w->stats[1])
RUN(adamw, adamw, c, type, all, ADAMW, t[0], t[1], MOMENTS)
RUN(adamw_f32, adamw, c, DTYPE_F32, all, ADAMW, t[0], t[1], MOMENTS)
RUN(lion, lion, c, type, all, LION, t[0], t[1], MOMENTS)

/* Per element of n * d: tensors of the measured type, and of fp32, that must be
 * read or written. */
struct op {
    const char *name;
    enum err (*run)(void *);
    double typed, wide, goal;
};

static const struct op rows_ops[] = {
    { "norm_forward", run_norm_forward, 2, 0, 0.85 },
    { "add_norm_forward", run_add_norm_forward, 4, 0, 0.85 },
    { "norm_backward +=", run_norm_backward, 4, 0, 0.85 },
    { "clip_forward", run_clip_forward, 2, 0, 0.85 },
    { "clip_backward", run_clip_backward, 3, 0, 0.85 },
    { "rope", run_rope, 2, 0, 0.85 },
    { "dropout", run_dropout, 2, 0, 0.85 },
    { "jitter", run_jitter, 2, 0, 0.85 },
    { "bias_backward", run_bias_backward, 1, 0, 0.85 },
    { "accumulate", run_accumulate, 3, 0, 0.85 },
    { "add", run_add, 3, 0, 0.85 },
    { "zero", run_zero, 1, 0, 0.85 },
    { "convert from f32", run_convert, 1, 1, 0.85 },
    { "sum", run_sum, 0, 1, 0.85 },
    { "chunk_sum_squares f32", run_chunk_sum_squares, 0, 1, 0.85 },
    { "pack bf16", run_pack_bf16, 0, 1.5, 0.85 },
    { "unpack bf16", run_unpack_bf16, 0, 1.5, 0.85 },
    { "pack int8", run_pack_int8, 1, 0.25, 0.75 },
    { "unpack int8", run_unpack_int8, 1, 0.25, 0.85 },
    { "embedding_forward", run_embedding_forward, 2, 0, 0.75 },
    { "embedding_backward", run_embedding_backward, 1, 2, 0.5 },
};

static const struct op wide_ops[] = {
    { "activation_forward gelu", run_gelu_forward, 2, 0, 0.85 },
    { "activation_backward gelu", run_gelu_backward, 3, 0, 0.85 },
    { "activation_forward silu", run_silu_forward, 2, 0, 0.85 },
    { "glu_forward", run_glu_forward, 3, 0, 0.85 },
    { "glu_backward", run_glu_backward, 5, 0, 0.85 },
};

/* Of n tokens whose TOP_K rows each make n * TOP_K of d. */
static const struct op expert_ops[] = {
    { "expert_gather", run_expert_gather, 2 * TOP_K, 0, 0.7 },
    { "expert_combine", run_expert_combine, TOP_K + 1, 0, 0.7 },
    { "expert_weigh", run_expert_weigh, 4 * TOP_K, 0, 0.7 },
};

static const struct op loss_op = { "cross_entropy", run_cross_entropy, 2, 0,
                                   0.7 };
static const struct op state_ops[] = {
    { "adamw", run_adamw, 1, 6, 0.9 },
    { "adamw f32 gradient", run_adamw_f32, 0, 7, 0.9 },
    { "lion", run_lion, 1, 4, 0.9 },
};

static void run_ops(struct work *w, const struct op *ops, size_t count)
{
    char shape[64];
    double size = (double)dtype_bytes(w->b->dtype);
    snprintf(shape, sizeof shape, "%lldx%lld", (long long)w->n,
             (long long)w->d);
    for (size_t i = 0; i < count; i++)
        bench_run(w->b, ops[i].name, shape, ops[i].run, w, BENCH_GBS,
                  (double)w->n * (double)w->d *
                      (size * ops[i].typed + 4 * ops[i].wide),
                  ops[i].goal);
}

#define RUN_OPS(w, ops) run_ops(w, ops, sizeof ops / sizeof *ops)

/* Tokens all over the vocabulary, two experts for each token. */
static enum err upload_ids(struct work *w)
{
    enum err rc = ERR_OK;
    size_t count = (size_t)w->n * TOP_K;
    int32_t *ids = malloc(2 * count * sizeof *ids);
    if (ids == NULL)
        return err_set(ERR_MEMORY, "no memory for %zu numbers", 2 * count);
    for (size_t i = 0; i < count; i++) {
        ids[i] = (int32_t)((i * 2654435761u >> 7) % (size_t)w->vocab);
        ids[count + i] =
            (int32_t)(((i / TOP_K * 40503u >> 4) + i % TOP_K) % EXPERTS);
    }
    TRY_OUT(bench_upload(w->b, (size_t)w->n * sizeof *ids, ids, w->ids));
    TRY_OUT(bench_upload(w->b, count * sizeof *ids, ids + count, w->chosen));
out:
    free(ids);
    return rc;
}

/* `rows` of the tensors for each of n tokens. */
static enum err prepare(struct work *w, struct bench *b, int64_t n, int64_t d,
                        int64_t rows)
{
    *w = (struct work){ .b = b, .n = n, .d = d, .vocab = 50368 / b->shrink };
    bench_begin(b);
    for (int i = 0; i < TENSORS; i++)
        w->t[i] = bench_take(b, n * rows * d, sizeof(float));
    for (int i = 0; i < 2; i++)
        w->stats[i] = bench_take(b, n * rows, sizeof(float));
    for (int i = 0; i < 4; i++)
        w->vectors[i] = bench_take(b, d, sizeof(float));
    w->ids = bench_take(b, n, sizeof(int32_t));
    w->chosen = bench_take(b, n * TOP_K, sizeof(int32_t));
    w->place = bench_take(b, n * TOP_K, sizeof(int32_t));
    w->source = bench_take(b, n * TOP_K, sizeof(int32_t));
    w->offsets = bench_take(b, EXPERTS + 1, sizeof(int64_t));
    w->sums = bench_take(b, n * d / KERNEL_CHUNK + 1, sizeof(double));
    return upload_ids(w);
}

static enum err run_experts(struct bench *b, int64_t d)
{
    struct work w;
    TRY(prepare(&w, b, b->tokens, d, TOP_K));
    enum err sorted = run_route_sort(&w);
    if (sorted != ERR_OK)
        bench_failed(b, "route_sort", "", sorted);
    else
        RUN_OPS(&w, expert_ops);
    w.d = EXPERTS;
    static const struct op route_ops[] = {
        { "route_forward", run_route_forward, 0, 2.5, 0 },
        { "route_sort", run_route_sort, 0, 0.75, 0 },
    };
    RUN_OPS(&w, route_ops);
    return ERR_OK;
}

enum err bench_memory_ops(struct bench *b)
{
    static const int64_t widths[] = { 768, 1024, 2048, 4096 };
    const int64_t parameters = ((int64_t)128 << 20) / b->shrink / b->shrink;
    struct work w;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        int64_t d = widths[i] / b->shrink;
        TRY(bench_fill(b));
        TRY(prepare(&w, b, b->tokens, d, 1));
        w.dwte = bench_take(b, w.vocab * d, sizeof(float));
        RUN_OPS(&w, rows_ops);
        TRY(prepare(&w, b, b->tokens, 4 * d, 1));
        RUN_OPS(&w, wide_ops);
    }
    TRY(run_experts(b, 2048 / b->shrink));
    TRY(prepare(&w, b, b->tokens / 4, 50368 / b->shrink, 1));
    run_ops(&w, &loss_op, 1);
    TRY(prepare(&w, b, parameters / 1024, 1024, 1));
    RUN_OPS(&w, state_ops);
    return ERR_OK;
}
