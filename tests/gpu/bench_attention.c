/* Attention: causal operations, half of the square, 4 S^2/2 D per head and
 * sequence forward and 2.5 times as many backward. */
#include <stdio.h>

#include "tests/gpu/bench_device.h"

struct work {
    struct bench *b;
    struct attention shape;
    void *qkv, *out, *dout, *dqkv;
    float *lse;
};

static enum err run_forward(void *argument)
{
    struct work *w = argument;
    return w->b->table->attention_forward(&w->b->ctx, w->b->dtype, &w->shape,
                                          w->qkv, w->out, w->lse);
}

static enum err run_backward(void *argument)
{
    struct work *w = argument;
    return w->b->table->attention_backward(&w->b->ctx, w->b->dtype, &w->shape,
                                           w->qkv, w->out, w->lse, w->dout,
                                           w->dqkv);
}

/* Shares of the largest product's rate that attention by warps' products can
 * reach on tensor cores. */
#define GOAL_FORWARD 0.22
#define GOAL_BACKWARD 0.17

static void run_shape(struct bench *b, int64_t head_dim, int64_t seq)
{
    const int64_t width = 2048 / b->shrink, tokens = b->tokens;
    const size_t size = dtype_bytes(b->dtype);
    char shape[64];
    struct work w = { .b = b };
    w.shape = (struct attention){ .batch = tokens / seq,
                                  .seq = seq,
                                  .heads = width / head_dim,
                                  .kv_heads = width / head_dim,
                                  .head_dim = head_dim,
                                  .scale = 1 / (float)head_dim };
    bench_begin(b);
    w.qkv = bench_take(b, 3 * tokens * width, size);
    w.out = bench_take(b, tokens * width, size);
    w.dout = bench_take(b, tokens * width, size);
    w.dqkv = bench_take(b, 3 * tokens * width, size);
    w.lse = bench_take(b, tokens * w.shape.heads, sizeof(float));
    double flops = 2 * (double)seq * (double)tokens * (double)width;
    snprintf(shape, sizeof shape, "D %lld S %lld B %lld", (long long)head_dim,
             (long long)seq, (long long)w.shape.batch);
    bench_run(b, "attention_forward", shape, run_forward, &w, BENCH_TFLOPS,
              flops, GOAL_FORWARD);
    bench_run(b, "attention_backward", shape, run_backward, &w, BENCH_TFLOPS,
              2.5 * flops, GOAL_BACKWARD);
}

enum err bench_attention(struct bench *b)
{
    static const int64_t dims[] = { 64, 128 };
    TRY(bench_fill(b));
    for (int i = 0; i < 2; i++)
        for (int64_t seq = b->tokens / 16; seq <= b->tokens; seq *= 2)
            run_shape(b, dims[i] / b->shrink, seq);
    return ERR_OK;
}
