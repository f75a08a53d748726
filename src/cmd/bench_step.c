#include "src/cmd/bench_step.h"

#include <string.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/cmd/bench_bound.h"
#include "src/cmd/bench_child.h"
#include "src/cmd/bench_median.h"
#include "src/cmd/bench_model.h"
#include "src/cmd/bench_ranks.h"

/* Phases take turns: bound, step, bound, step, ... */
#define PHASES_MAX 12
#define PHASES_MIN 2
#define STEPS_MAX 20 /* of a phase and kind */
#define TIMES_MAX (PHASES_MAX * STEPS_MAX)

/* What a phase's child returns. */
enum {
    STEP_FAULTS, /* minor page faults while steps were measured */
    STEP_SECONDS,
    STEP_VALUES = STEP_SECONDS + 3 * STEPS_MAX
};

struct step_phase {
    const struct bench_model_kind *kind;
    const struct bench_model_kind *dense; /* NULL: none to compare with */
    int threads;
};

struct step_times {
    double bound[PHASES_MAX * BENCH_BOUND_ROUNDS];
    double step[TIMES_MAX];
    double elastic[TIMES_MAX];
    double dense[TIMES_MAX]; /* of the model without experts */
    double faults;
    int phases;
};

/* In a child: the seconds of kind->steps steps as one leaf, those of as many
 * with one leaf for each sample, and those of the dense model, in turns. */
static enum err measure_steps(const void *arg, double *values)
{
    enum err rc = ERR_OK;
    const struct step_phase *phase = arg;
    const struct bench_model_kind *kind = phase->kind;
    struct bench_model *bench = NULL, *dense = NULL;
    double loss;
    TRY(bench_model_create(kind, phase->threads, &bench));
    if (phase->dense != NULL)
        TRY(bench_model_create(phase->dense, phase->threads, &dense));
    for (int i = -1; i < kind->steps; i++) {
        /* the first time, which touches memory, is not counted */
        double *seconds = &values[STEP_SECONDS + (i < 0 ? 0 : i)];
        if (i == 0)
            values[STEP_FAULTS] = (double)bench_model_faults(bench);
        TRY(bench_model_step(bench, 1, &loss, seconds));
        TRY(bench_model_step(bench, kind->samples, &loss,
                             seconds + kind->steps));
        if (dense != NULL)
            TRY(bench_model_step(dense, 1, &loss, seconds + 2 * kind->steps));
    }
    values[STEP_FAULTS] =
        (double)bench_model_faults(bench) - values[STEP_FAULTS];
out:
    bench_model_destroy(dense);
    bench_model_destroy(bench);
    return rc;
}

static enum err one_phase(const struct bench_bound *bound,
                          const struct step_phase *step,
                          struct step_times *times)
{
    enum err rc = ERR_OK;
    double ideal[BENCH_BOUND_VALUES];
    double values[STEP_VALUES];
    const double *seconds = &values[STEP_SECONDS];
    int steps = step->kind->steps;
    int64_t params = model_config_param_count(&step->kind->config);
    int p = times->phases;
    size_t bytes = (size_t)steps * sizeof values[0];
    TRY(bench_child(bench_bound, bound, ideal, BENCH_BOUND_VALUES));
    for (int i = 0; i < BENCH_BOUND_ROUNDS; i++)
        times->bound[p * BENCH_BOUND_ROUNDS + i] =
            ideal[2 * i] + 28.0 * (double)params / ideal[2 * i + 1];
    TRY(bench_child(measure_steps, step, values, STEP_VALUES));
    memcpy(times->step + p * steps, seconds, bytes);
    memcpy(times->elastic + p * steps, seconds + steps, bytes);
    memcpy(times->dense + p * steps, seconds + 2 * steps, bytes);
    times->faults += values[STEP_FAULTS] / steps;
    log_info("phase %d: bound %.0f ms (gemm %.0f ms, triad %.1f GB/s), step "
             "%.0f ms, %d leaves %.0f ms",
             p + 1, times->bound[p * BENCH_BOUND_ROUNDS] * 1e3, ideal[0] * 1e3,
             ideal[1] * 1e-9, seconds[0] * 1e3, step->kind->samples,
             seconds[steps] * 1e3);
    times->phases++;
out:
    return rc;
}

static json_t *report(const char *model, int threads, int steps,
                      struct step_times *times)
{
    int count = times->phases * steps;
    double step_ms = bench_median(times->step, count) * 1e3;
    double elastic_ms = bench_median(times->elastic, count) * 1e3;
    double bound_ms =
        bench_median(times->bound, times->phases * BENCH_BOUND_ROUNDS) * 1e3;
    return json_pack("{s:s, s:s, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f}",
                     "bench", "step", "model", model, "threads", threads,
                     "rounds", count, "step_ms", step_ms, "bound_ms", bound_ms,
                     "ratio", bound_ms / step_ms, "elastic_ms", elastic_ms,
                     "elastic_ratio", step_ms / elastic_ms, "faults",
                     times->faults / times->phases);
}

enum err bench_step(const struct bench_options *options, json_t **result)
{
    enum err rc = ERR_OK;
    struct bench_model_kind kind, dense;
    struct step_times times = { .phases = 0 };
    double begin = clock_now();
    TRY(bench_model_find(options->model, &kind));
    if (options->parallel)
        return bench_ranks("parallel", options, result);
    dense = kind;
    bool experts = kind.config.experts > 0;
    if (experts)
        bench_model_densify(&dense);
    const struct model_config *config = &dense.config;
    int64_t m = kind.samples * kind.seq_len;
    int64_t d = config->d_model;
    int64_t f = config->ffn_width;
    int64_t kv = d / config->n_heads * config->n_kv_heads;
    int layers = (int)config->n_layers;
    struct bench_shape shapes[] = {
        { m, d + 2 * kv, d, layers },
        { m, d, d, layers },
        { m, config->ffn == FFN_GLU ? 2 * f : f, d, layers },
        { m, d, f, layers },
        { m, config->vocab_size, d, 1 },
    };
    struct bench_bound bound = { shapes, sizeof shapes / sizeof shapes[0],
                                 options->threads };
    struct step_phase phase = { &kind, experts ? &dense : NULL,
                                options->threads };
    while (
        times.phases < PHASES_MAX &&
        (times.phases < PHASES_MIN || clock_now() - begin < options->seconds))
        TRY(one_phase(&bound, &phase, &times));
    *result = report(kind.name, options->threads, kind.steps, &times);
    if (experts) {
        int count = times.phases * kind.steps;
        double dense_s = bench_median(times.dense, count);
        double step_s = bench_median(times.step, count);
        json_object_set_new(*result, "dense_ms", json_real(dense_s * 1e3));
        json_object_set_new(*result, "moe_ratio", json_real(dense_s / step_s));
    }
out:
    return rc;
}
