/* Attention forward and backward as graphs of cuDNN operations. Our own kernels
 * are cuda_attention.cu; which of both runs is decided in
 * cuda_attention_choice.c.
 *
 * cuDNN is not asked for attention but for products, elementwise operations and
 * reductions, one after the other, on whole matrices of scores [batch, heads,
 * seq, seq]. None of these matrices is in memory: the engine that is found for
 * the graph recognises the pattern and computes all of it tile by tile in one
 * kernel. It recognises patterns and not meanings, so what looks idle, such as
 * the product of delta with one, is there to belong to a pattern.
 *
 * Forward, with x the scores, and -Inf where a key comes after its query:
 *
 *     x = scale q k^T + slope (column - row)
 *     m = max x, e = exp(x - m), l = sum e
 *     lse = m + log l, out = (e / l) v
 *
 * Backward has the probabilities again by lse:
 *
 *     delta = sum over a row of out * dout
 *     p = exp(x - lse), dv = p^T dout
 *     ds = scale p (dout v^T - delta)
 *     dk = ds^T q, dq = ds k
 *
 * Where several heads share keys, gradients of keys are made for each head of
 * queries and then added. */
#include "kernels/cuda/libraries/cuda_dnn_attention.h"

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/libraries/cuda_dnn_graph.h"
#include "src/base/new.h"

/* Identifiers of the tensors in memory. */
enum {
    ID_Q = 1,
    ID_K,
    ID_V,
    ID_OUT,
    ID_LSE,
    ID_DOUT,
    ID_DQ,
    ID_DK,
    ID_DV,
    ID_DELTA,
    ID_SLOPES,
    ID_SCALE,
    ID_MASKED,
    ID_ONE,
    ID_COUNT
};

#define ALIGNMENT ((size_t)256)

struct cuda_dnn_attention {
    struct cuda_dnn_graph *graph;
    const struct cuda_dnn_library *library;
    bool backward;
    struct cuda_dnn_attention_cut cut;
    size_t delta_bytes; /* [sequences, heads, seq] of a part in fp32, before the
                           workspace */
};

/* What a graph is made of. */
struct parts {
    struct cuda_dnn_graph *graph;
    const struct attention *s; /* a part */
    int64_t width;             /* heads of all slices in a row of out, */
    int64_t packed;            /* ... and of qkv */
    int q, k_turned;           /* [.., seq, d] and [.., d, seq] */
    int row, column;           /* places of scores */
    int scale, masked;         /* numbers; masked is -Inf */
};

static struct cuda_dnn_shape scores_shape(const struct attention *s)
{
    return cuda_dnn_packed(s->batch, s->heads, s->seq, s->seq);
}

static struct cuda_dnn_shape rows_shape(const struct attention *s)
{
    return cuda_dnn_packed(s->batch, s->heads, s->seq, 1);
}

/* [batch, heads, seq, head_dim] within rows of `width` heads: queries, keys and
 * values lie side by side in a token's row, and what cuDNN takes for a tensor
 * is a choice of strides. */
static struct cuda_dnn_shape heads_shape(const struct attention *s,
                                         int64_t heads, int64_t width)
{
    int64_t d = s->head_dim;
    return (struct cuda_dnn_shape){ { s->batch, heads, s->seq, d },
                                    { s->seq * width * d, d, width * d, 1 } };
}

/* The transpose, for which nothing is moved. */
static struct cuda_dnn_shape turned(struct cuda_dnn_shape shape)
{
    struct cuda_dnn_shape other = shape;
    other.dims[2] = shape.dims[3];
    other.dims[3] = shape.dims[2];
    other.strides[2] = shape.strides[3];
    other.strides[3] = shape.strides[2];
    return other;
}

static int inner(struct parts *p, cudnnDataType_t type,
                 struct cuda_dnn_shape shape)
{
    return cuda_dnn_tensor(p->graph, type, &shape, 0);
}

static int in_memory(struct parts *p, cudnnDataType_t type,
                     struct cuda_dnn_shape shape, int64_t id)
{
    return cuda_dnn_tensor(p->graph, type, &shape, id);
}

static int like_scores(struct parts *p)
{
    return inner(p, CUDNN_DATA_FLOAT, scores_shape(p->s));
}

