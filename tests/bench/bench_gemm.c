/* tessera-bench gemm: our products by shape and attention beside the peak of
 * multiply-adds in registers. Bursts of some 10 ms take turns: peak, ours and
 * back in the opposite order; a figure is the median of its bursts. That the
 * products are right is for tests/test_kernels_gemm.c. */
#include <math.h>

#include "kernels/kernels.h"
#include "src/base/arena.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/base/real.h"
#include "src/base/rng.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_flops.h"

#define BURST_S 0.01
#define BURST_MAX_S 0.2
#define CALLS_MAX 20000
#define ROUNDS 3 /* of a pass */
#define PASSES_MAX 8
#define SAMPLES (ROUNDS * PASSES_MAX)
#define SHAPES 160
#define BYTES_MAX ((int64_t)256 << 20)
#define GROUPS 8
#define GROUP_ROWS 64
#define HEADS 12
#define HEAD_DIM 64
#define ATTENTION_TOKENS 2048
#define SEED 29

static const char *const form_names[] = {
    [GEMM_NT] = "NT", [GEMM_NN] = "NN", [GEMM_TN] = "TN"
};

struct shape {
    char what[32]; /* "125m qkv" */
    enum gemm_form form;
    int groups; /* 1: an ordinary product */
    int64_t m, n, k;
    int count; /* of samples: FLOP/s */
    double ours[SAMPLES], peak[SAMPLES];
};

struct gemm_bench {
    const struct kernels *kernels;
    struct kernel_ctx ctx;
    struct arena scratch, operands; /* of the largest shape */
    int count;
    struct shape shapes[SHAPES];
};

/* --- shapes --- */

static int64_t elements_of(const struct shape *s)
{
    return s->groups * (s->m * s->k + s->n * s->k + s->m * s->n);
}

static double flops_of(const struct shape *s)
{
    return 2.0 * s->groups * (double)s->m * (double)s->n * (double)s->k;
}

static void add(struct gemm_bench *bench, const char *model, const char *name,
                enum gemm_form form, int groups, int64_t m, int64_t n,
                int64_t k)
{
    struct shape shape = {
        .form = form, .groups = groups, .m = m, .n = n, .k = k
    };
    if (elements_of(&shape) * (int64_t)sizeof(float) > BYTES_MAX)
        return;
    assert(bench->count < SHAPES);
    snprintf(shape.what, sizeof shape.what, "%s %s", model, name);
    bench->shapes[bench->count++] = shape;
}

/* A linear layer's output (NT), gradient of the input (NN) and of the
 * weights[outputs, inputs] (TN), on so many tokens of each group. */
static void add_linear(struct gemm_bench *bench, const char *model,
                       const char *name, int groups, int64_t tokens,
                       int64_t outputs, int64_t inputs)
{
    add(bench, model, name, GEMM_NT, groups, tokens, outputs, inputs);
    add(bench, model, name, GEMM_NN, groups, tokens, inputs, outputs);
    add(bench, model, name, GEMM_TN, groups, outputs, inputs, tokens);
}

static enum err add_model(struct gemm_bench *bench, const char *model,
                          const int64_t *tokens, int counts)
{
    struct bench_model_kind kind;
    TRY(bench_model_find(model, &kind));
    const struct model_config *c = &kind.config;
    int64_t d = c->d_model, f = c->ffn_width;
    int64_t up = c->ffn == FFN_GLU ? 2 * f : f;
    if (c->experts > 0) { /* what has none there is like 10m's */
        add_linear(bench, model, "up", GROUPS, GROUP_ROWS, up, d);
        add_linear(bench, model, "down", GROUPS, GROUP_ROWS, d, f);
        return ERR_OK;
    }
    for (int t = 0; t < counts; t++) {
        int64_t qkv = d + 2 * (d / c->n_heads * c->n_kv_heads);
        add_linear(bench, model, "qkv", 1, tokens[t], qkv, d);
        add_linear(bench, model, "out", 1, tokens[t], d, d);
        add_linear(bench, model, "up", 1, tokens[t], up, d);
        add_linear(bench, model, "down", 1, tokens[t], d, f);
        add_linear(bench, model, "head", 1, tokens[t], c->vocab_size, d);
    }
    return ERR_OK;
}

