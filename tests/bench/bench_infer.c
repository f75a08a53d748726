/* tessera-bench infer; see bench.h. */
#include "tests/bench/bench.h"

#include "src/base/arena.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/real.h"
#include "src/formats/weights.h"
#include "src/infer/infer.h"
#include "tests/bench/bench_flops.h"

#define PROMPT 512
#define CONTEXT 64 /* tokens before those that are timed */
#define RUN 16     /* tokens between two reads */
#define ROUNDS_MAX 40
#define ROUNDS_MIN 3
#define FORMS 3

struct infer_bench {
    struct model_config config;
    const struct kernels *kernels;
    struct params *params;
    struct arena weights;
    float *numbers; /* in it */
    struct infer *infer;
    struct infer_options options;
    int32_t tokens[PROMPT];
    double bytes; /* of weights that a token reads */
    double flops; /* of a prompt */
    /* seconds */
    double token[ROUNDS_MAX * RUN], read[ROUNDS_MAX * 2], prompt[ROUNDS_MAX];
    double peak[ROUNDS_MAX]; /* FLOP/s */
    int rounds;
};

/* --- what is measured --- */

static enum err shape_of(const char *model, struct model_config *config)
{
    struct weights *weights = NULL;
    if (model == NULL)
        model = "smollm2-135m";
    if (model_config_preset(model, config) == ERR_OK)
        return ERR_OK;
    TRY(weights_open(model, &weights));
    *config = weights_about(weights)->config;
    weights_close(weights);
    return ERR_OK;
}

/* The embedding's rows are looked up where it is not the output layer, and a
 * token goes to some of the experts only. */
static enum err bytes_of(struct infer_bench *bench, enum infer_weights form)
{
    static const double element[] = {
        [INFER_F32] = 4.0, [INFER_BF16] = 2.0, [INFER_INT8] = 1.0
    };
    const struct model_config *c = &bench->config;
    size_t cache, held, total;
    double idle =
        (double)(model_config_param_count(c) - model_config_active_count(c));
    TRY(infer_plan(c, bench->params, bench->kernels, &bench->options, form,
                   &cache, &held, &total));
    if (!c->tied)
        idle += (double)c->vocab_size * (double)c->d_model;
    bench->bytes = (double)held - idle * element[form];
    if (bench->bytes > (double)bench->weights.used) /* that are read */
        bench->bytes = (double)bench->weights.used;
    return ERR_OK;
}

static double flops_of(const struct model_config *c)
{
    struct model_config without = *c;
    without.tied = true;
    double head = (double)c->vocab_size * (double)c->d_model;
    const struct attention shape = { .batch = 1,
                                     .seq = PROMPT,
                                     .heads = c->n_heads,
                                     .head_dim = c->d_model / c->n_heads };
    double active = (double)model_config_active_count(&without) - head;
    if (c->positions == POSITIONS_LEARNED)
        active -= (double)c->max_seq_len * (double)c->d_model;
    return 2.0 * (PROMPT * active + head) +
           (double)c->n_layers * bench_flops_attention_forward(&shape);
}

static enum err gather(void *arg, int block, const void **weights)
{
    const struct infer_bench *bench = arg;
    *weights = bench->numbers + bench->params->blocks[block].offset;
    return ERR_OK;
}

static enum err release(void *arg, int block)
{
    (void)arg;
    (void)block;
    return ERR_OK;
}

/* Small numbers; touched by the threads that read them. */
static void fill(struct infer_bench *bench)
{
    float *x = bench->numbers;
#pragma omp parallel for num_threads(bench->options.threads) schedule(static)
    for (int64_t i = 0; i < bench->params->elements; i++)
        x[i] = (float)((int)((uint64_t)i * 2654435761u >> 16 & 1023) - 512) *
               0x1p-14f;
    for (int i = 0; i < PROMPT; i++)
        bench->tokens[i] = (int32_t)(i * 7919 % bench->config.vocab_size);
}

static enum err make(struct infer_bench *bench)
{
    TRY(kernels_find("cpu", "auto", &bench->kernels));
    TRY(params_create(&bench->config, &bench->params));
    size_t bytes = (size_t)bench->params->elements * sizeof(float);
    TRY(arena_create(bytes, &bench->weights));
    bench->numbers = arena_take(&bench->weights, bytes);
    fill(bench);
    bench->flops = flops_of(&bench->config);
    return ERR_OK;
}

/* --- measuring --- */

/* Seconds of reading as many bytes as a token does. */
static double read_bytes(const struct infer_bench *bench)
{
    const void *numbers = bench->numbers;
    const uint64_t *x = numbers;
    int64_t lines = (int64_t)(bench->bytes / 64.0);
    uint64_t total = 0;
    double begin = clock_now();
#pragma omp parallel for num_threads(bench->options.threads)                   \
    schedule(static) reduction(+ : total)
    for (int64_t i = 0; i < lines; i++) {
        const uint64_t *line = x + i * 8;
        total += (line[0] ^ line[1]) + (line[2] ^ line[3]) +
                 (line[4] ^ line[5]) + (line[6] ^ line[7]);
    }
    double seconds = clock_now() - begin;
    return total != 1 ? seconds : 0.0; /* uses it */
}