static int like_rows(struct parts *p)
{
    return inner(p, CUDNN_DATA_FLOAT, rows_shape(p->s));
}

static int pointwise(struct parts *p, cudnnPointwiseMode_t mode, int x, int b,
                     int y)
{
    cuda_dnn_pointwise(p->graph, mode, x, b, y);
    return y;
}

/* scale q k^T, with ALiBi; the places of scores besides. */
static int scores(struct parts *p)
{
    const struct attention *s = p->s;
    struct cuda_dnn_shape keys = heads_shape(s, s->kv_heads, p->packed);
    int product = like_scores(p), x = like_scores(p);
    p->q = in_memory(p, CUDNN_DATA_BFLOAT16,
                     heads_shape(s, s->heads, p->packed), ID_Q);
    p->k_turned = in_memory(p, CUDNN_DATA_BFLOAT16, turned(keys), ID_K);
    cuda_dnn_matmul(p->graph, p->q, p->k_turned, product);
    p->scale = cuda_dnn_scalar(p->graph, ID_SCALE);
    pointwise(p, CUDNN_POINTWISE_MUL, product, p->scale, x);
    p->row = inner(p, CUDNN_DATA_INT32, scores_shape(s));
    p->column = inner(p, CUDNN_DATA_INT32, scores_shape(s));
    cuda_dnn_index(p->graph, 2, x, p->row);
    cuda_dnn_index(p->graph, 3, x, p->column);
    if (s->alibi_slopes == NULL)
        return x;
    int distance = inner(p, CUDNN_DATA_INT32, scores_shape(s));
    int slopes = in_memory(p, CUDNN_DATA_FLOAT,
                           cuda_dnn_packed(1, s->heads, 1, 1), ID_SLOPES);
    pointwise(p, CUDNN_POINTWISE_SUB, p->column, p->row, distance);
    int bias =
        pointwise(p, CUDNN_POINTWISE_MUL, distance, slopes, like_scores(p));
    return pointwise(p, CUDNN_POINTWISE_ADD, x, bias, like_scores(p));
}

/* -Inf where the key comes after the query, by the elements' own places, which
 * the kernel knows: a mask is no tensor. */
static int causal(struct parts *p, int x)
{
    int seen = inner(p, CUDNN_DATA_BOOLEAN, scores_shape(p->s));
    int y = like_scores(p);
    p->masked = cuda_dnn_scalar(p->graph, ID_MASKED);
    pointwise(p, CUDNN_POINTWISE_CMP_GE, p->row, p->column, seen);
    cuda_dnn_select(p->graph, x, p->masked, seen, y);
    return y;
}

static void build_forward(struct parts *p)
{
    const struct attention *s = p->s;
    int x = causal(p, scores(p));
    int top = like_rows(p), sum = like_rows(p);
    int probabilities = inner(p, CUDNN_DATA_BFLOAT16, scores_shape(s));
    int lse = in_memory(p, CUDNN_DATA_FLOAT, rows_shape(s), ID_LSE);
    cuda_dnn_reduce(p->graph, CUDNN_REDUCE_TENSOR_MAX, x, top);
    int below = pointwise(p, CUDNN_POINTWISE_SUB, x, top, like_scores(p));
    int e = pointwise(p, CUDNN_POINTWISE_EXP, below, -1, like_scores(p));
    cuda_dnn_reduce(p->graph, CUDNN_REDUCE_TENSOR_ADD, e, sum);
    int log = pointwise(p, CUDNN_POINTWISE_LOG, sum, -1, like_rows(p));
    pointwise(p, CUDNN_POINTWISE_ADD, top, log, lse);
    pointwise(p, CUDNN_POINTWISE_DIV, e, sum, probabilities);
    cuda_dnn_matmul(p->graph, probabilities,
                    in_memory(p, CUDNN_DATA_BFLOAT16,
                              heads_shape(s, s->kv_heads, p->packed), ID_V),
                    in_memory(p, CUDNN_DATA_BFLOAT16,
                              heads_shape(s, s->heads, p->width), ID_OUT));
}

