/* test_attention_cudnn [--quick]: cuDNN's attention, by force, beside our own kernels and
 * fp64 at the shapes of production, forward and backward: a wrong sign, slope,
 * mask or stride of a graph; --quick: at the first four. Backward goes through the batch in parts, and
 * through long samples in slices of heads, as cuda_dnn_attention.h says. */

#include "kernels/cuda/device/cuda.h"
#include "kernels/cuda/libraries/cuda_attention_choice.h"
#include "kernels/cuda/libraries/cuda_dnn_attention.h"
#include "kernels/cuda/device/cuda_device.h"
#include "tests/gpu/attention_pair.h"
#include "tests/tap.h"

/* Of the largest element nearby: roundings of probabilities, of out and of the
 * scores' gradients. */
#define ROUNDINGS 0x1p-6
#define LSE 1e-3
#define SCRATCH CUDA_DNN_ATTENTION_SCRATCH_MAX

static const struct {
    int64_t batch, seq, heads, kv_heads, head_dim;
    bool alibi;
} cases[] = {
    { 4, 2048, 12, 12, 64, true },  { 2, 2048, 32, 32, 128, true },
    { 2, 2048, 32, 8, 128, false }, { 1, 8192, 32, 8, 128, false },
    { 4, 1024, 12, 12, 64, true },  { 4, 4096, 12, 12, 64, true },
    { 1, 8192, 12, 12, 64, true },  { 2, 2048, 20, 20, 128, true },
    { 1, 8192, 20, 20, 128, true }, { 1, 4096, 32, 32, 128, true },
    { 1, 8192, 32, 32, 128, true }, { 1, 8192, 32, 8, 128, true },
    { 3, 2000, 16, 16, 64, false }, { 1, 2000, 16, 4, 128, true },
    { 8, 2048, 12, 12, 64, false }, { 2, 1024, 16, 2, 64, true },
    { 1, 8192, 10, 10, 128, true }, { 1, 16384, 8, 2, 128, false },
};

static enum err own_forward(void *self, const struct kernel_ctx *ctx,
                            enum dtype dtype, const struct attention *shape,
                            const void *qkv, void *out, float *lse)
{
    (void)self;
    return cuda_attention_forward(ctx, dtype, shape, qkv, out, lse);
}

static enum err own_backward(void *self, const struct kernel_ctx *ctx,
                             enum dtype dtype, const struct attention *shape,
                             const void *qkv, const void *out, const float *lse,
                             const void *dout, void *dqkv)
{
    (void)self;
    return cuda_attention_backward(ctx, dtype, shape, qkv, out, lse, dout,
                                   dqkv);
}

static enum err dnn_forward(void *self, const struct kernel_ctx *ctx,
                            enum dtype dtype, const struct attention *shape,
                            const void *qkv, void *out, float *lse)
{
    return cuda_attention_choice_forward(self, ctx, dtype, shape, qkv, out,
                                         lse);
}

static enum err dnn_backward(void *self, const struct kernel_ctx *ctx,
                             enum dtype dtype, const struct attention *shape,
                             const void *qkv, const void *out, const float *lse,
                             const void *dout, void *dqkv)
{
    return cuda_attention_choice_backward(self, ctx, dtype, shape, qkv, out,
                                          lse, dout, dqkv);
}

/* Both directions of the shape are cuDNN's from now on. */
static enum err force(struct cuda_attention_choice *choice,
                      const struct kernel_ctx *ctx, const struct attention *s,
                      bool alibi)
{
    static const float some_slopes;
    struct attention shape = *s;
    char text[256];
    shape.alibi_slopes = alibi ? &some_slopes : NULL;
    struct cuda_dnn_attention_cut cut;
    const struct kernel_limits limits = { .batch = s->batch,
                                          .seq = s->seq,
                                          .heads = s->heads,
                                          .kv_heads = s->kv_heads,
                                          .head_dim = s->head_dim };
    (void)cuda_dnn_attention_cut_of(
        &shape, cuda_dnn_attention_cut_scratch(&limits), &cut);
    long long batch = s->batch, seq = s->seq, heads = s->heads,
              kv_heads = s->kv_heads;
    const char *bias = alibi ? "alibi" : "plain";
    snprintf(text, sizeof text,
             "cudnn %zu\n"
             "cudnn forward %lld %lld %lld %lld %d %s %lld %lld any\n"
             "cudnn backward %lld %lld %lld %lld %d %s %lld %lld any\n",
             cuda_attention_choice_version(choice), batch, seq, heads, kv_heads,
             (int)s->head_dim, bias, batch, heads, batch, seq, heads, kv_heads,
             (int)s->head_dim, bias, (long long)cut.sequences,
             (long long)cut.heads);
    return cuda_attention_choice_read(choice, ctx, text);
}