static enum err forward(struct infer_bench *bench, int64_t count,
                        const int32_t *tokens, int32_t *argmax, double *seconds)
{
    const struct infer_tokens list = {
        .count = count, .tokens = tokens, .wanted = 1, .argmax = argmax
    };
    double begin = clock_now();
    TRY(infer_forward(bench->infer, NULL, &list, 1));
    *seconds = clock_now() - begin;
    return ERR_OK;
}

static enum err one_round(struct infer_bench *bench)
{
    const struct kernel_ctx ctx = { .threads = bench->options.threads };
    int round = bench->rounds;
    const char *source;
    int32_t token = 1, next;
    infer_cut(bench->infer, 0, 0);
    TRY(forward(bench, PROMPT, bench->tokens, &next, &bench->prompt[round]));
    bench->peak[round] =
        bench->kernels->peak_flops(&ctx, DTYPE_F32, false, &source);
    infer_cut(bench->infer, 0, CONTEXT);
    bench->read[2 * round] = read_bytes(bench);
    for (int i = 0; i < RUN; i++) {
        TRY(forward(bench, 1, &token, &next, &bench->token[round * RUN + i]));
        token = next;
    }
    bench->read[2 * round + 1] = read_bytes(bench);
    bench->rounds++;
    return ERR_OK;
}

static void set(json_t *result, const char *form, const char *what,
                double value)
{
    char key[64];
    snprintf(key, sizeof key, "%s_%s", form, what);
    json_object_set_new(result, key, json_real(value));
}

static void report(struct infer_bench *bench, const char *form, json_t *result)
{
    int rounds = bench->rounds;
    double token = real_median(bench->token, rounds * RUN);
    double read = real_median(bench->read, rounds * 2);
    double prompt = real_median(bench->prompt, rounds);
    double peak = real_median(bench->peak, rounds);
    set(result, form, "decode_tokens_per_s", 1.0 / token);
    set(result, form, "decode_gbps", bench->bytes / token * 1e-9);
    set(result, form, "read_gbps", bench->bytes / read * 1e-9);
    set(result, form, "decode_ratio", read / token);
    set(result, form, "prompt_tokens_per_s", PROMPT / prompt);
    set(result, form, "prompt_gflops", bench->flops / prompt * 1e-9);
    set(result, form, "prompt_ratio", bench->flops / prompt / peak);
    json_object_set_new(result, "peak_gflops", json_real(peak * 1e-9));
}

static enum err measure_form(struct infer_bench *bench, enum infer_weights form,
                             double seconds, json_t *result)
{
    enum err rc = ERR_OK;
    const struct param_access access = { .arg = bench,
                                         .gather = gather,
                                         .release = release };
    TRY_OUT(bytes_of(bench, form));
    TRY_OUT(infer_create(&bench->config, bench->params, bench->kernels,
                         &bench->options, &bench->infer));
    TRY_OUT(infer_hold(bench->infer, &access, form));
    bench->rounds = 0;
    TRY_OUT(one_round(bench)); /* first touch, not counted */
    bench->rounds = 0;
    double end_s = clock_now() + seconds;
    while (bench->rounds < ROUNDS_MAX &&
           (bench->rounds < ROUNDS_MIN || clock_now() < end_s))
        TRY_OUT(one_round(bench));
    report(bench, infer_weights_names[form], result);
    log_info("%s: %d rounds", infer_weights_names[form], bench->rounds);
out:
    infer_destroy(bench->infer);
    bench->infer = NULL;
    return rc;
}

enum err bench_infer(const struct bench_options *options, json_t **result)
{
    enum err rc = ERR_OK;
    static struct infer_bench bench;
    json_t *found = NULL;
    TRY(shape_of(options->model, &bench.config));
    bench.options = (struct infer_options){ .threads = options->threads,
                                            .sequences = 1,
                                            .positions = PROMPT,
                                            .rows = PROMPT };
    if (bench.config.positions == POSITIONS_LEARNED &&
        bench.config.max_seq_len < PROMPT)
        return err_set(ERR_USAGE,
                       "the model has learned positions for %lld tokens, and "
                       "infer needs %d: take another model",
                       (long long)bench.config.max_seq_len, PROMPT);
    TRY_OUT(make(&bench));
    found =
        json_pack("{s:s, s:I, s:i}", "bench", "infer", "params",
                  (json_int_t)bench.params->numel, "threads", options->threads);
    for (int form = 0; form < FORMS; form++)
        TRY_OUT(measure_form(&bench, (enum infer_weights)form,
                             options->seconds / FORMS, found));
    *result = found;
    found = NULL;
out:
    json_decref(found);
    params_destroy(bench.params);
    arena_destroy(&bench.weights);
    return rc;
}
