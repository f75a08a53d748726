/* tessera-bench mfu; see bench_step.h. */
#include <math.h>
#include <stdlib.h>

#include "src/base/clock.h"
#include "src/base/median.h"
#include "src/cmd/bench_text.h"
#include "src/model/model_flops.h"
#include "src/model/model_graph.h"
#include "src/train/start/trainer_backend.h"
#include "src/train/start/trainer_choices.h"
#include "src/train/loop/trainer.h"

#define STEPS_MAX 1000
#define STEPS_MIN 3
#define GEMMS 9
/* Sides of square matrices that fill a processor's cores, and a GPU. */
#define SIDE_CPU 2048
#define SIDE_DEVICE 8192

/* The rate of one large product, in the dtype of the training: the median. */
static enum err gemm_rate(const struct trainer *trainer, double *flops_per_s)
{
    enum err rc = ERR_OK;
    const struct kernels *kernels = trainer->kernels;
    const struct kernel_memory *memory = kernels->memory;
    enum dtype dtype = trainer_backend_dtype(&trainer->settings);
    int64_t side = memory->device ? SIDE_DEVICE : SIDE_CPU;
    size_t bytes = (size_t)(side * side) * dtype_bytes(dtype);
    double seconds[GEMMS];
    struct arena arena = { 0 };
    TRY_OUT(memory->tensors_create(3 * bytes, &arena));
    struct gemm gemm = { .form = GEMM_NT,
                         .m = side,
                         .n = side,
                         .k = side,
                         .a = arena_take(&arena, bytes),
                         .b = arena_take(&arena, bytes),
                         .c = arena_take(&arena, bytes) };
    for (int i = -1; i < GEMMS; i++) {
        TRY_OUT(memory->wait(trainer->stream));
        double begin = clock_now();
        TRY_OUT(kernels->gemm(&trainer->ctx, dtype, &gemm));
        TRY_OUT(memory->wait(trainer->stream));
        seconds[i < 0 ? 0 : i] = clock_now() - begin;
    }
    *flops_per_s = 2.0 * pow((double)side, 3.0) / median_of(seconds, GEMMS);
out:
    memory->tensors_destroy(&arena);
    return rc;
}

/* Seconds of steps, the first one left out, which touches memory. */
static enum err time_steps(struct trainer *trainer, double seconds,
                           double *steps, int *count)
{
    double begin = clock_now();
    TRY(trainer_step(trainer));
    *count = 0;
    while (*count < STEPS_MAX &&
           (*count < STEPS_MIN || clock_now() - begin < seconds)) {
        double start = clock_now();
        TRY(trainer_step(trainer));
        steps[(*count)++] = clock_now() - start;
    }
    return ERR_OK;
}

static json_t *report(const struct trainer *trainer, double step_s, int steps,
                      double gemm_flops)
{
    const struct train_settings *s = &trainer->settings;
    const struct model_config *config = &s->model;
    double sequences_per_s = (double)s->train.global_batch / step_s;
    double tokens_per_s = sequences_per_s * (double)s->data.seq_len;
    double flops =
        sequences_per_s *
        model_flops_per_sequence(config, trainer->params, s->data.seq_len);
    struct kernel_chosen chosen = { .text = "" };
    if (trainer->kernels->chosen != NULL)
        trainer->kernels->chosen(&chosen);
    double causal = sequences_per_s *
                    model_flops_per_sequence_causal(config, trainer->params,
                                                    s->data.seq_len);
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:I, s:i, s:f, s:f, s:I, s:f, s:f, s:f}",
        "bench", "mfu", "model", model_preset_names[s->model.preset],
        "precision", train_precision_names[s->train.precision], "arithmetic",
        trainer->arithmetic, "algorithms", chosen.text, "params",
        (json_int_t)trainer->params->numel, "rounds", steps, "step_ms",
        step_s * 1e3, "tokens_per_s", tokens_per_s, "graph_leaves",
        (json_int_t)model_graph_launches(trainer->model), "gemm_flops_per_s",
        gemm_flops, "mfu", flops / gemm_flops, "mfu_causal",
        causal / gemm_flops);
}

static enum err measure(const struct bench_options *options, struct comm *comm,
                        const struct train_settings *settings, json_t **result)
{
    enum err rc = ERR_OK;
    struct trainer *trainer = NULL;
    double gemm_flops = 0.0;
    int count = 0;
    double *steps = calloc(STEPS_MAX, sizeof *steps);
    if (steps == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    TRY_OUT(trainer_create(comm, settings, 1, &trainer));
    TRY_OUT(trainer_start(trainer));
    TRY_OUT(trainer_choices_settle(trainer));
    TRY_OUT(trainer_calibrate(trainer));
    TRY_OUT(time_steps(trainer, options->seconds, steps, &count));
    TRY_OUT(gemm_rate(trainer, &gemm_flops));
    *result = report(trainer, median_of(steps, count), count, gemm_flops);
out:
    trainer_destroy(trainer);
    free(steps);
    return rc;
}

enum err bench_mfu(const struct bench_options *options, json_t **result)
{
    char *overrides[] = { "train.max_duration=1000000ba",
                          "train.global_batch=8" };
    return bench_text_train(options, overrides,
                            sizeof overrides / sizeof overrides[0], measure,
                            result);
}
