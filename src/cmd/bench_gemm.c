/* tessera-bench gemm: times our products, the peak and the peers in turns.
 * Shapes are in bench_gemm_shapes.c, the table in bench_gemm_report.c. */
#include "src/cmd/bench_gemm.h"

#include <math.h>
#include <stdlib.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/cmd/bench_model.h"

#define BURST_S 0.01
#define CALLS_MAX 20000
#define ROUNDS 3 /* of a pass */
#define PASSES_MAX (BENCH_GEMM_SAMPLES / ROUNDS)
#define ATTENTION_TOKENS 2048

/* Everybody who takes part. */
struct gemm_bench {
    struct bench_gemm_ours ours;
    struct bench_operands operands;
    struct bench_peers peers;
    struct arena scratch;
};

double bench_gemm_peak(const struct bench_gemm_ours *ours)
{
    const char *source;
    return ours->kernels->peak_flops(&ours->ctx, DTYPE_F32, false, &source);
}

static enum err multiply_grouped(const struct bench_gemm_ours *ours,
                                 const struct bench_product *p,
                                 const struct bench_operands *operands)
{
    enum err rc = ERR_OK;
    struct grouped_gemm gemm = { .form = p->form,
                                 .groups = p->groups,
                                 .m = p->m,
                                 .n = p->n,
                                 .k = p->k,
                                 .a = operands->a,
                                 .b = operands->b,
                                 .c = operands->c };
    int64_t *offsets = malloc((size_t)(p->groups + 1) * sizeof *offsets);
    if (offsets == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    for (int g = 0; g <= p->groups; g++)
        offsets[g] = g * (p->form == GEMM_TN ? p->k : p->m);
    gemm.offsets = offsets;
    rc = ours->kernels->grouped_gemm(&ours->ctx, DTYPE_F32, &gemm);
    free(offsets);
    return rc;
}

static enum err multiply_ours(void *arg, const struct bench_product *p,
                              const struct bench_operands *operands)
{
    const struct bench_gemm_ours *ours = arg;
    struct gemm gemm = { .form = p->form,
                         .m = p->m,
                         .n = p->n,
                         .k = p->k,
                         .a = operands->a,
                         .b = operands->b,
                         .c = operands->c };
    if (p->groups > 1)
        return multiply_grouped(ours, p, operands);
    return ours->kernels->gemm(&ours->ctx, DTYPE_F32, &gemm);
}

static enum err prepare(struct gemm_bench *bench,
                        const struct bench_product *product)
{
    enum err rc = ERR_OK;
    struct bench_multiplier ours = { multiply_ours, &bench->ours };
    if (bench_product_prepare(product, &ours, &bench->operands) != ERR_OK)
        rc = err_prefix(ERR_INTERNAL, "kernel set %s",
                        bench->ours.kernels->kernel_set);
    for (int kind = 0; kind < BLAS_KINDS; kind++)
        if (bench->peers.best[kind] != NULL &&
            bench_peer_prepare(bench->peers.best[kind], product) != ERR_OK)
            bench_peers_drop(&bench->peers, (enum bench_blas_kind)kind);
    return rc;
}

/* Turn 0 is the peak's, 1 ours, the others the peers'. */
#define TURNS (2 + BLAS_KINDS)

static enum err take_turn(struct gemm_bench *bench,
                          struct bench_gemm_shape *shape, int turn, int calls)
{
    const struct bench_product *product = &shape->product;
    struct bench_multiplier ours = { multiply_ours, &bench->ours };
    double flops = bench_product_flops(product);
    int kind = turn - 2;
    int at = shape->count;
    double seconds;
    if (turn == 0) {
        shape->peak[at] = bench_gemm_peak(&bench->ours);
    } else if (turn == 1) {
        TRY(bench_product_time(product, &ours, &bench->operands, calls,
                               &seconds));
        shape->ours[at] = flops / seconds;
    } else if (bench->peers.best[kind] != NULL) {
        if (bench_peer_time(bench->peers.best[kind], calls, &seconds) == ERR_OK)
            shape->peers[kind][at] = flops / seconds;
        else
            bench_peers_drop(&bench->peers, (enum bench_blas_kind)kind);
    }
    return ERR_OK;
}

static enum err measure_shape(struct gemm_bench *bench,
                              struct bench_gemm_shape *shape)
{
    double flops = bench_product_flops(&shape->product);
    double calls = ceil(BURST_S * bench_gemm_peak(&bench->ours) / flops);
    calls = calls < 1.0 ? 1.0 : calls > CALLS_MAX ? CALLS_MAX : calls;
    TRY(prepare(bench, &shape->product));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < TURNS; i++)
            TRY(take_turn(bench, shape, round % 2 == 0 ? i : TURNS - 1 - i,
                          (int)calls));
        shape->count++;
    }
    return ERR_OK;
}

