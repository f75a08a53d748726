/* tessera-bench comm --plan: what an exchange of gradients sends between the nodes of a
 * machine that need not be there, by the routes of its ranks (src/parallel/route.h). */

#include "src/model/model_config.h"
#include "src/parallel/route.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_ranks.h"

#define RANKS_MAX 1024 /* of a node */
#define ALL_MAX 65536
#define LOOKED_AT 128 /* ranks; of more every so many */
#define MICROSTEPS 4  /* of the batch */
#define PRESET "mpt-7b"

struct plan {
    struct topology *topology;
    struct params *params;
    struct owner *owner;
    int looked;     /* ranks that were looked at */
    double between; /* their bytes of a step */
    /* the most of a block, of the smallest the least */
    struct route_traffic block;
    int64_t memory, held; /* the most of a rank */
};

static void take_most(int64_t value, int64_t *most)
{
    *most = value > *most ? value : *most;
}

/* How many blocks are as large as this one, if it is the first of them: they differ in
 * whose the longer pieces are, which is the same to all together. */
static int alike(const struct params *params, int block)
{
    int count = 0;
    for (int b = 0; b < params->block_count; b++) {
        bool same =
            params->blocks[b].elements == params->blocks[block].elements;
        if (same && b < block)
            return 0;
        count += same;
    }
    return count;
}

/* All blocks of one microstep, or of what a step ends with. */
static void add_blocks(struct plan *plan, const struct route_plan *route,
                       double *between)
{
    int64_t held = 0;
    for (int b = 0; b < plan->params->block_count; b++) {
        struct route_traffic t = { 0 }, *most = &plan->block;
        int count = alike(plan->params, b);
        if (count == 0)
            continue;
        route_traffic(route, plan->owner, b, &t);
        *between += count * (double)t.between;
        held += count * t.held;
        if (t.messages > most->messages)
            most->messages = t.messages;
        take_most(t.largest, &most->largest);
        take_most(t.memory, &plan->memory);
        if (t.smallest > 0 &&
            (most->smallest == 0 || t.smallest < most->smallest))
            most->smallest = t.smallest;
    }
    take_most(held, &plan->held);
}

static enum err look_at(struct plan *plan, const struct route_options *options,
                        int rank)
{
    struct route_plan *route = NULL;
    double between = 0.0;
    TRY(route_create(plan->topology, rank, options, &route));
    int microsteps = route_microsteps(route);
    for (int m = 0; m <= microsteps; m++)
        if (route_microstep(route, m))
            add_blocks(plan, route, &between);
    plan->between += between;
    plan->looked++;
    route_destroy(route);
    return ERR_OK;
}

static enum err add_way(struct plan *plan, const char *name, int group_nodes,
                        int exchanges, json_t *ways)
{
    const struct topology *t = plan->topology;
    struct route_options options = {
        .leaves = (int64_t)MICROSTEPS * t->ranks,
        .chain = 1,
        .own_leaves = 1,
        .group_nodes = group_nodes,
    };
    /* an odd step comes to all places of a node */
    int step = t->ranks > LOOKED_AT ? t->ranks / LOOKED_AT | 1 : 1;
    double least = 4.0 * exchanges * (t->nodes - 1) *
                   (double)plan->params->elements / t->ranks;
    plan->block = (struct route_traffic){ 0 };
    plan->between = 0.0;
    plan->memory = plan->held = plan->looked = 0;
    for (int rank = 0; rank < t->ranks; rank += step)
        TRY(look_at(plan, &options, rank));
    double mean = plan->between / plan->looked;
    json_t *way = json_pack(
        "{s:s, s:i, s:f, s:f, s:f, s:i, s:I, s:I, s:I, s:I}", "way", name,
        "exchanges", exchanges, "between_bytes", mean, "least_bytes", least,
        "ratio", least > 0 ? mean / least : 1.0, "messages",
        plan->block.messages, "smallest_bytes",
        (json_int_t)plan->block.smallest, "largest_bytes",
        (json_int_t)plan->block.largest, "memory_bytes",
        (json_int_t)plan->memory, "held_bytes", (json_int_t)plan->held);
    return json_array_append_new(ways, way) == 0
               ? ERR_OK
               : err_set(ERR_MEMORY, "out of memory");
}

static enum err run_plan(const struct bench_options *options, json_t **result)
{
    enum err rc = ERR_OK;
    struct plan plan = { 0 };
    struct model_config config;
    int counts[ALL_MAX];
    const char *model = options->model != NULL ? options->model : PRESET;
    json_t *ways = json_array();
    for (int n = 0; n < options->plan_nodes; n++)
        counts[n] = options->plan_ranks;
    TRY_OUT(model_config_preset(model, &config));
    TRY_OUT(params_create(&config, &plan.params));
    TRY_OUT(topology_describe(counts, options->plan_nodes, &plan.topology));
    TRY_OUT(owner_create(plan.params, OWNER_CUT_BLOCKS, OWNER_LARGEST,
                         plan.topology->ranks, plan.topology->ranks, 1,
                         &plan.owner));
    TRY_OUT(add_way(&plan, "levels", 0, MICROSTEPS, ways));
    TRY_OUT(add_way(&plan, "ranges", 1, 1, ways));
    *result = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:O}", "bench", "comm",
                        "model", model, "nodes", options->plan_nodes, "ranks",
                        plan.topology->ranks, "microsteps", MICROSTEPS,
                        "looked_at", plan.looked, "ways", ways);
out:
    json_decref(ways);
    owner_destroy(plan.owner);
    topology_destroy(plan.topology);
    params_destroy(plan.params);
    return rc;
}

/* "64x8": digits alone. */
enum err bench_plan_take(void *into, char *value)
{
    struct bench_options *options = into;
    char *x = value, *end = value;
    long nodes = strspn(value, "0123456789") > 0 ? strtol(value, &x, 10) : 0;
    long ranks = *x == 'x' && strspn(x + 1, "0123456789") > 0
                     ? strtol(x + 1, &end, 10)
                     : 0;
    if (nodes < 1 || nodes > ALL_MAX || ranks < 1 || ranks > RANKS_MAX ||
        nodes * ranks > ALL_MAX || *end != '\0')
        return err_set(ERR_USAGE,
                       "--plan takes NODESxRANKS, as 64x8: nodes of 1 to %d "
                       "ranks, %d ranks in all at most, not '%.64s'",
                       RANKS_MAX, ALL_MAX, value);
    options->plan_nodes = (int)nodes;
    options->plan_ranks = (int)ranks;
    return ERR_OK;
}

enum err bench_comm(const struct bench_options *options, json_t **result)
{
    struct bench_options measured = *options;
    if (options->plan_nodes > 0)
        return run_plan(options, result);
    if (options->nodes > 0) {
        measured.model = options->model != NULL ? options->model : "10m";
        return bench_ranks("nodes", &measured, result);
    }
    if (options->model != NULL)
        return err_set(ERR_USAGE, "comm takes --model with --plan and --nodes "
                                  "alone: its measurement sums arrays of three "
                                  "sizes");
    measured.model = "125m"; /* a rank takes one, and does not look at it */
    return bench_ranks("comm", &measured, result);
}
