/* What tests/gpu/test_attention_cudnn.c compares attention with: the
 * processor's kernels and the emulated ones pass at small shapes, and attention
 * that is wrong in one place is found. */

#include "kernels/kernel_memory.h"
#include "tests/gpu/attention_pair.h"
#include "tests/tap.h"

enum wrong { NOTHING, SIGN, HEAD, MASK, QUERIES, KEYS, WRONGS };

struct side {
    const struct kernels *table;
    enum wrong wrong;
};

static float *other_slopes(const struct attention *s, enum wrong wrong)
{
    float *slopes = malloc((size_t)s->heads * sizeof *slopes);
    if (slopes == NULL)
        abort();
    for (int64_t h = 0; h < s->heads; h++)
        slopes[h] = wrong == SIGN ? -s->alibi_slopes[h]
                                  : s->alibi_slopes[(h + 1) % s->heads];
    return slopes;
}

static enum err forward(void *self, const struct kernel_ctx *ctx,
                        enum dtype dtype, const struct attention *shape,
                        const void *qkv, void *out, float *lse)
{
    const struct side *side = self;
    struct attention s = *shape;
    float *slopes = NULL;
    if (side->wrong == SIGN || side->wrong == HEAD)
        s.alibi_slopes = slopes = other_slopes(shape, side->wrong);
    if (side->wrong == MASK) /* one sequence that begins anew in the middle */
        s.sequence_ids = calloc((size_t)(s.batch * s.seq), sizeof(int32_t));
    for (int64_t t = s.seq / 2; s.sequence_ids != NULL && t < s.seq; t++)
        ((int32_t *)(uintptr_t)s.sequence_ids)[t] = 1;
    enum err rc = side->table->attention_forward(ctx, dtype, &s, qkv, out, lse);
    free(slopes);
    free((void *)(uintptr_t)s.sequence_ids);
    return rc;
}

static enum err backward(void *self, const struct kernel_ctx *ctx,
                         enum dtype dtype, const struct attention *shape,
                         const void *qkv, const void *out, const float *lse,
                         const void *dout, void *dqkv)
{
    const struct side *side = self;
    enum err rc = side->table->attention_backward(ctx, dtype, shape, qkv, out,
                                                  lse, dout, dqkv);
    int64_t slots = shape->heads + 2 * shape->kv_heads;
    float *row = (float *)dqkv + (shape->seq - 5) * slots * shape->head_dim;
    if (side->wrong == QUERIES)
        row[0] *= 2;
    if (side->wrong == KEYS)
        row[shape->heads * shape->head_dim] *= -1;
    return rc;
}

static double largest(const double *errors)
{
    double worst = 0;
    for (int part = 0; part < ATTENTION_PARTS; part++)
        worst = errors[part] > worst ? errors[part] : worst;
    return worst;
}

static enum err run(const struct kernels *table, enum dtype dtype,
                    enum wrong wrong, bool alibi,
                    struct attention_errors *errors)
{
    struct side sides[2] = { { table, NOTHING }, { table, wrong } };
    struct attention_pair pair = {
        .memory = &kernel_memory_cpu,
        .ctx = { .threads = 2 },
        .dtype = dtype,
        .sides = { { &sides[0], forward, backward },
                   { &sides[1], forward, backward } },
    };
    const struct attention shape = { .batch = 1,
                                     .seq = 300,
                                     .heads = 4,
                                     .kv_heads = 2,
                                     .head_dim = 32,
                                     .scale = 0.176776695f };
    const struct kernel_limits limits = { .threads = 2,
                                          .tokens = 300,
                                          .batch = 1,
                                          .seq = 300,
                                          .heads = 4,
                                          .head_dim = 32 };
    pair.ctx.scratch_bytes = table->scratch_bytes(&limits);
    pair.ctx.scratch =
        aligned_alloc(256, pair.ctx.scratch_bytes / 256 * 256 + 256);
    enum err rc = attention_pair_run(&pair, &shape, alibi, errors);
    free(pair.ctx.scratch);
    return rc;
}

int main(void)
{
    static const char *const names[] = {
        "nothing",  "ALiBi's sign",       "a head's slope",
        "the mask", "a query's gradient", "a key's gradient"
    };
    const struct kernels *cpu = NULL, *emulated = NULL;
    struct attention_errors e;
    if (kernels_find("cpu", "auto", &cpu) != ERR_OK)
        return 1;
    for (int alibi = 0; alibi < 2; alibi++) {
        enum err rc = run(cpu, DTYPE_F32, NOTHING, alibi != 0, &e);
        tap_ok(rc == ERR_OK && largest(e.between) == 0 && e.lse == 0 &&
                   largest(e.from[0]) < 1e-5 && largest(e.from[1]) < 1e-5,
               "the processor's attention is right: %.3g", largest(e.from[0]));
    }
    for (int wrong = SIGN; wrong < WRONGS; wrong++) {
        enum err rc = run(cpu, DTYPE_F32, (enum wrong)wrong, true, &e);
        tap_ok(rc == ERR_OK && largest(e.between) > 0.05, "%s is found: %.3g",
               names[wrong], largest(e.between));
    }
    if (kernels_find("cuda", "emulated", &emulated) != ERR_OK) {
        tap_skip("no emulated device: %s", err_text());
        return tap_done();
    }
    enum err rc = run(emulated, DTYPE_BF16, NOTHING, true, &e);
    tap_ok(rc == ERR_OK && largest(e.from[0]) < 0x1p-6,
           "the CUDA kernels are right in bf16: out %.3g, dq %.3g, dk %.3g, "
           "dv %.3g",
           e.from[0][ATTENTION_OUT], e.from[0][ATTENTION_DQ],
           e.from[0][ATTENTION_DK], e.from[0][ATTENTION_DV]);
    return tap_done();
}
