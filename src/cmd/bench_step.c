#include "src/cmd/bench_step.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/rng.h"
#include "src/cmd/bench_bound.h"
#include "src/cmd/bench_child.h"
#include "src/comm/comm.h"
#include "src/model/model.h"
#include "src/parallel/replica.h"

#define SAMPLES 4
#define SEQ_LEN 64
/* phases of the two kinds take turns: bound, step, bound, step, ... */
#define PHASES_MAX 4
#define PHASES_MIN 2
#define STEP_ROUNDS 3

struct step_bench {
    struct comm *comm;
    const struct kernels *kernels;
    struct model_config config;
    struct params *params;
    struct model *model;
    struct replica *replica;
    struct kernel_ctx ctx;
    int32_t tokens[SAMPLES * SEQ_LEN];
    int32_t labels[SAMPLES * SEQ_LEN];
};

static enum err bench_create(struct step_bench *b, int threads)
{
    enum err rc = ERR_OK;
    struct replica_options replica = { .strategy = REPLICA_ZERO1,
                                       .slots = 1,
                                       .leaves = 1,
                                       .exact = true };
    TRY(comm_create("self", NULL, NULL, 60.0, &b->comm));
    TRY(kernels_find("cpu", "auto", &b->kernels));
    TRY(params_create(&b->config, &b->params));
    struct model_options options = { .threads = threads,
                                     .samples = SAMPLES,
                                     .seq_len = SEQ_LEN };
    TRY(model_create(&b->config, b->params, b->kernels, &options, &b->model));
    b->ctx = *model_ctx(b->model);
    TRY(replica_create(b->comm, b->kernels, &b->ctx, b->params, &replica,
                       &b->replica));
    TRY(replica_init(b->replica, 17));
    for (int i = 0; i < SAMPLES * SEQ_LEN; i++) {
        uint64_t draw = rng_u64(17, 1, (uint64_t)i);
        b->tokens[i] = (int32_t)(draw % (uint64_t)b->config.vocab_size);
    }
    for (int i = 0; i < SAMPLES * SEQ_LEN; i++)
        b->labels[i] =
            i % SEQ_LEN + 1 < SEQ_LEN ? b->tokens[i + 1] : -100;
out:
    return rc;
}

static void bench_destroy(struct step_bench *b)
{
    replica_destroy(b->replica);
    model_destroy(b->model);
    params_destroy(b->params);
    comm_destroy(b->comm);
}

/* One optimizer step over `leaves` leaves of SAMPLES / leaves rows. */
static enum err one_step(struct step_bench *b, int leaves, double *seconds)
{
    enum err rc = ERR_OK;
    double norm = 0.0;
    int rows = SAMPLES / leaves;
    TRY(replica_set_leaves(b->replica, leaves));
    double begin = clock_now();
    replica_begin_batch(b->replica);
    for (int i = 0; i < leaves; i++) {
        struct leaf_loss loss;
        struct leaf leaf = {
            .samples = rows,
            .seq_len = SEQ_LEN,
            .tokens = b->tokens + i * rows * SEQ_LEN,
            .labels = b->labels + i * rows * SEQ_LEN,
        };
        TRY(replica_begin_leaf(b->replica, i));
        TRY(model_train_leaf(b->model, replica_access(b->replica), &leaf,
                             &loss));
        TRY(replica_end_leaf(b->replica));
    }
    TRY(replica_finish_batch(b->replica));
    TRY(replica_gradient_norm(b->replica, &norm));
    struct adamw step = {
        .lr = 1e-5f,
        .beta1 = 0.9f,
        .beta2 = 0.95f,
        .eps = 1e-8f,
        .correction1 = 0.1f,
        .correction2 = 0.05f,
        .grad_scale = 1.0f / (SAMPLES * (SEQ_LEN - 1)),
    };
    TRY(replica_update(b->replica, &step));
    *seconds = clock_now() - begin;
out:
    return rc;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof values[0], compare);
    return count % 2 == 1 ? values[count / 2]
                          : (values[count / 2 - 1] + values[count / 2]) / 2.0;
}

static enum err bench_config(struct model_config *config)
{
    enum err rc = model_config_preset("mpt-125m", config);
    config->max_seq_len = SEQ_LEN;
    return rc;
}