/* Scores, values, and the gradient of keys or values. */
static void add_attention(struct gemm_bench *bench, int64_t tokens)
{
    add(bench, "attention", "scores", GEMM_NT, 1, tokens, tokens, HEAD_DIM);
    add(bench, "attention", "values", GEMM_NN, 1, tokens, HEAD_DIM, tokens);
    add(bench, "attention", "values", GEMM_TN, 1, tokens, HEAD_DIM, tokens);
}

static enum err add_shapes(const struct bench_options *options,
                           struct gemm_bench *bench)
{
    static const char *const models[] = { "125m", "10m", "moe" };
    static const int64_t usual[] = { 64, 256, 2048 };
    const int64_t given[] = { options->tokens };
    const int64_t *tokens = options->tokens > 0 ? given : usual;
    int counts = options->tokens > 0 ? 1 : 3;
    if (options->model != NULL)
        TRY(add_model(bench, options->model, tokens, counts));
    for (int i = 0; i < 3 && options->model == NULL; i++)
        TRY(add_model(bench, models[i], tokens, counts));
    for (int t = 0; t < counts; t++)
        add_attention(bench, tokens[t]);
    return ERR_OK;
}

/* --- measuring --- */

static double peak_of(const struct gemm_bench *bench)
{
    const char *source;
    return bench->kernels->peak_flops(&bench->ctx, DTYPE_F32, false, &source);
}

static enum err multiply(const struct gemm_bench *bench, const struct shape *s)
{
    float *a = (float *)bench->operands.base;
    float *b = a + s->groups * s->m * s->k;
    float *c = b + s->groups * s->n * s->k;
    struct gemm gemm = {
        .form = s->form, .m = s->m, .n = s->n, .k = s->k, .a = a, .b = b, .c = c
    };
    int64_t offsets[GROUPS + 1];
    struct grouped_gemm grouped = { .form = s->form,
                                    .groups = s->groups,
                                    .m = s->m,
                                    .n = s->n,
                                    .k = s->k,
                                    .a = a,
                                    .b = b,
                                    .c = c,
                                    .offsets = offsets };
    if (s->groups == 1)
        return bench->kernels->gemm(&bench->ctx, DTYPE_F32, &gemm);
    for (int g = 0; g <= GROUPS; g++)
        offsets[g] = g * (s->form == GEMM_TN ? s->k : s->m);
    return bench->kernels->grouped_gemm(&bench->ctx, DTYPE_F32, &grouped);
}

/* Seconds of one of `calls` calls, or of fewer if they take too long. */
static enum err time_calls(const struct gemm_bench *bench,
                           const struct shape *shape, int calls,
                           double *seconds)
{
    double begin = clock_now(), taken = 0.0;
    int done = 0;
    while (done < calls && taken < BURST_MAX_S) {
        TRY(multiply(bench, shape));
        taken = clock_now() - begin;
        done++;
    }
    *seconds = taken / done;
    return ERR_OK;
}

static enum err measure_shape(const struct gemm_bench *bench,
                              struct shape *shape)
{
    double flops = flops_of(shape), seconds;
    double calls = ceil(BURST_S * peak_of(bench) / flops);
    calls = calls < 1.0 ? 1.0 : calls > CALLS_MAX ? CALLS_MAX : calls;
    TRY(multiply(bench, shape)); /* brings the operands into caches */
    for (int round = 0; round < ROUNDS; round++, shape->count++) {
        bool peak_first = round % 2 == 0;
        if (peak_first)
            shape->peak[shape->count] = peak_of(bench);
        TRY(time_calls(bench, shape, (int)calls, &seconds));
        shape->ours[shape->count] = flops / seconds;
        if (!peak_first)
            shape->peak[shape->count] = peak_of(bench);
    }
    return ERR_OK;
}

