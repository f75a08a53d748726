/* tessera-bench step --parallel, one of the ranks: times steps of two ranks in
 * turns with steps of one. */
#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/real.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_model.h"
#include "tests/bench/bench_ranks.h"

#define TIMEOUT_S 300.0
#define ROUNDS_MAX 41
#define ROUNDS_MIN 3
#define RANKS 2
#define SLOTS 8
#define LAYERS 2
#define VOCAB_SIZE 2048
#define LEAF_TOKENS 512
#define GROUP_MAX 4

enum { ONE_RANK, ONE_RANK_FAST, ZERO1, ZERO1_FAST, DDP, ZERO3, KINDS };

static const struct {
    const char *name; /* of the figure */
    enum replica_strategy strategy;
    bool alone; /* rank 0 with all threads */
    bool fast;
} kinds[KINDS] = {
    [ONE_RANK] = { "one_rank_ms", REPLICA_ZERO1, true, false },
    [ONE_RANK_FAST] = { "one_rank_fast_ms", REPLICA_ZERO1, true, true },
    [ZERO1] = { "zero1_ms", REPLICA_ZERO1, false, false },
    [ZERO1_FAST] = { "zero1_fast_ms", REPLICA_ZERO1, false, true },
    [DDP] = { "ddp_ms", REPLICA_DDP, false, false },
    [ZERO3] = { "zero3_ms", REPLICA_ZERO3, false, false },
};

/* What takes turns; memory is for one group at a time. */
static const struct {
    int count;
    int kinds[GROUP_MAX];
} groups[] = {
    { 4, { ONE_RANK, ZERO1, ZERO1_FAST, ONE_RANK_FAST } },
    { 2, { DDP, ZERO3 } },
};
#define GROUPS (int)(sizeof groups / sizeof groups[0])

static const struct {
    const char *name;
    int over, under;
} ratios[] = {
    { "ranks_ratio", ONE_RANK, ZERO1 },
    { "zero3_ratio", DDP, ZERO3 },
    { "elastic_ratio_parallel", ZERO1_FAST, ZERO1 },
    { "elastic_ratio_one_rank", ONE_RANK_FAST, ONE_RANK },
};

struct bench {
    struct comm *comm;
    struct comm *self;
    struct bench_model_kind model;
    struct bench_model *models[KINDS]; /* NULL: not of this group or rank */
    double seconds[KINDS][ROUNDS_MAX];
    int64_t losses[ROUNDS_MAX + 1]; /* bits of each step's */
    int losses_known;
    int rounds[KINDS];
};

static enum err choose_model(struct bench *b, const char *name)
{
    struct model_config *config = &b->model.config;
    TRY(bench_model_find(name, &b->model));
    b->model.samples = SLOTS;
    b->model.seq_len = LEAF_TOKENS;
    config->max_seq_len = LEAF_TOKENS;
    config->n_layers = LAYERS;
    if (config->vocab_size > VOCAB_SIZE)
        config->vocab_size = VOCAB_SIZE;
    return model_config_check(config);
}

static enum err open_kind(struct bench *b, int kind)
{
    struct replica_options options = { .strategy = kinds[kind].strategy,
                                       .prefetch = 1,
                                       .slots = SLOTS,
                                       .leaves = 1,
                                       .exact = !kinds[kind].fast };
    enum err rc = ERR_OK;
    if (!kinds[kind].alone)
        return bench_model_join(&b->model, 1, b->comm, &options,
                                &b->models[kind]);
    if (comm_rank(b->comm) == 0)
        rc = bench_model_join(&b->model, RANKS, b->self, &options,
                              &b->models[kind]);
    return comm_agree(b->comm, rc);
}

static void close_group(struct bench *b)
{
    for (int kind = 0; kind < KINDS; kind++) {
        bench_model_destroy(b->models[kind]);
        b->models[kind] = NULL;
    }
}

/* On rank 0. Every exact kind has taken as many steps as it has rounds. */
static enum err check_loss(struct bench *b, int step, double loss)
{
    union {
        double value;
        int64_t bits;
    } same = { .value = loss };
    if (step == b->losses_known)
        b->losses[b->losses_known++] = same.bits;
    return same.bits == b->losses[step]
               ? ERR_OK
               : err_set(ERR_INTERNAL,
                         "step %d: the losses of two strategies "
                         "have other bits",
                         step + 1);
}

