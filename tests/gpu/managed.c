/* A table whose ops run on the GPU and are done when they return. */
#include "tests/gpu/managed.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tests/gpu/managed_again.h"
#include "tests/tap.h"

static const struct kernels *inner;
static void *stream;
static struct kernel_ctx least; /* scratch of the smallest shapes */
static enum err start_rc;
static char start_text[512];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The context on the GPU's stream; says which operand is out of its reach.
 * Tests of ops that need no scratch on a CPU bring none: products on a GPU do
 * need some. */
static enum err begin(const char *op, bool there, const struct kernel_ctx *ctx,
                      const void *const *operands, size_t count,
                      struct kernel_ctx *on)
{
    *on = *ctx;
    on->stream = stream;
    if (ctx->scratch == NULL) {
        on->scratch = least.scratch;
        on->scratch_bytes = least.scratch_bytes;
    }
    if (!there)
        return err_set(ERR_UNSUPPORTED, "op %s: the table lacks it", op);
    if (ctx->scratch != NULL && !managed_holds(ctx->scratch))
        return err_set(ERR_USAGE, "op %s: its scratch is not of check_alloc()",
                       op);
    for (size_t i = 0; i < count; i++)
        if (operands[i] != NULL && !managed_holds(operands[i]))
            return err_set(ERR_USAGE,
                           "pointer %zu is not of check_alloc(), a GPU would "
                           "not reach it",
                           i);
    return ERR_OK;
}

void managed_failed(const char *op)
{
    tap_ok(false, "op %s: %s", op, err_text());
}

static enum err end(const char *op, enum err rc)
{
    enum err later = rc == ERR_OK ? managed_source.wait(stream) : ERR_OK;
    rc = rc == ERR_OK ? later : rc;
    if (rc != ERR_OK && rc != ERR_UNSUPPORTED)
        managed_source.failed(op);
    return rc;
}