/* In a child: the seconds of STEP_ROUNDS steps as one leaf, then those of as
 * many with four. */
static enum err step_phase(const void *arg, double *values)
{
    enum err rc = ERR_OK;
    const struct bench_options *options = arg;
    struct step_bench *b = calloc(1, sizeof *b);
    if (b == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    TRY(bench_config(&b->config));
    TRY(bench_create(b, options->threads));
    TRY(one_step(b, 1, &values[0])); /* first touch, not counted */
    for (int i = 0; i < STEP_ROUNDS; i++) {
        TRY(one_step(b, 1, &values[i]));
        TRY(one_step(b, SAMPLES, &values[STEP_ROUNDS + i]));
    }
out:
    bench_destroy(b);
    free(b);
    return rc;
}

struct step_times {
    double step[PHASES_MAX * STEP_ROUNDS];
    double elastic[PHASES_MAX * STEP_ROUNDS];
    double bound[PHASES_MAX * BENCH_BOUND_ROUNDS];
    int phases;
};

static enum err one_phase(const struct bench_options *options,
                          const struct bench_bound *bound, int64_t params,
                          struct step_times *times)
{
    enum err rc = ERR_OK;
    double ideal[BENCH_BOUND_VALUES];
    double step[2 * STEP_ROUNDS];
    int p = times->phases;
    TRY(bench_child(bench_bound, bound, ideal, BENCH_BOUND_VALUES));
    TRY(bench_child(step_phase, options, step, 2 * STEP_ROUNDS));
    for (int i = 0; i < BENCH_BOUND_ROUNDS; i++)
        times->bound[p * BENCH_BOUND_ROUNDS + i] =
            ideal[2 * i] + 28.0 * (double)params / ideal[2 * i + 1];
    memcpy(times->step + p * STEP_ROUNDS, step, sizeof step / 2);
    memcpy(times->elastic + p * STEP_ROUNDS, step + STEP_ROUNDS,
           sizeof step / 2);
    log_info("phase %d: bound %.0f ms (gemm %.0f ms, triad %.1f GB/s), step "
             "%.0f ms, four leaves %.0f ms",
             p + 1, times->bound[p * BENCH_BOUND_ROUNDS] * 1e3, ideal[0] * 1e3,
             ideal[1] * 1e-9, step[0] * 1e3, step[STEP_ROUNDS] * 1e3);
    times->phases++;
out:
    return rc;
}

enum err bench_step(const struct bench_options *options, json_t **result)
{
    enum err rc = ERR_OK;
    struct model_config config;
    struct step_times times = { .phases = 0 };
    double begin = clock_now();
    TRY(bench_config(&config));
    int64_t m = SAMPLES * SEQ_LEN;
    int64_t d = config.d_model;
    int layers = (int)config.n_layers;
    struct bench_shape shapes[] = {
        { m, 3 * d, d, layers },
        { m, d, d, layers },
        { m, 4 * d, d, layers },
        { m, d, 4 * d, layers },
        { m, config.vocab_size, d, 1 },
    };
    struct bench_bound bound = { shapes, sizeof shapes / sizeof shapes[0],
                                 options->threads };
    while (times.phases < PHASES_MAX &&
           (times.phases < PHASES_MIN ||
            clock_now() - begin < options->seconds))
        TRY(one_phase(options, &bound, model_config_param_count(&config),
                      &times));
    double step_ms = median(times.step, times.phases * STEP_ROUNDS) * 1e3;
    double elastic_ms =
        median(times.elastic, times.phases * STEP_ROUNDS) * 1e3;
    double bound_ms =
        median(times.bound, times.phases * BENCH_BOUND_ROUNDS) * 1e3;
    *result = json_pack(
        "{s:s, s:i, s:i, s:f, s:f, s:f, s:f, s:f}", "bench", "step", "threads",
        options->threads, "rounds", times.phases * STEP_ROUNDS, "step_ms",
        step_ms, "bound_ms", bound_ms, "ratio", bound_ms / step_ms,
        "elastic_ms", elastic_ms, "elastic_ratio", step_ms / elastic_ms);
out:
    return rc;
}