/* delta = rowsum(dout * out), in memory of its own. */
static int build_delta(struct parts *p, int dout)
{
    const struct attention *s = p->s;
    struct cuda_dnn_shape shape = heads_shape(s, s->heads, p->width);
    int out = in_memory(p, CUDNN_DATA_BFLOAT16, shape, ID_OUT);
    int delta = in_memory(p, CUDNN_DATA_FLOAT, rows_shape(s), ID_DELTA);
    int product =
        inner(p, CUDNN_DATA_FLOAT,
              cuda_dnn_packed(s->batch, s->heads, s->seq, s->head_dim));
    int sum = like_rows(p);
    pointwise(p, CUDNN_POINTWISE_MUL, dout, out, product);
    cuda_dnn_reduce(p->graph, CUDNN_REDUCE_TENSOR_ADD, product, sum);
    return pointwise(p, CUDNN_POINTWISE_MUL, sum,
                     cuda_dnn_scalar(p->graph, ID_ONE), delta);
}

/* x, rounded to bf16, by keys and queries: tensor cores multiply in bf16, as our
 * own kernels do. */
static int turn(struct parts *p, int x)
{
    int y = inner(p, CUDNN_DATA_BFLOAT16, turned(scores_shape(p->s)));
    cuda_dnn_transpose(p->graph, x, y);
    return y;
}

/* The gradient of keys or values: queries' heads of a group are added. */
static void build_key_gradient(struct parts *p, int scores_turned, int rows,
                               int64_t id)
{
    const struct attention *s = p->s;
    int to = in_memory(p, CUDNN_DATA_BFLOAT16,
                       heads_shape(s, s->kv_heads, p->packed), id);
    if (s->heads == s->kv_heads) {
        cuda_dnn_matmul(p->graph, scores_turned, rows, to);
        return;
    }
    int each = inner(p, CUDNN_DATA_BFLOAT16,
                     cuda_dnn_packed(s->batch, s->heads, s->seq, s->head_dim));
    cuda_dnn_matmul(p->graph, scores_turned, rows, each);
    cuda_dnn_reduce(p->graph, CUDNN_REDUCE_TENSOR_ADD, each, to);
}

static void build_backward(struct parts *p)
{
    const struct attention *s = p->s;
    struct cuda_dnn_shape packed = heads_shape(s, s->kv_heads, p->packed);
    int dout = in_memory(p, CUDNN_DATA_BFLOAT16,
                         heads_shape(s, s->heads, p->width), ID_DOUT);
    int delta = build_delta(p, dout);
    int lse = in_memory(p, CUDNN_DATA_FLOAT, rows_shape(s), ID_LSE);
    int x = scores(p);
    int below = pointwise(p, CUDNN_POINTWISE_SUB, x, lse, like_scores(p));
    int probabilities =
        pointwise(p, CUDNN_POINTWISE_EXP, causal(p, below), -1, like_scores(p));
    build_key_gradient(p, turn(p, probabilities), dout, ID_DV);
    int v_turned = in_memory(p, CUDNN_DATA_BFLOAT16, turned(packed), ID_V);
    int dp = like_scores(p);
    cuda_dnn_matmul(p->graph, dout, v_turned, dp);
    dp = pointwise(p, CUDNN_POINTWISE_SUB, dp, delta, like_scores(p));
    dp = pointwise(p, CUDNN_POINTWISE_MUL, dp, probabilities, like_scores(p));
    int ds = pointwise(p, CUDNN_POINTWISE_MUL, dp, p->scale,
                       inner(p, CUDNN_DATA_BFLOAT16, scores_shape(s)));
    build_key_gradient(p, turn(p, ds), p->q, ID_DK);
    int k = inner(p, CUDNN_DATA_BFLOAT16, packed);
    cuda_dnn_transpose(p->graph, p->k_turned, k);
    cuda_dnn_matmul(p->graph, ds, k,
                    in_memory(p, CUDNN_DATA_BFLOAT16,
                              heads_shape(s, s->heads, p->packed), ID_DQ));
}