/* The scratch of a model with all of these shapes, and ordinary numbers. */
static enum err open_bench(const struct bench_options *options, int64_t tokens,
                           struct gemm_bench *bench)
{
    const char *set = options->kernel_set;
    struct bench_model_kind kind;
    int64_t most = 0;
    TRY(bench_model_find("125m", &kind));
    TRY(kernels_find("cpu", set != NULL ? set : "auto", &bench->kernels));
    struct kernel_limits limits = { .threads = options->threads,
                                    .tokens = tokens,
                                    .batch = 1,
                                    .seq = tokens,
                                    .width = kind.config.ffn_width,
                                    .heads = HEADS,
                                    .head_dim = HEAD_DIM,
                                    .vocab = kind.config.vocab_size };
    bench->ctx.threads = options->threads;
    kernels_spread_threads(options->threads);
    bench->ctx.scratch_bytes = bench->kernels->scratch_bytes(&limits);
    TRY(arena_create(bench->ctx.scratch_bytes + 4096, &bench->scratch));
    bench->ctx.scratch = arena_take(&bench->scratch, bench->ctx.scratch_bytes);
    for (int i = 0; i < bench->count; i++)
        if (elements_of(&bench->shapes[i]) > most)
            most = elements_of(&bench->shapes[i]);
    TRY(arena_create((size_t)most * sizeof(float), &bench->operands));
    float *x = (float *)bench->operands.base;
    for (int64_t i = 0; i < most; i++)
        x[i] = (float)((int)((uint64_t)i * 2654435761u >> 16 & 1023) - 512);
    return ERR_OK;
}

static enum err measure(const struct bench_options *options,
                        struct gemm_bench *bench)
{
    double begin = clock_now();
    for (int pass = 0; pass < PASSES_MAX; pass++) {
        for (int i = 0; i < bench->count; i++)
            TRY(measure_shape(bench, &bench->shapes[i]));
        log_info("pass %d: %d shapes, %.0f s so far", pass + 1, bench->count,
                 clock_now() - begin);
        if (clock_now() - begin >= options->seconds)
            break;
    }
    return ERR_OK;
}

/* --- attention --- */

struct attention_bench {
    struct attention shape;
    struct arena arena;
    float *qkv, *dqkv; /* [tokens, 3 heads, head_dim] */
    float *out, *dout; /* [tokens, heads, head_dim] */
    float *lse;        /* [heads, tokens] */
};

static enum err make_attention(int64_t tokens, struct attention_bench *out)
{
    size_t one = (size_t)(tokens * HEADS * HEAD_DIM);
    size_t bytes = one * sizeof(float);
    struct arena *arena = &out->arena;
    out->shape = (struct attention){ .batch = 1,
                                     .seq = tokens,
                                     .heads = HEADS,
                                     .kv_heads = HEADS,
                                     .head_dim = HEAD_DIM,
                                     .scale = 0.125f };
    TRY(arena_create(9 * bytes + 4096, arena));
    out->qkv = arena_take(arena, 3 * bytes);
    out->dqkv = arena_take(arena, 3 * bytes);
    out->out = arena_take(arena, bytes);
    out->dout = arena_take(arena, bytes);
    out->lse = arena_take(arena, bytes / HEAD_DIM);
    rng_fill_normal(SEED, 1, 0, (int64_t)(3 * one), 1.0f, out->qkv);
    rng_fill_normal(SEED, 2, 0, (int64_t)one, 1.0f, out->dout);
    return ERR_OK;
}

static enum err attend(const struct gemm_bench *bench,
                       const struct attention_bench *a, bool backward,
                       double *seconds)
{
    const struct kernels *kernels = bench->kernels;
    double begin = clock_now();
    if (backward)
        TRY(kernels->attention_backward(&bench->ctx, DTYPE_F32, &a->shape,
                                        a->qkv, a->out, a->lse, a->dout,
                                        a->dqkv));
    else
        TRY(kernels->attention_forward(&bench->ctx, DTYPE_F32, &a->shape,
                                       a->qkv, a->out, a->lse));
    *seconds = clock_now() - begin;
    return ERR_OK;
}

