/* tessera-bench comm --nodes, one of the ranks: steps by each strategy, and what they
 * send between the nodes. */

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/real.h"
#include "src/comm/topology.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_model.h"
#include "tests/bench/bench_ranks.h"

#define TIMEOUT_S 300.0
#define ROUNDS_MAX 41
#define ROUNDS_MIN 3
#define MICROSTEPS 2
#define PREFETCH 1
#define LEAF_TOKENS 32
#define INTERFACE "eth0:"

enum { ZERO3 = 2, FAST, FLAT };

static const struct kind {
    const char *name;
    enum replica_strategy strategy;
    bool node, fast, flat; /* a node is a shard group */
    int gradients;         /* exchanges of a step */
    int passes;  /* over the layers that gather weights; 0: all once */
    int experts; /* expert_degree, of the other model */
} kinds[] = {
    { "zero1", REPLICA_ZERO1, false, false, false, 1, 0, 0 },
    { "zero2", REPLICA_ZERO2, false, false, false, MICROSTEPS, 0, 0 },
    [ZERO3] = { "zero3", REPLICA_ZERO3, false, false, false, MICROSTEPS,
                2 * MICROSTEPS, 0 },
    [FAST] = { "zero3-fast", REPLICA_ZERO3, false, true, false, MICROSTEPS,
               2 * MICROSTEPS, 0 },
    [FLAT] = { "zero3-flat", REPLICA_ZERO3, false, false, true, MICROSTEPS,
               2 * MICROSTEPS, 0 },
    { "hsdp", REPLICA_ZERO3, true, false, false, 1, 0, 0 },
    /* "flat": their exchange begins when the last backward has ended */
    { "zero1-flat", REPLICA_ZERO1, false, false, true, 1, 0, 0 },
    { "ddp", REPLICA_DDP, false, false, false, 1, 0, 0 },
    { "ddp-flat", REPLICA_DDP, false, false, true, 1, 0, 0 },
    { "experts", REPLICA_ZERO3, false, false, false, MICROSTEPS, 2 * MICROSTEPS,
      2 },
    { "experts-flat", REPLICA_ZERO3, false, false, true, MICROSTEPS,
      2 * MICROSTEPS, 2 },
};
#define KINDS (sizeof kinds / sizeof kinds[0])

struct bench {
    struct comm *comm;
    struct topology *topology;
    struct bench_model_kind model, moe;
    double seconds[ROUNDS_MAX];
    double ms[KINDS];
    double worst; /* ratio of bytes */
    json_t *list;
};

/* What this node has sent so far, on its first rank; otherwise 0. */
static enum err sent_bytes(const struct bench *b, int64_t *bytes)
{
    char line[512];
    long long sent = -1;
    int rank = comm_rank(b->comm);
    *bytes = 0;
    if (topology_place(b->topology, rank) != 0)
        return ERR_OK;
    FILE *file = fopen("/proc/net/dev", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *at = strstr(line, INTERFACE);
        if (at != NULL)
            sscanf(at + strlen(INTERFACE), "%*s%*s%*s%*s%*s%*s%*s%*s%lld",
                   &sent);
    }
    if (file != NULL)
        fclose(file);
    *bytes = sent;
    return sent >= 0 ? ERR_OK
                     : err_set(ERR_UNSUPPORTED, "no counters of " INTERFACE);
}

/* Of all nodes together. */
static enum err all_sent(const struct bench *b, int64_t *bytes)
{
    TRY(comm_agree(b->comm, sent_bytes(b, bytes)));
    return comm_all_reduce_i64(b->comm, bytes, 1, COMM_SUM);
}

static enum err one_step(struct bench *b, struct bench_model *model,
                         double *seconds)
{
    double loss, own;
    TRY(comm_barrier(b->comm));
    double begin = clock_now();
    TRY(comm_agree(b->comm, bench_model_step(model, &loss, &own)));
    TRY(comm_barrier(b->comm));
    *seconds = clock_now() - begin;
    return ERR_OK;
}

/* Elements of weights that have to come to a rank in a step: where forward and backward
 * turn, the blocks that are there stay (src/parallel/gather.h). Experts come once. */
static double gathered(const struct kind *kind, const struct params *params)
{
    int last = params->block_count - 1, layers = params_layer(params, last);
    double ends =
        (double)(params->blocks[0].elements + params->blocks[last].elements);
    double kept = (kind->passes - 1) * (PREFETCH + 1.0) / layers;
    double times = kind->passes > 0 ? kind->passes - kept : 1.0;
    for (int b = 0; b <= last && kind->experts > 0; b++)
        if (params->blocks[b].kind == PARAM_BLOCK_EXPERTS)
            ends += (double)params->blocks[b].elements;
    return ends + times * ((double)params->elements - ends);
}