bool cuda_dnn_attention_same(const struct attention *a,
                             const struct attention *b)
{
    _Static_assert(sizeof *a == 104, "who adds a member compares it below");
#if __has_builtin(__builtin_clear_padding)
    struct attention x = *a, y = *b;
    __builtin_clear_padding(&x);
    __builtin_clear_padding(&y);
    return memcmp(&x, &y, sizeof x) == 0;
#else /* gaps may differ */
    return memcmp(a, b, offsetof(struct attention, scale)) == 0 &&
           a->scale == b->scale && a->alibi_slopes == b->alibi_slopes &&
           a->sequence_ids == b->sequence_ids && a->dropout == b->dropout &&
           memcmp(&a->random, &b->random, sizeof a->random) == 0;
#endif
}

bool cuda_dnn_attention_fits(enum dtype dtype, const struct attention *shape)
{
    const struct attention told = {
        .batch = shape->batch,
        .seq = shape->seq,
        .heads = shape->heads,
        .kv_heads = shape->kv_heads,
        .head_dim = shape->head_dim,
        .scale = shape->scale,
        .alibi_slopes = shape->alibi_slopes,
        .random = shape->random, /* dropout's, of which there is none */
    };
    return dtype == DTYPE_BF16 && cuda_dnn_attention_same(shape, &told) &&
           shape->head_dim % 8 == 0 && shape->head_dim <= 128;
}

/* --- plans --- */

/* A plan is made for a part, with strides of the whole: where a part begins is a
 * matter of the pointers that are given. */
static struct attention part_of(const struct attention *shape,
                                struct cuda_dnn_attention_cut cut)
{
    struct attention part = *shape;
    part.batch = cut.sequences;
    part.kv_heads /= shape->heads / cut.heads;
    part.heads = cut.heads;
    return part;
}