static json_t *attention_json(const struct attention_bench *a, bool backward,
                              double seconds, double peak)
{
    double flops = backward ? bench_flops_attention_backward(&a->shape)
                            : bench_flops_attention_forward(&a->shape);
    return json_pack("{s:s, s:I, s:i, s:i, s:f, s:f, s:f}", "what",
                     backward ? "backward" : "forward", "tokens",
                     (json_int_t)a->shape.seq, "heads", HEADS, "head_dim",
                     HEAD_DIM, "gflops", flops / seconds * 1e-9, "peak_gflops",
                     peak * 1e-9, "peak_fraction", flops / seconds / peak);
}

static enum err measure_attention(const struct gemm_bench *bench,
                                  int64_t tokens, json_t *list)
{
    enum err rc = ERR_OK;
    int rounds = bench->shapes[0].count;
    double seconds[2][SAMPLES], peak[SAMPLES];
    struct attention_bench a = { .qkv = NULL };
    TRY_OUT(make_attention(tokens, &a));
    for (int round = -1; round < rounds; round++) {
        /* the first time, which touches memory, is not counted */
        int at = round < 0 ? 0 : round;
        TRY_OUT(attend(bench, &a, false, &seconds[0][at]));
        peak[at] = peak_of(bench);
        TRY_OUT(attend(bench, &a, true, &seconds[1][at]));
    }
    double most = real_median(peak, rounds);
    for (int backward = 0; backward < 2; backward++)
        json_array_append_new(
            list, attention_json(&a, backward == 1,
                                 real_median(seconds[backward], rounds), most));
out:
    arena_destroy(&a.arena);
    return rc;
}

/* --- the result --- */

static json_t *shape_json(struct shape *s, double *fraction)
{
    double ours = real_median(s->ours, s->count);
    double peak = real_median(s->peak, s->count);
    *fraction = ours / peak;
    return json_pack("{s:s, s:s, s:i, s:I, s:I, s:I, s:f, s:f, s:f}", "what",
                     s->what, "form", form_names[s->form], "groups", s->groups,
                     "m", (json_int_t)s->m, "n", (json_int_t)s->n, "k",
                     (json_int_t)s->k, "ours_gflops", ours * 1e-9,
                     "peak_gflops", peak * 1e-9, "peak_fraction", *fraction);
}

static json_t *report(struct gemm_bench *bench, json_t *attention)
{
    char about[160];
    double fractions[SHAPES];
    json_t *list = json_array();
    bench->kernels->describe(about, sizeof about);
    for (int i = 0; i < bench->count; i++)
        json_array_append_new(list,
                              shape_json(&bench->shapes[i], &fractions[i]));
    double median = real_median(fractions, bench->count); /* sorts */
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:o, s:f, s:f, s:O}", "bench",
                     "gemm", "kernel_set", bench->kernels->kernel_set,
                     "arithmetic", about, "threads", bench->ctx.threads,
                     "rounds", bench->shapes[0].count, "shapes", list,
                     "peak_fraction_min", fractions[0], "peak_fraction_median",
                     median, "attention", attention);
}

enum err bench_gemm(const struct bench_options *options, json_t **result)
{
    enum err rc = ERR_OK;
    int64_t tokens = options->tokens > 0 ? options->tokens : ATTENTION_TOKENS;
    json_t *attention = json_array();
    struct gemm_bench *bench = NULL;
    TRY_OUT(new_zeroed(&bench, 1));
    TRY_OUT(add_shapes(options, bench));
    TRY_OUT(open_bench(options, tokens, bench));
    TRY_OUT(measure(options, bench));
    TRY_OUT(measure_attention(bench, tokens, attention));
    *result = report(bench, attention);
out:
    json_decref(attention);
    if (bench != NULL) {
        arena_destroy(&bench->operands);
        arena_destroy(&bench->scratch);
    }
    free(bench);
    return rc;
}
