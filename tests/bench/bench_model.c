/* The models of the benchmarks and their optimizer step. It has no data set,
 * events or checkpoints: that is src/train. */
#include "tests/bench/bench_model.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "src/base/clock.h"
#include "src/base/new.h"
#include "src/base/rng.h"
#include "src/comm/comm.h"
#include "src/model/model.h"

#define SEED 17

struct bench_model {
    const struct bench_model_kind *kind;
    struct comm *own; /* NULL: the communicator is the caller's */
    struct comm *comm;
    int leaves; /* of a batch */
    const struct kernels *kernels;
    struct params *params;
    struct model *model;
    struct replica *replica;
    struct kernel_ctx ctx;
    int32_t *tokens, *labels; /* [samples, seq_len] */
    double *losses;           /* [samples] of each leaf */
    int64_t step;
    long faults;
};

/* What a row has of the preset is 0. */
static const struct {
    const char *name, *preset;
    int samples, seq_len, steps;
    int layers, width, heads, ffn_width, vocab_size;
} kinds[] = {
    { "125m", "mpt-125m", 4, 64, 3, 0, 0, 0, 0, 0 },
    { "10m", "mpt-125m", 4, 64, 20, 6, 320, 5, 4 * 320, 8192 },
    { "moe", "moe-tiny", 4, 256, 3, 6, 512, 8, 1024, 8192 },
};

enum err bench_model_find(const char *name, struct bench_model_kind *out)
{
    struct model_config *config = &out->config;
    size_t i = 0;
    while (i < sizeof kinds / sizeof *kinds && strcmp(name, kinds[i].name) != 0)
        i++;
    if (i == sizeof kinds / sizeof *kinds)
        return err_set(ERR_USAGE, "no model '%s'; there are 125m, 10m and moe",
                       name);
    out->name = kinds[i].name;
    out->samples = kinds[i].samples;
    out->seq_len = kinds[i].seq_len;
    out->steps = kinds[i].steps;
    TRY(model_config_preset(kinds[i].preset, config));
    config->max_seq_len = out->seq_len;
    if (kinds[i].layers > 0) {
        config->n_layers = kinds[i].layers;
        config->d_model = kinds[i].width;
        config->n_heads = config->n_kv_heads = kinds[i].heads;
        config->ffn_width = kinds[i].ffn_width;
        config->vocab_size = kinds[i].vocab_size;
    }
    return model_config_check(config);
}

void bench_model_densify(struct bench_model_kind *kind)
{
    assert(kind->config.experts > 0);
    kind->config.ffn_width *= kind->config.experts_top_k;
    kind->config.experts = kind->config.experts_top_k = 0;
}

void bench_model_batch(int64_t vocab_size, int samples, int seq_len,
                       int32_t *tokens, int32_t *labels)
{
    int count = samples * seq_len;
    for (int i = 0; i < count; i++) {
        uint64_t draw = rng_u64(SEED, 1, (uint64_t)i);
        tokens[i] = (int32_t)(draw % (uint64_t)vocab_size);
    }
    for (int i = 0; i < count; i++)
        labels[i] = i % seq_len + 1 < seq_len ? tokens[i + 1] : -100;
}

static enum err make_batch(struct bench_model *bench)
{
    const struct bench_model_kind *kind = bench->kind;
    size_t count = (size_t)kind->samples * (size_t)kind->seq_len;
    TRY(new_room(&bench->tokens, count));
    TRY(new_room(&bench->labels, count));
    TRY(new_zeroed(&bench->losses, (size_t)kind->samples));
    bench_model_batch(kind->config.vocab_size, kind->samples, kind->seq_len,
                      bench->tokens, bench->labels);
    return ERR_OK;
}

/* What may fail on one rank alone: before there is a replica, ... */
static enum err open_params(struct bench_model *bench, int threads)
{
    bench->ctx.threads = threads;
    TRY(kernels_find("cpu", "auto", &bench->kernels));
    return params_create(&bench->kind->config, &bench->params);
}

/* ... and with its groups. */
static enum err open_model(struct bench_model *bench, int threads, int leaves)
{
    const struct bench_model_kind *kind = bench->kind;
    const struct group_access *experts = replica_experts(bench->replica);
    struct model_options options = { .threads = threads,
                                     .samples = kind->samples / leaves,
                                     .seq_len = kind->seq_len,
                                     .expert_degree =
                                         experts != NULL ? experts->size : 1,
                                     .experts = experts };
    TRY(model_create(&kind->config, bench->params, bench->kernels, &options,
                     &bench->model));
    bench->ctx = *model_ctx(bench->model);
    return make_batch(bench);
}