static enum err add_kind(struct bench *b, size_t k, int rounds, double between,
                         const struct params *params)
{
    double elements = kinds[k].gradients * (double)params->elements +
                      gathered(&kinds[k], params);
    double least = 4.0 * (b->topology->nodes - 1) * elements;
    double ratio = between / least;
    b->ms[k] = 1e3 * real_median(b->seconds, rounds);
    if (!kinds[k].flat && ratio > b->worst)
        b->worst = ratio;
    json_t *item =
        json_pack("{s:s, s:f, s:f, s:f, s:f}", "strategy", kinds[k].name,
                  "step_ms", b->ms[k], "between_bytes", between, "least_bytes",
                  least, "ratio", ratio);
    return json_array_append_new(b->list, item) == 0
               ? ERR_OK
               : err_set(ERR_MEMORY, "out of memory");
}

static enum err measure(struct bench *b, size_t k, double seconds)
{
    enum err rc = ERR_OK;
    int64_t from, to, go = 1;
    int rounds = 0;
    double ignored, begin;
    struct bench_model *model = NULL;
    const struct replica_options options = {
        .strategy = kinds[k].strategy,
        .shard_degree = kinds[k].node ? b->topology->most : 0,
        .prefetch = PREFETCH,
        .expert_degree = kinds[k].experts,
        .slots = b->model.samples,
        .leaves = 1,
        .exact = !kinds[k].fast,
        .flat = kinds[k].flat,
        .once = kinds[k].node,
    };
    TRY_OUT(bench_model_join(kinds[k].experts > 0 ? &b->moe : &b->model, 1,
                             b->comm, &options, &model));
    TRY_OUT(one_step(b, model, &ignored)); /* it touches memory */
    TRY_OUT(all_sent(b, &from));
    for (begin = clock_now(); go != 0;) {
        TRY_OUT(one_step(b, model, &b->seconds[rounds++]));
        go = rounds < ROUNDS_MIN ||
             (rounds < ROUNDS_MAX && clock_now() - begin < seconds);
        TRY_OUT(comm_broadcast(b->comm, &go, sizeof go, 0));
    }
    TRY_OUT(all_sent(b, &to));
    rc = add_kind(b, k, rounds, (double)(to - from) / rounds,
                  bench_model_params(model));
    if (comm_rank(b->comm) == 0)
        log_info("%s: %d steps", kinds[k].name, rounds);
out:
    bench_model_destroy(model);
    return rc;
}

/* Of 6 million parameters, 8 experts of width 256 in each of 4 layers. */
static enum err find_experts(struct bench *b)
{
    struct model_config *config = &b->moe.config;
    TRY(bench_model_find("moe", &b->moe));
    b->moe.samples = b->model.samples;
    b->moe.seq_len = b->model.seq_len;
    config->n_layers = config->n_heads = config->n_kv_heads = 4;
    config->d_model = config->ffn_width = 256;
    config->tied = true;
    return model_config_check(config);
}

enum err bench_nodes_rank(const struct bench_options *options, json_t **result)
{
    enum err rc = ERR_OK;
    struct bench b = { .list = json_array() };
    *result = NULL;
    TRY_OUT(bench_ranks_open(TIMEOUT_S, 0, &b.comm));
    TRY_OUT(topology_create(b.comm, &b.topology));
    TRY_OUT(bench_model_find(options->model, &b.model));
    b.model.samples = MICROSTEPS * comm_size(b.comm);
    b.model.seq_len = LEAF_TOKENS;
    TRY_OUT(find_experts(&b));
    for (size_t k = 0; k < KINDS; k++)
        if (kinds[k].experts <= b.topology->least)
            TRY_OUT(measure(&b, k, options->seconds / (double)KINDS));
    *result = json_pack(
        "{s:s, s:s, s:i, s:i, s:f, s:f, s:f, s:O}", "bench", "comm", "model",
        b.model.name, "nodes", b.topology->nodes, "ranks", b.topology->ranks,
        "internode_bytes_ratio", b.worst, "internode_time_ratio",
        b.ms[ZERO3] / b.ms[FLAT], "elastic_ratio_nodes",
        b.ms[ZERO3] / b.ms[FAST], "strategies", b.list);
    if (comm_rank(b.comm) == 0)
        rc = bench_ranks_write(options, *result);
out:
    json_decref(b.list);
    topology_destroy(b.topology);
    comm_destroy(b.comm);
    return rc;
}
