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

static enum err kind_125m(struct bench_model_kind *kind)
{
    kind->samples = 4;
    kind->seq_len = 64;
    kind->steps = 3;
    return model_config_preset("mpt-125m", &kind->config);
}

static enum err kind_10m(struct bench_model_kind *kind)
{
    enum err rc = kind_125m(kind);
    kind->steps = 20;
    kind->config.n_layers = 6;
    kind->config.d_model = 320;
    kind->config.n_heads = kind->config.n_kv_heads = 5;
    kind->config.ffn_width = 4 * 320;
    kind->config.vocab_size = 8192;
    return rc;
}

static enum err kind_moe(struct bench_model_kind *kind)
{
    enum err rc = model_config_preset("moe-tiny", &kind->config);
    kind->samples = 4;
    kind->seq_len = 256;
    kind->steps = 3;
    kind->config.n_layers = 6;
    kind->config.d_model = 512;
    kind->config.n_heads = kind->config.n_kv_heads = 8;
    kind->config.ffn_width = 1024;
    kind->config.vocab_size = 8192;
    return rc;
}

static const struct {
    const char *name;
    enum err (*fill)(struct bench_model_kind *kind);
} kinds[] = {
    { "125m", kind_125m },
    { "10m", kind_10m },
    { "moe", kind_moe },
};

enum err bench_model_find(const char *name, struct bench_model_kind *out)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(name, kinds[i].name) != 0)
            continue;
        out->name = kinds[i].name;
        TRY(kinds[i].fill(out));
        out->config.max_seq_len = out->seq_len;
        return model_config_check(&out->config);
    }
    return err_set(ERR_USAGE, "no model '%s'; there are 125m, 10m and moe",
                   name);
    return ERR_OK;
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
    bench->tokens = malloc(count * sizeof bench->tokens[0]);
    bench->labels = malloc(count * sizeof bench->labels[0]);
    bench->losses = calloc((size_t)kind->samples, sizeof bench->losses[0]);
    if (bench->tokens == NULL || bench->labels == NULL || bench->losses == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    bench_model_batch(kind->config.vocab_size, kind->samples, kind->seq_len,
                      bench->tokens, bench->labels);
    return ERR_OK;
}

/* What may fail on one rank alone. */
static enum err open_model(struct bench_model *bench, int threads, int leaves)
{
    const struct bench_model_kind *kind = bench->kind;
    struct model_options options = { .threads = threads,
                                     .samples = kind->samples / leaves,
                                     .seq_len = kind->seq_len };
    TRY(kernels_find("cpu", "auto", &bench->kernels));
    TRY(params_create(&kind->config, &bench->params));
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
    TRY_OUT(comm_agree(comm, open_model(bench, threads, leaves)));
    TRY_OUT(replica_create(comm, bench->kernels, &bench->ctx, bench->params,
                           options, &bench->replica));
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