enum err cuda_dnn_attention_create(const struct cuda_dnn_library *library,
                                   cudnnHandle_t handle, const char *device,
                                   const struct attention *shape, bool backward,
                                   struct cuda_dnn_attention_cut cut,
                                   char *engine,
                                   struct cuda_dnn_attention **out)
{
    enum err rc = ERR_OK;
    struct cuda_dnn_attention *attention = NULL;
    assert(cuda_dnn_attention_cut_is(shape, cut));
    struct attention part = part_of(shape, cut);
    struct parts parts = { .s = &part,
                           .width = shape->heads,
                           .packed = shape->heads + 2 * shape->kv_heads };
    size_t rows = (size_t)(part.batch * part.heads * part.seq);
    *out = NULL;
    TRY(new_zeroed(&attention, 1));
    attention->library = library;
    attention->backward = backward;
    attention->cut = cut;
    if (backward)
        attention->delta_bytes =
            (rows * sizeof(float) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    TRY_OUT(cuda_dnn_graph_create(library, &attention->graph));
    parts.graph = attention->graph;
    if (backward)
        build_backward(&parts);
    else
        build_forward(&parts);
    TRY_OUT(cuda_dnn_graph_plan(attention->graph, handle, device, engine));
out:
    return new_or_none(rc, attention, out, cuda_dnn_attention_destroy);
}

void cuda_dnn_attention_destroy(struct cuda_dnn_attention *attention)
{
    if (attention == NULL)
        return;
    cuda_dnn_graph_destroy(attention->graph);
    free(attention);
}

size_t cuda_dnn_attention_scratch(const struct cuda_dnn_attention *attention)
{
    return attention->delta_bytes + cuda_dnn_graph_workspace(attention->graph);
}

/* --- running --- */

/* What cuDNN is given: memory by id. */
struct operands {
    int count;
    int64_t ids[ID_COUNT];
    void *pointers[ID_COUNT];
    float scale, masked, one;
};

/* Tensors of the table. */
struct tensors {
    const void *qkv, *out, *dout;
    const float *lse;
    void *dqkv;
};

/* Where a part begins: heads are of queries and of keys. */
struct begin {
    int64_t sequence, head, kv_head;
};

static void give(struct operands *o, int64_t id, const void *memory)
{
    assert(o->count < ID_COUNT && id > 0 && id < ID_COUNT);
    o->ids[o->count] = id;
    o->pointers[o->count++] = (void *)(uintptr_t)memory;
}

/* The head of the first token of a sequence, in rows of `width` heads. */
static const char *head(const struct attention *s, const void *tensor,
                        int64_t width, int64_t sequence, int64_t number)
{
    return (const char *)tensor +
           2 * (sequence * s->seq * width + number) * s->head_dim;
}

static void give_packed(struct operands *o, const struct attention *s,
                        struct begin at, const void *packed, int64_t q,
                        int64_t k, int64_t v)
{
    int64_t first_v = s->heads + s->kv_heads, width = first_v + s->kv_heads;
    give(o, q, head(s, packed, width, at.sequence, at.head));
    give(o, k, head(s, packed, width, at.sequence, s->heads + at.kv_head));
    give(o, v, head(s, packed, width, at.sequence, first_v + at.kv_head));
}

static void give_part(struct operands *o, const struct attention *s,
                      struct begin at, const struct tensors *t)
{
    give_packed(o, s, at, t->qkv, ID_Q, ID_K, ID_V);
    o->scale = s->scale;
    o->masked = -INFINITY;
    o->one = 1.0f;
    give(o, ID_SCALE, &o->scale);
    give(o, ID_MASKED, &o->masked);
    if (s->alibi_slopes != NULL)
        give(o, ID_SLOPES, s->alibi_slopes + at.head);
    give(o, ID_OUT, head(s, t->out, s->heads, at.sequence, at.head));
    give(o, ID_LSE, t->lse + (at.sequence * s->heads + at.head) * s->seq);
}

static enum err run(const struct cuda_dnn_attention *attention,
                    cudnnHandle_t handle, const struct kernel_ctx *ctx,
                    const struct attention *s, struct begin at,
                    const struct tensors *t)
{
    struct operands o = { 0 };
    give_part(&o, s, at, t);
    if (attention->backward) {
        give(&o, ID_DOUT, head(s, t->dout, s->heads, at.sequence, at.head));
        give(&o, ID_DELTA, ctx->scratch);
        give(&o, ID_ONE, &o.one);
        give_packed(&o, s, at, t->dqkv, ID_DQ, ID_DK, ID_DV);
    }
    return cuda_dnn_graph_run(attention->graph, handle, o.count, o.ids,
                              o.pointers,
                              (char *)ctx->scratch + attention->delta_bytes);
}

static enum err run_parts(const struct cuda_dnn_attention *attention,
                          cudnnHandle_t handle, const struct kernel_ctx *ctx,
                          const struct attention *s, const struct tensors *t)
{
    const struct cuda_dnn_library *library = attention->library;
    struct attention part = part_of(s, attention->cut);
    struct begin at = { 0 };
    if (cuda_dnn_attention_scratch(attention) > ctx->scratch_bytes)
        return err_set(ERR_INTERNAL,
                       "cuDNN's attention needs %zu bytes of scratch, there "
                       "are %zu",
                       cuda_dnn_attention_scratch(attention),
                       ctx->scratch_bytes);
    TRY(cuda_dnn_library_error(library,
                               library->set_stream(handle, ctx->stream),
                               "setting the stream"));
    for (; at.sequence < s->batch; at.sequence += part.batch)
        for (at.head = at.kv_head = 0; at.head < s->heads;
             at.head += part.heads, at.kv_head += part.kv_heads)
            TRY(run(attention, handle, ctx, s, at, t));
    return ERR_OK;
}

enum err cuda_dnn_attention_forward(const struct cuda_dnn_attention *attention,
                                    cudnnHandle_t handle,
                                    const struct kernel_ctx *ctx,
                                    const struct attention *shape,
                                    const void *qkv, void *out, float *lse)
{
    const struct tensors t = { .qkv = qkv, .out = out, .lse = lse };
    assert(!attention->backward);
    return run_parts(attention, handle, ctx, shape, &t);
}

enum err cuda_dnn_attention_backward(const struct cuda_dnn_attention *attention,
                                     cudnnHandle_t handle,
                                     const struct kernel_ctx *ctx,
                                     const struct attention *shape,
                                     const void *qkv, const void *out,
                                     const float *lse, const void *dout,
                                     void *dqkv)
{
    const struct tensors t = { qkv, out, dout, lse, dqkv };
    assert(attention->backward);
    return run_parts(attention, handle, ctx, shape, &t);
}