static bool good(const struct attention_errors *e)
{
    bool good = e->lse <= LSE;
    for (int part = 0; part < ATTENTION_PARTS; part++)
        good = good && e->between[part] <= ROUNDINGS &&
               e->from[0][part] <= ROUNDINGS && e->from[1][part] <= ROUNDINGS;
    return good;
}

static void note(const char *what, const double *errors)
{
    tap_note("  %s: out %.2g, dq %.2g, dk %.2g, dv %.2g", what,
             errors[ATTENTION_OUT], errors[ATTENTION_DQ], errors[ATTENTION_DK],
             errors[ATTENTION_DV]);
}

static void check(struct attention_pair *pair,
                  struct cuda_attention_choice *choice, size_t i)
{
    struct attention_errors errors;
    struct cuda_attention_count before, after;
    const struct attention shape = {
        .batch = cases[i].batch,
        .seq = cases[i].seq,
        .heads = cases[i].heads,
        .kv_heads = cases[i].kv_heads,
        .head_dim = cases[i].head_dim,
        .scale = cases[i].head_dim == 64 ? 0.125f : 0.08838834765f,
    };
    cuda_attention_choice_count(choice, &before);
    enum err rc = force(choice, &pair->ctx, &shape, cases[i].alibi);
    cuda_attention_choice_count(choice, &after);
    if (rc == ERR_OK)
        rc = attention_pair_run(pair, &shape, cases[i].alibi, &errors);
    struct cuda_attention_count end;
    cuda_attention_choice_count(choice, &end);
    tap_ok(rc == ERR_OK && end.shapes == end.dnn &&
               after.dnn >= before.dnn + 1 && good(&errors),
           "%lld x %lld, %lld heads of %lld for %lld%s: %s",
           (long long)shape.batch, (long long)shape.seq, (long long)shape.heads,
           (long long)shape.head_dim, (long long)shape.kv_heads,
           cases[i].alibi ? ", ALiBi" : "",
           rc != ERR_OK ? err_text() : "cuDNN's is ours");
    if (rc != ERR_OK)
        return;
    note("cuDNN and own", errors.between);
    note("own and fp64", errors.from[0]);
    note("cuDNN and fp64", errors.from[1]);
}

static enum err start(struct attention_pair *pair,
                      struct cuda_attention_choice **choice)
{
    static const struct cuda_attention_own own = { cuda_attention_forward,
                                                   cuda_attention_backward,
                                                   cuda_device_time };
    struct arena scratch = { 0 };
    const struct kernels *table;
    TRY(kernels_find("cuda", "auto", &table));
    pair->memory = table->memory;
    TRY(table->memory->use(0));
    TRY(table->memory->stream_create(false, &pair->ctx.stream));
    TRY(table->memory->tensors_create(SCRATCH, &scratch));
    pair->ctx.scratch = scratch.base;
    pair->ctx.scratch_bytes = SCRATCH;
    return cuda_attention_choice_create(NULL, &own, choice);
}

int main(int argc, char **argv)
{
    const struct kernels *table;
    struct cuda_attention_choice *choice = NULL;
    struct attention_pair pair = { .ctx = { .threads = 1 },
                                   .dtype = DTYPE_BF16 };
    if (kernels_find("cuda", "auto", &table) != ERR_OK) {
        tap_skip("no GPU: %s", err_text());
        return tap_done();
    }
    if (start(&pair, &choice) != ERR_OK) {
        tap_ok(false, "%s", err_text());
        return tap_done();
    }
    pair.sides[0] = (struct attention_side){ NULL, own_forward, own_backward };
    pair.sides[1] =
        (struct attention_side){ choice, dnn_forward, dnn_backward };
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    for (size_t i = 0; i < (quick ? 4 : sizeof cases / sizeof *cases); i++)
        check(&pair, choice, i);
    cuda_attention_choice_destroy(choice);
    return tap_done();
}