#define WRAP(op, parameters, arguments, ...)                                   \
    static enum err wrap_##op parameters                                       \
    {                                                                          \
        struct kernel_ctx on;                                                  \
        const void *operands[] = { __VA_ARGS__ };                              \
        struct managed_again again;                                            \
        const size_t count = sizeof operands / sizeof *operands;               \
        enum err rc =                                                          \
            begin(#op, inner->op != NULL, ctx, operands, count, &on);          \
        if (rc != ERR_OK)                                                      \
            return end(#op, rc);                                               \
        managed_again_begin(&again, operands, count);                          \
        do                                                                     \
            rc = end(#op, inner->op arguments);                                \
        while (rc == ERR_OK && managed_again_next(&again, #op));               \
        managed_again_end(&again);                                             \
        return rc;                                                             \
    }

WRAP(gemm,
     (const struct kernel_ctx *ctx, enum dtype dtype, const struct gemm *gemm),
     (&on, dtype, gemm), gemm->a, gemm->b, gemm->c, gemm->bias)
WRAP(quantize,
     (const struct kernel_ctx *ctx, enum fp8 to, int64_t rows, int64_t cols,
      const void *x, const float *scale, void *y, void *across, float *largest),
     (&on, to, rows, cols, x, scale, y, across, largest), x, scale, y, across,
     largest)
WRAP(gemm_fp8, (const struct kernel_ctx *ctx, const struct gemm_fp8 *gemm),
     (&on, gemm), gemm->a, gemm->b, gemm->c, gemm->bias, gemm->unscale_a,
     gemm->unscale_b)
WRAP(embedding_forward,
     (const struct kernel_ctx *ctx, enum dtype dtype, int64_t n, int64_t seq,
      int64_t d, const int32_t *tokens, const void *wte, const void *wpe,
      void *out),
     (&on, dtype, n, seq, d, tokens, wte, wpe, out), tokens, wte, wpe, out)
WRAP(embedding_backward,
     (const struct kernel_ctx *ctx, enum dtype dtype, int64_t n, int64_t seq,
      int64_t d, const int32_t *tokens, const void *dout, void *dwte,
      void *dwpe),
     (&on, dtype, n, seq, d, tokens, dout, dwte, dwpe), tokens, dout, dwte,
     dwpe)
WRAP(norm_forward,
     (const struct kernel_ctx *ctx, enum dtype dtype, const struct norm *norm,
      const void *x, const void *gamma, const void *beta, void *y, float *mean,
      float *rstd),
     (&on, dtype, norm, x, gamma, beta, y, mean, rstd), x, gamma, beta, y, mean,
     rstd)
WRAP(add_norm_forward,
     (const struct kernel_ctx *ctx, enum dtype dtype, const struct norm *norm,
      const void *a, float scale, const void *b, void *x, const void *gamma,
      const void *beta, void *y, float *mean, float *rstd),
     (&on, dtype, norm, a, scale, b, x, gamma, beta, y, mean, rstd), a, b, x,
     gamma, beta, y, mean, rstd)
WRAP(norm_backward,
     (const struct kernel_ctx *ctx, enum dtype dtype, const struct norm *norm,
      const void *dy, const void *x, const void *gamma, const float *mean,
      const float *rstd, bool accumulate, void *dx, void *dgamma, void *dbeta),
     (&on, dtype, norm, dy, x, gamma, mean, rstd, accumulate, dx, dgamma,
      dbeta),
     dy, x, gamma, mean, rstd, dx, dgamma, dbeta)
WRAP(activation_forward,
     (const struct kernel_ctx *ctx, enum dtype dtype, enum activation act,
      int64_t n, const void *x, void *y),
     (&on, dtype, act, n, x, y), x, y)
WRAP(activation_backward,
     (const struct kernel_ctx *ctx, enum dtype dtype, enum activation act,
      int64_t n, const void *x, const void *dy, void *dx),
     (&on, dtype, act, n, x, dy, dx), x, dy, dx)
WRAP(glu_forward,
     (const struct kernel_ctx *ctx, enum dtype dtype, enum activation act,
      int64_t n, int64_t width, int64_t stride, const void *gate,
      const void *up, void *y),
     (&on, dtype, act, n, width, stride, gate, up, y), gate, up, y)
WRAP(glu_backward,
     (const struct kernel_ctx *ctx, enum dtype dtype, enum activation act,
      int64_t n, int64_t width, int64_t stride, const void *gate,
      const void *up, const void *dy, void *dgate, void *dup),
     (&on, dtype, act, n, width, stride, gate, up, dy, dgate, dup), gate, up,
     dy, dgate, dup)
WRAP(clip_forward,
     (const struct kernel_ctx *ctx, enum dtype dtype, int64_t n, float limit,
      void *x),
     (&on, dtype, n, limit, x), x)
WRAP(clip_backward,
     (const struct kernel_ctx *ctx, enum dtype dtype, int64_t n, float limit,
      const void *x, void *dx),
     (&on, dtype, n, limit, x, dx), x, dx)
WRAP(rope,
     (const struct kernel_ctx *ctx, enum dtype dtype, int64_t n, int64_t seq,
      int64_t heads, int64_t rotated, int64_t head_dim, const float *table,
      bool inverse, void *x),
     (&on, dtype, n, seq, heads, rotated, head_dim, table, inverse, x), table,
     x)
WRAP(dropout,
     (const struct kernel_ctx *ctx, enum dtype dtype, int64_t samples,
      int64_t elements, float p, const struct random_place *random, float scale,
      const void *x, void *y),
     (&on, dtype, samples, elements, p, random, scale, x, y), x, y)
WRAP(jitter,
     (const struct kernel_ctx *ctx, enum dtype dtype, int64_t samples,
      int64_t elements, float amount, const struct random_place *random,
      const void *x, void *y),
     (&on, dtype, samples, elements, amount, random, x, y), x, y)
WRAP(attention_forward,
     (const struct kernel_ctx *ctx, enum dtype dtype,
      const struct attention *shape, const void *qkv, void *out, float *lse),
     (&on, dtype, shape, qkv, out, lse), qkv, out, lse, shape->alibi_slopes,
     shape->sequence_ids)
WRAP(attention_backward,
     (const struct kernel_ctx *ctx, enum dtype dtype,
      const struct attention *shape, const void *qkv, const void *out,
      const float *lse, const void *dout, void *dqkv),
     (&on, dtype, shape, qkv, out, lse, dout, dqkv), qkv, out, lse, dout, dqkv,
     shape->alibi_slopes, shape->sequence_ids)
WRAP(attention_chunk_forward,
     (const struct kernel_ctx *ctx, enum dtype dtype,
      const struct attention_chunk *chunk, const void *q, const void *kv,
      bool first, void *out, float *lse),
     (&on, dtype, chunk, q, kv, first, out, lse), q, kv, out, lse,
     chunk->shape.alibi_slopes, chunk->shape.sequence_ids, chunk->key_ids)
WRAP(attention_chunk_backward,
     (const struct kernel_ctx *ctx, enum dtype dtype,
      const struct attention_chunk *chunk, const void *q, const void *kv,
      const void *out, const float *lse, const void *dout, void *dq, void *dkv),
     (&on, dtype, chunk, q, kv, out, lse, dout, dq, dkv), q, kv, out, lse, dout,
     dq, dkv, chunk->shape.alibi_slopes, chunk->shape.sequence_ids,
     chunk->key_ids)
WRAP(cross_entropy,
     (const struct kernel_ctx *ctx, enum dtype dtype, int64_t n, int64_t vocab,
      float scale, void *logits, const int32_t *labels, bool gradient,
      float *losses),
     (&on, dtype, n, vocab, scale, logits, labels, gradient, losses), logits,
     labels, losses)
WRAP(route_forward,
     (const struct kernel_ctx *ctx, const struct route *route, float *probs,
      int32_t *chosen, float *weights),
     (&on, route, probs, chosen, weights), probs, chosen, weights)
WRAP(route_backward,
     (const struct kernel_ctx *ctx, const struct route *route,
      const float *probs, const int32_t *chosen, const float *dweights,
      const float *dprobs, float *dlogits),
     (&on, route, probs, chosen, dweights, dprobs, dlogits), probs, chosen,
     dweights, dprobs, dlogits)
WRAP(route_sort,
     (const struct kernel_ctx *ctx, const struct route *route,
      const int32_t *chosen, int64_t *offsets, int32_t *place, int32_t *source),
     (&on, route, chosen, offsets, place, source), chosen, offsets, place,
     source)
WRAP(route_sums,
     (const struct kernel_ctx *ctx, const struct route *route,
      const float *probs, double *out),
     (&on, route, probs, out), probs, out)
WRAP(balance_forward,
     (const struct kernel_ctx *ctx, const struct route *route, double scale,
      const int64_t *offsets, const double *sums, int64_t *counts,
      double *loss),
     (&on, route, scale, offsets, sums, counts, loss), offsets, sums, counts,
     loss)
WRAP(balance_backward,
     (const struct kernel_ctx *ctx, const struct route *route, double scale,
      const int64_t *offsets, float *dprobs),
     (&on, route, scale, offsets, dprobs), offsets, dprobs)
WRAP(expert_gather,
     (const struct kernel_ctx *ctx, enum dtype dtype, const struct route *route,
      int64_t d, const int32_t *source, const void *x, void *out),
     (&on, dtype, route, d, source, x, out), source, x, out)
WRAP(expert_combine,
     (const struct kernel_ctx *ctx, enum dtype dtype, const struct route *route,
      int64_t d, const int32_t *place, const float *weights, const void *y,
      void *out),
     (&on, dtype, route, d, place, weights, y, out), place, weights, y, out)
WRAP(expert_weigh,
     (const struct kernel_ctx *ctx, enum dtype dtype, const struct route *route,
      int64_t width, const int32_t *source, const float *weights, void *h,
      void *dh, float *dweights),
     (&on, dtype, route, width, source, weights, h, dh, dweights), source,
     weights, h, dh, dweights)
WRAP(grouped_gemm,
     (const struct kernel_ctx *ctx, enum dtype dtype,
      const struct grouped_gemm *gemm),
     (&on, dtype, gemm), gemm->offsets, gemm->a, gemm->b, gemm->c)
WRAP(pack,
     (const struct kernel_ctx *ctx, enum dtype dtype, enum packing packing,
      int64_t rows, int64_t cols, const void *x, void *packed),
     (&on, dtype, packing, rows, cols, x, packed), x, packed)
WRAP(unpack,
     (const struct kernel_ctx *ctx, enum dtype dtype, enum packing packing,
      int64_t rows, int64_t cols, const void *packed, void *x),
     (&on, dtype, packing, rows, cols, packed, x), packed, x)
WRAP(bias_backward,
     (const struct kernel_ctx *ctx, enum dtype dtype, int64_t n, int64_t d,
      const void *dy, void *dbias),
     (&on, dtype, n, d, dy, dbias), dy, dbias)
WRAP(accumulate,
     (const struct kernel_ctx *ctx, enum dtype dtype, int64_t n, const void *x,
      void *y),
     (&on, dtype, n, x, y), x, y)
WRAP(add,
     (const struct kernel_ctx *ctx, enum dtype dtype, int64_t n, const void *a,
      float scale, const void *b, void *out),
     (&on, dtype, n, a, scale, b, out), a, b, out)
WRAP(zero, (const struct kernel_ctx *ctx, enum dtype dtype, int64_t n, void *x),
     (&on, dtype, n, x), x)
WRAP(copy_rows,
     (const struct kernel_ctx *ctx, enum dtype dtype, int64_t rows,
      int64_t width, int64_t x_stride, const void *x, int64_t y_stride,
      void *y),
     (&on, dtype, rows, width, x_stride, x, y_stride, y), x, y)
WRAP(convert,
     (const struct kernel_ctx *ctx, int64_t n, enum dtype from, const void *x,
      enum dtype to, void *y),
     (&on, n, from, x, to, y), x, y)
WRAP(sum,
     (const struct kernel_ctx *ctx, int64_t n, const float *x, double *out),
     (&on, n, x, out), x, out)
WRAP(chunk_sum_squares,
     (const struct kernel_ctx *ctx, enum dtype dtype, int64_t n, const void *x,
      double *out),
     (&on, dtype, n, x, out), x, out)
WRAP(adamw,
     (const struct kernel_ctx *ctx, enum dtype dtype, int64_t n,
      const struct adamw *step, float *p, const void *g, float *m, float *v),
     (&on, dtype, n, step, p, g, m, v), p, g, m, v, step->copy)
WRAP(lion,
     (const struct kernel_ctx *ctx, enum dtype dtype, int64_t n,
      const struct adamw *step, float *p, const void *g, float *m),
     (&on, dtype, n, step, p, g, m), p, g, m, step->copy)

static void describe(char *text, size_t bytes)
{
    inner->describe(text, bytes);
}

static size_t scratch_bytes(const struct kernel_limits *limits)
{
    return inner->scratch_bytes(limits);
}

static struct kernels table = {
    .memory = &kernel_memory_cpu,
    .describe = describe,
    .scratch_bytes = scratch_bytes,
    .gemm = wrap_gemm,
    .quantize = wrap_quantize,
    .gemm_fp8 = wrap_gemm_fp8,
    .embedding_forward = wrap_embedding_forward,
    .embedding_backward = wrap_embedding_backward,
    .norm_forward = wrap_norm_forward,
    .add_norm_forward = wrap_add_norm_forward,
    .norm_backward = wrap_norm_backward,
    .activation_forward = wrap_activation_forward,
    .activation_backward = wrap_activation_backward,
    .glu_forward = wrap_glu_forward,
    .glu_backward = wrap_glu_backward,
    .clip_forward = wrap_clip_forward,
    .clip_backward = wrap_clip_backward,
    .rope = wrap_rope,
    .dropout = wrap_dropout,
    .jitter = wrap_jitter,
    .attention_forward = wrap_attention_forward,
    .attention_backward = wrap_attention_backward,
    .attention_chunk_forward = wrap_attention_chunk_forward,
    .attention_chunk_backward = wrap_attention_chunk_backward,
    .cross_entropy = wrap_cross_entropy,
    .route_forward = wrap_route_forward,
    .route_backward = wrap_route_backward,
    .route_sort = wrap_route_sort,
    .route_sums = wrap_route_sums,
    .balance_forward = wrap_balance_forward,
    .balance_backward = wrap_balance_backward,
    .expert_gather = wrap_expert_gather,
    .expert_combine = wrap_expert_combine,
    .expert_weigh = wrap_expert_weigh,
    .grouped_gemm = wrap_grouped_gemm,
    .pack = wrap_pack,
    .unpack = wrap_unpack,
    .bias_backward = wrap_bias_backward,
    .accumulate = wrap_accumulate,
    .add = wrap_add,
    .zero = wrap_zero,
    .copy_rows = wrap_copy_rows,
    .convert = wrap_convert,
    .sum = wrap_sum,
    .chunk_sum_squares = wrap_chunk_sum_squares,
    .adamw = wrap_adamw,
    .lion = wrap_lion,
};

static enum err start_source(void)
{
    const struct kernel_limits one = { .threads = 1,
                                       .tokens = 1,
                                       .batch = 1,
                                       .seq = 1,
                                       .width = 1,
                                       .heads = 1,
                                       .head_dim = 1,
                                       .vocab = 1 };
    TRY(managed_source.start(&inner, &stream));
    least.scratch_bytes = inner->scratch_bytes(&one);
    if (least.scratch_bytes == 0)
        return ERR_OK;
    least.scratch = managed_source.allocate(least.scratch_bytes);
    if (least.scratch == NULL)
        return err_set(ERR_MEMORY, "no managed memory: %zu bytes of scratch",
                     least.scratch_bytes);
    return ERR_OK;
}

static void start(void)
{
    start_rc = start_source();
    if (start_rc != ERR_OK) {
        snprintf(start_text, sizeof start_text, "%s", err_text());
        return;
    }
    table.backend = inner->backend;
    table.kernel_set = inner->kernel_set;
    managed_memory_start();
}

const struct kernels *managed_table(void)
{
    pthread_once(&once, start);
    if (start_rc == ERR_OK)
        return &table;
    (void)err_set(start_rc, "%s", start_text);
    return NULL;
}

const struct kernels *const *__real_kernels_all(void);
const struct kernels *const *__wrap_kernels_all(void);

/* The CPU's best table is what bf16 is compared with. */
const struct kernels *const *__wrap_kernels_all(void)
{
    static const struct kernels *tables[3];
    const struct kernels *table_here = managed_table();
    size_t count = 0;
    if (table_here == NULL) {
        tap_skip("no GPU: %s", start_text);
        return tables;
    }
    if (strcmp(table_here->backend, "cpu") != 0)
        tables[count++] = __real_kernels_all()[0];
    tables[count] = table_here;
    return tables;
}