/* The first one, which touches memory, is not counted. */
static enum err one_step(struct bench *b, int kind, int round)
{
    enum err rc = ERR_OK;
    double loss = 0.0, seconds = 0.0;
    TRY(comm_barrier(b->comm));
    if (b->models[kind] != NULL)
        rc = bench_model_step(b->models[kind], &loss, &seconds);
    if (rc == ERR_COMM)
        return rc;
    if (rc == ERR_OK && comm_rank(b->comm) == 0 && !kinds[kind].fast)
        rc = check_loss(b, round, loss);
    TRY(comm_agree(b->comm, rc));
    int64_t ns = (int64_t)(1e9 * seconds);
    TRY(comm_all_reduce_i64(b->comm, &ns, 1, COMM_MAX));
    if (round > 0)
        b->seconds[kind][b->rounds[kind]++] = 1e-9 * (double)ns;
    return rc;
}

static enum err one_round(struct bench *b, int group, int round)
{
    int count = groups[group].count;
    for (int i = 0; i < count; i++) {
        int at = round % 2 == 0 ? i : count - 1 - i;
        TRY(one_step(b, groups[group].kinds[at], round));
    }
    return ERR_OK;
}

static enum err measure_group(struct bench *b, int group, double seconds)
{
    enum err rc = ERR_OK;
    int64_t go = 1;
    for (int i = 0; i < groups[group].count; i++)
        TRY_OUT(open_kind(b, groups[group].kinds[i]));
    TRY_OUT(one_round(b, group, 0));
    double begin = clock_now();
    for (int round = 1; go != 0; round++) {
        TRY_OUT(one_round(b, group, round));
        go = round < ROUNDS_MIN ||
             (round < ROUNDS_MAX && clock_now() - begin < seconds);
        TRY_OUT(comm_broadcast(b->comm, &go, sizeof go, 0));
    }
out:
    close_group(b);
    return rc;
}

static enum err add_figures(struct bench *b, json_t *result)
{
    int failed = 0;
    double ms[KINDS];
    for (int kind = 0; kind < KINDS; kind++) {
        ms[kind] = 1e3 * real_median(b->seconds[kind], b->rounds[kind]);
        failed |=
            json_object_set_new(result, kinds[kind].name, json_real(ms[kind]));
        log_info("%s %.0f (%.0f to %.0f, %d steps)", kinds[kind].name, ms[kind],
                 1e3 * b->seconds[kind][0],
                 1e3 * b->seconds[kind][b->rounds[kind] - 1], b->rounds[kind]);
    }
    for (size_t i = 0; i < sizeof ratios / sizeof ratios[0]; i++)
        failed |= json_object_set_new(
            result, ratios[i].name,
            json_real(ms[ratios[i].over] / ms[ratios[i].under]));
    return failed == 0 ? ERR_OK : err_set(ERR_MEMORY, "out of memory");
}

enum err bench_parallel_rank(const struct bench_options *options,
                             json_t **result)
{
    enum err rc = ERR_OK;
    struct bench b = { .losses_known = 0 };
    *result = NULL;
    TRY_OUT(bench_ranks_open(TIMEOUT_S, RANKS, &b.comm));
    TRY_OUT(comm_create("self", NULL, NULL, TIMEOUT_S, &b.self));
    TRY_OUT(choose_model(&b, options->model));
    *result = json_pack("{s:s, s:s, s:i, s:i, s:i}", "bench", "step", "model",
                        b.model.name, "ranks", RANKS, "slots", SLOTS,
                        "leaf_tokens", LEAF_TOKENS);
    for (int i = 0; i < GROUPS; i++)
        TRY_OUT(measure_group(&b, i, options->seconds / GROUPS));
    if (comm_rank(b.comm) == 0)
        TRY_OUT(add_figures(&b, *result));
    if (comm_rank(b.comm) == 0)
        rc = bench_ranks_write(options, *result);
out:
    comm_destroy(b.self);
    comm_destroy(b.comm);
    return rc;
}