/* The scratch of a model with all of these shapes. */
static enum err open_ours(const struct bench_options *options,
                          struct gemm_bench *bench)
{
    struct bench_gemm_ours *ours = &bench->ours;
    const char *set = options->kernel_set;
    int64_t tokens = options->tokens > 0 ? options->tokens : ATTENTION_TOKENS;
    struct bench_model_kind kind;
    TRY(bench_model_find("125m", &kind));
    TRY(kernels_find("cpu", set != NULL ? set : "auto", &ours->kernels));
    struct kernel_limits limits = { .threads = options->threads,
                                    .tokens = tokens,
                                    .batch = 1,
                                    .seq = tokens,
                                    .width = kind.config.ffn_width,
                                    .heads = BENCH_GEMM_HEADS,
                                    .head_dim = BENCH_GEMM_HEAD_DIM,
                                    .vocab = kind.config.vocab_size };
    ours->ctx.threads = options->threads;
    kernels_spread_threads(options->threads);
    ours->ctx.scratch_bytes = ours->kernels->scratch_bytes(&limits);
    TRY(arena_create(ours->ctx.scratch_bytes + 4096, &bench->scratch));
    ours->ctx.scratch = arena_take(&bench->scratch, ours->ctx.scratch_bytes);
    return ERR_OK;
}

static enum err measure(const struct bench_options *options,
                        struct gemm_bench *bench,
                        struct bench_gemm_shape *shapes, int count)
{
    double begin = clock_now();
    for (int pass = 0; pass < PASSES_MAX; pass++) {
        for (int i = 0; i < count; i++)
            TRY(measure_shape(bench, &shapes[i]));
        log_info("pass %d: %d shapes, %.0f s so far", pass + 1, count,
                 clock_now() - begin);
        if (clock_now() - begin >= options->seconds)
            break;
    }
    return ERR_OK;
}

enum err bench_gemm(const struct bench_options *options, json_t **result)
{
    enum err rc = ERR_OK;
    int count = 0;
    json_t *attention = NULL;
    struct gemm_bench *bench = calloc(1, sizeof *bench);
    struct bench_gemm_shape *shapes = calloc(BENCH_GEMM_SHAPES, sizeof *shapes);
    if (bench == NULL || shapes == NULL) {
        rc = err_set(ERR_MEMORY, "out of memory");
        goto out;
    }
    TRY_OUT(bench_gemm_shapes(options, shapes, &count));
    TRY_OUT(open_ours(options, bench));
    TRY_OUT(bench_peers_open(options, &bench->peers));
    TRY_OUT(measure(options, bench, shapes, count));
    TRY_OUT(bench_gemm_attention(
        &bench->ours, options->tokens > 0 ? options->tokens : ATTENTION_TOKENS,
        shapes[0].count, &attention));
    *result = bench_gemm_report(&bench->ours, &bench->peers, shapes, count);
    json_object_set_new(*result, "attention", attention);
out:
    if (bench != NULL) {
        bench_peers_close(&bench->peers);
        bench_operands_destroy(&bench->operands);
        arena_destroy(&bench->scratch);
    }
    free(shapes);
    free(bench);
    return rc;
}