enum err bench_model_join(const struct bench_model_kind *kind, int threads,
                          struct comm *comm,
                          const struct replica_options *options,
                          struct bench_model **out)
{
    enum err rc = ERR_OK;
    int leaves = options->slots * options->leaves;
    struct bench_model *bench = NULL;
    *out = NULL;
    assert(kind->samples % leaves == 0);
    rc = new_zeroed(&bench, 1);
    TRY_OUT(comm_agree(comm, rc));
    bench->kind = kind;
    bench->comm = comm;
    bench->leaves = leaves;
    kernels_spread_threads(threads);
    TRY_OUT(comm_agree(comm, open_params(bench, threads)));
    TRY_OUT(replica_create(comm, bench->kernels, &bench->ctx, bench->params,
                           options, &bench->replica));
    TRY_OUT(comm_agree(comm, open_model(bench, threads, leaves)));
    TRY_OUT(replica_init(bench->replica, SEED, NULL));
    *out = bench;
    bench = NULL;
out:
    bench_model_destroy(bench);
    return rc;
}

enum err bench_model_create(const struct bench_model_kind *kind, int threads,
                            int leaves, struct bench_model **out)
{
    enum err rc = ERR_OK;
    struct comm *comm = NULL;
    struct replica_options options = {
        .strategy = REPLICA_ZERO1, .slots = 1, .leaves = leaves, .exact = true
    };
    TRY_OUT(comm_create("self", NULL, NULL, 60.0, &comm));
    TRY_OUT(bench_model_join(kind, threads, comm, &options, out));
    (*out)->own = comm;
    comm = NULL;
out:
    comm_destroy(comm);
    return rc;
}

void bench_model_destroy(struct bench_model *bench)
{
    if (bench == NULL)
        return;
    free(bench->losses);
    free(bench->labels);
    free(bench->tokens);
    replica_destroy(bench->replica);
    model_destroy(bench->model);
    params_destroy(bench->params);
    comm_destroy(bench->own);
    free(bench);
}

static enum err train_leaf(struct bench_model *bench, int rows, int number)
{
    const struct bench_model_kind *kind = bench->kind;
    struct leaf_loss loss;
    struct leaf leaf = {
        .samples = rows,
        .seq_len = kind->seq_len,
        .tokens = bench->tokens + number * rows * kind->seq_len,
        .labels = bench->labels + number * rows * kind->seq_len,
        .first_sample = number * rows,
    };
    enum err rc = model_train_leaf(bench->model, replica_access(bench->replica),
                                   &leaf, &loss);
    bench->losses[number] = loss.cross_entropy;
    return rc;
}

/* The gradient of the sum of the batch's losses, and that sum. */
static enum err gradient(struct bench_model *bench, double *sum)
{
    struct replica *replica = bench->replica;
    int rows = bench->kind->samples / bench->leaves;
    replica_begin_batch(replica);
    for (int microstep = 0; microstep < replica_microsteps(replica);
         microstep++) {
        int leaf = replica_leaf(replica, microstep);
        TRY(replica_begin_leaf(replica, microstep));
        if (leaf >= 0)
            TRY(train_leaf(bench, rows, leaf));
        TRY(replica_end_leaf(replica));
    }
    TRY(replica_finish_batch(replica));
    return replica_leaf_sum(replica, bench->losses, sum);
}

static long minor_faults(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_minflt : 0;
}

enum err bench_model_step(struct bench_model *bench, double *loss,
                          double *seconds)
{
    const struct bench_model_kind *kind = bench->kind;
    double labels = kind->samples * (kind->seq_len - 1);
    double norm = 0.0;
    struct optimizer_step step = {
        .lr = 1e-4,
        .decay = 1e-5,
        .grad_scale = 1.0 / labels,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-8,
        .count = ++bench->step,
    };
    double begin = clock_now();
    long faults = minor_faults();
    TRY(gradient(bench, loss));
    *loss /= labels;
    TRY(replica_gradient_norm(bench->replica, &norm));
    TRY(replica_update(bench->replica, &step));
    *seconds = clock_now() - begin;
    bench->faults += minor_faults() - faults;
    return ERR_OK;
}

long bench_model_faults(const struct bench_model *bench)
{
    return bench->faults;
}

const struct params *bench_model_params(const struct bench_model *bench)
{
    return bench->params;
}

const float *bench_model_weights(const struct bench_model *bench, int param)
{
    int count;
    assert(param < bench->params->count);
    return replica_items(bench->replica, &count)[param].data;
}
