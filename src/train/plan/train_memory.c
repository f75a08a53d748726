/* Compares what a configuration needs with what there is: the automatic
 * microbatch, and whether a run fits. What it needs is counted by
 * src/parallel/memory_plan.c; other ways to run it are in
 * train_memory_ways.c.
 *
 * A plan is laid out by the code that lays out the run, with nothing behind the
 * addresses: no estimate that could drift from what is taken. It holds for one
 * microbatch and one strategy, so what fits is found by trying: microbatches from
 * the largest down, ranks from few to many.
 *
 * Four limits are compared with one plan: memory.limit with all of it; where
 * tensors lie, what the place has there, in which the weights that ranks of a
 * node share count once; on a device also the host's part; and with ulimit -v the
 * address space, of which stacks of threads take some that they never touch. */
#include "src/train/plan/train_memory.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clean.h"
#include "src/base/new.h"
#include "src/base/units.h"
#include "src/parallel/norms.h"
#include "src/train/plan/trainer_backend.h"

/* For what is measured on a device (trainer_choices.c): less than it takes there. */
#define ONCE_LEFT_BYTES ((size_t)2 << 30)

static enum replica_strategy strategy_of(const struct train_settings *s)
{
    if (s->parallel.strategy != REPLICA_AUTO)
        return s->parallel.strategy;
    if (s->parallel.shard_degree > 0)
        return REPLICA_ZERO3;
    bool by_block = s->parallel.expert_degree > 1 ||
                    s->parallel.sequence_degree > 1 ||
                    s->parallel.sequence_chunks > 1 ||
                    s->parallel.reduce_precision == REDUCE_BF16;
    return by_block ? REPLICA_ZERO2 : REPLICA_ZERO1;
}

struct replica_options
train_memory_replica(const struct train_settings *settings)
{
    const struct train_settings *s = settings;
    assert(s->parallel.slots > 0 && s->parallel.sequence_chunks > 0);
    int64_t slot = s->train.global_batch / s->parallel.slots;
    int64_t leaves = s->train.microbatch > 0 ? slot / s->train.microbatch : 1;
    int chunks = (int)s->parallel.sequence_chunks;
    struct replica_options options = {
        .strategy = strategy_of(s),
        .dtype = trainer_backend_dtype(s),
        .exchange = trainer_backend_exchange(s),
        .optimizer = optimizer_at(s->optimizer.name),
        .groups = s->groups.list,
        .group_count = s->groups.count,
        .shard_degree =
            s->parallel.shard_degree > 0 ? (int)s->parallel.shard_degree : 0,
        .prefetch = (int)s->parallel.prefetch,
        .slots = (int)s->parallel.slots,
        .leaves = (leaves > 0 ? (int)leaves : 1) * chunks,
        .sequence_chunks = chunks,
        .sequence_degree = (int)s->parallel.sequence_degree,
        .expert_degree = (int)s->parallel.expert_degree,
        .exact = s->parallel.determinism == DETERMINISM_ELASTIC,
        .reduce_bf16 = s->parallel.reduce_precision == REDUCE_BF16,
        /* what scores tasks takes the room that is left (on_tasks.c) */
        .once =
            s->once && s->eval.tasks[0] == '\0' && s->eval.gauntlet[0] == '\0',
    };
    memcpy(options.kept, s->needs.kept, sizeof options.kept);
    return options;
}

int train_memory_ranks_max(const struct train_settings *settings)
{
    int64_t parts = settings->parallel.slots;
    int64_t microbatch = settings->train.microbatch;
    if (settings->parallel.strategy >= REPLICA_ZERO2 && microbatch > 0 &&
        settings->train.global_batch > parts * microbatch)
        parts = settings->train.global_batch / microbatch;
    return (int)(parts * settings->parallel.sequence_degree);
}

enum err train_memory_model(const struct train_settings *settings, int threads,
                            struct model_options *out)
{
    const struct train_settings *s = settings;
    *out = (struct model_options){
        .threads = threads,
        .samples = s->train.microbatch,
        .seq_len = s->data.seq_len,
        .seed = (uint64_t)s->train.seed,
        .dtype = trainer_backend_dtype(s),
        .fp8 = trainer_backend_fp8(s),
        .chunks = (int)s->parallel.sequence_chunks,
        .own_chunks =
            (int)(s->parallel.sequence_chunks / s->parallel.sequence_degree),
        .expert_degree = (int)s->parallel.expert_degree,
        .frozen = train_settings_freezes(s),
        .lora = { .rank = s->lora.rank,
                  .alpha = s->lora.alpha,
                  .dropout = s->lora.dropout,
                  .targets = s->lora.targets },
        .target = s->needs.target,
        .drop_depth = s->needs.drop_depth,
        .embedding_shrink = s->needs.embedding_shrink,
        .graphs = s->hardware.graphs != GRAPHS_OFF,
    };
    return train_settings_memory(s, &out->memory);
}

/* At a later start a run reads what its checkpoints lack, and no more. */
static bool reads_weights(const struct train_settings *settings, bool resumed)
{
    struct start_from from = train_settings_from(settings);
    bool named = from.path[0] != '\0';
    if (train_settings_freezes(settings))
        return named || resumed;
    return named && !from.state && !resumed;
}

size_t train_memory_norms(const struct train_settings *settings,
                          const struct params *params)
{
    struct replica_options replica = train_memory_replica(settings);
    /* the fragments' sums, and of weights and gradient the units' */
    size_t units = settings->needs.units ? 3 * norms_bytes(params, true) : 0;
    if (settings->monitor.norms.value <= 0.0)
        return units;
    return units +
           norms_watch_bytes(params, replica_whole(&replica, params) != NULL) +
           (size_t)params->count * sizeof(double);
}

/* Nodes that keep parity of each other's shards; 0: none. */
static int parity_nodes(const struct train_settings *s,
                        const struct train_memory_place *place)
{
    if (s->checkpoint.local_dir[0] == '\0' || place->node_ranks == 0)
        return 0;
    return place->uneven > 0
               ? place->uneven
               : (place->ranks + place->node_ranks - 1) / place->node_ranks;
}

enum err train_memory_plan_with(const struct train_settings *settings,
                                const struct train_memory_place *place,
                                const struct params *params,
                                struct memory_plan *out)
{
    struct memory_plan_input input = {
        .config = &settings->model,
        .params = params,
        .kernels = place->kernels,
        .replica = train_memory_replica(settings),
        .ranks = place->ranks,
        .node_ranks = place->node_ranks,
        .uneven = place->uneven,
        .prefetch = (int)settings->data.prefetch,
        .order = place->order,
        .indexes = place->indexes,
        .index_text = place->index_text,
        .stage = settings->checkpoint.async,
        .norms = train_memory_norms(settings, params),
        .reads = reads_weights(settings, place->resumed),
        .parity_nodes = parity_nodes(settings, place),
        .parity_group = settings->checkpoint.redundancy == REDUNDANCY_XOR
                            ? (int)settings->checkpoint.redundancy_group
                            : 2,
        .kept = settings->checkpoint.keep_state,
        .mirrors = settings->checkpoint.mirror[0] != '\0',
    };
    assert(place->ranks > 0 && place->threads > 0 && place->kernels != NULL);
    TRY(train_memory_model(settings, place->threads, &input.options));
    return memory_plan(&input, out);
}

enum err train_memory_plan(const struct train_settings *settings,
                           const struct train_memory_place *place,
                           struct memory_plan *out)
{
    enum err rc = ERR_OK;
    struct params *params = NULL;
    TRY_OUT(train_settings_params(settings, &params));
    TRY_OUT(train_memory_plan_with(settings, place, params, out));
out:
    params_destroy(params);
    return rc;
}

static bool has_room(size_t bytes, size_t room)
{
    return room == 0 ||
           (double)bytes * (1.0 + TRAIN_MEMORY_MARGIN) <= (double)room;
}

bool train_memory_fits(const struct memory_plan *plan,
                       const struct train_memory_place *place,
                       size_t limit_bytes)
{
    size_t node =
        (size_t)(place->node_ranks > 0 ? place->node_ranks : place->ranks);
    assert(node > 0 && plan->shared <= plan->total);
    /* a device's sums that wait for groups are none that anything else is short for */
    size_t left = plan->once && plan->host > 0 ? ONCE_LEFT_BYTES : 0;
    size_t here = plan->total + left - plan->shared / node * (node - 1);
    /* all that the plan counts and the threads' stacks, the saver's and the
     * lock's among them: little more than is missing at this moment */
    size_t host = plan->host > 0 ? plan->host : plan->total;
    size_t mapped =
        host + ((size_t)place->threads + 1) * kernels_thread_space();
    if (plan->total >= ARENA_BYTES_MAX)
        return false;
    return (limit_bytes == 0 || plan->total + left <= limit_bytes) &&
           has_room(here, place->room) &&
           has_room(plan->host, place->host_room) &&
           (place->address_space == 0 || mapped <= place->address_space);
}

enum err train_memory_once(struct train_settings *settings,
                           const struct train_memory_place *place,
                           size_t limit_bytes)
{
    struct memory_plan plan;
    settings->once = settings->parallel.strategy == REPLICA_ZERO3 &&
                     settings->parallel.shard_degree > 1;
    if (!settings->once)
        return ERR_OK;
    TRY(train_memory_plan(settings, place, &plan));
    settings->once = plan.once && train_memory_fits(&plan, place, limit_bytes);
    return ERR_OK;
}

int64_t train_memory_smaller(int64_t microbatch)
{
    assert(microbatch > 0);
    for (int64_t factor = 2; factor * factor <= microbatch; factor++)
        if (microbatch % factor == 0)
            return microbatch / factor;
    return microbatch > 1 ? 1 : 0;
}

static int64_t common_multiple(int64_t a, int64_t b)
{
    int64_t multiple = a;
    assert(a > 0 && b > 0);
    while (multiple % b != 0)
        multiple += a;
    return multiple;
}

/* The number of ranks that is tried after `ranks`, which the degrees divide;
 * 0: none. From the least common multiple of the degrees on it doubles, and ends
 * with the most that there can be: few tries find a number that is at most twice
 * the smallest with which the run fits. */
static int more_ranks(int ranks, const struct train_settings *settings)
{
    int64_t shard = settings->parallel.shard_degree;
    int64_t least = common_multiple(settings->parallel.expert_degree,
                                    settings->parallel.sequence_degree);
    least = common_multiple(least, shard > 0 ? shard : 1);
    int64_t most = train_memory_ranks_max(settings) / least * least;
    int64_t next = least;
    while (next <= ranks)
        next *= 2;
    if (next < most)
        return (int)next;
    return ranks < most ? (int)most : 0;
}

/* The largest microbatch up to the settings' with which they fit. */
static enum err fit_microbatch(struct train_settings *settings,
                               const struct train_memory_place *place,
                               size_t limit_bytes, bool *fits)
{
    int64_t begin = settings->train.microbatch;
    *fits = false;
    for (int64_t micro = begin; micro > 0;
         micro = train_memory_smaller(micro)) {
        settings->train.microbatch = micro;
        TRY(train_memory_fit(settings, place, limit_bytes, fits));
        if (*fits)
            return ERR_OK;
    }
    settings->train.microbatch = begin;
    return ERR_OK;
}

enum err train_memory_auto(const struct train_settings *settings,
                           int64_t *microbatch)
{
    enum err rc = ERR_OK;
    int64_t threads = settings->hardware.threads;
    bool fits = false;
    struct train_memory_place place = { .threads = threads > 0
                                                       ? (int)threads
                                                       : TRAIN_MEMORY_THREADS };
    struct train_settings *trial = NULL;
    TRY(new_room(&trial, 1));
    *trial = *settings;
    trial->monitor.norms.value = 0.0; /* the run is the same with it */
    trial->train.microbatch =
        settings->train.global_batch / settings->parallel.slots;
    *microbatch = trial->train.microbatch;
    if (settings->memory.limit == 0)
        goto out;
    /* the processor's is of every build and processor */
    if (trainer_backend_dtype(settings) != DTYPE_F32 ||
        settings->hardware.backend == BACKEND_CUDA)
        TRY_OUT(trainer_backend_plan(settings, &place.kernels));
    else
        TRY_OUT(kernels_find_planned("cpu", "generic", &place.kernels));
    for (int ranks = more_ranks(0, settings); ranks > 0 && !fits;
         ranks = more_ranks(ranks, settings)) {
        place.ranks = ranks;
        TRY_OUT(fit_microbatch(trial, &place, (size_t)settings->memory.limit,
                               &fits));
    }
    *microbatch = fits ? trial->train.microbatch : 1;
out:
    free(trial);
    assert(rc != ERR_OK || *microbatch > 0);
    return rc;
}

enum err train_memory_nearest(const struct train_settings *settings,
                              const struct train_memory_place *place,
                              size_t limit_bytes,
                              struct train_memory_nearest *out)
{
    struct train_memory_place at = *place;
    bool chained = false;
    out->count = 0;
    while (at.ranks > 0 && out->count == 0) {
        TRY(train_memory_ways(settings, &at, limit_bytes, chained,
                              TRAIN_MEMORY_WAYS_MAX, out->ways, &out->count));
        out->ranks = at.ranks;
        at.ranks = more_ranks(at.ranks, settings);
        if (at.ranks == 0 && !chained) {
            chained = true;
            at.ranks = place->ranks;
        }
    }
    out->found = out->count > 0;
    if (out->found)
        train_memory_apply(settings, &out->ways[0], &out->settings);
    return ERR_OK;
}

void train_memory_changes(const struct train_settings *settings, int ranks,
                          const struct train_settings *near, int near_ranks,
                          char *text, size_t size)
{
    text[0] = '\0';
    if (near->parallel.strategy != settings->parallel.strategy)
        clean_join(text, size, " ", "parallel.strategy=%s",
                   replica_strategy_names[near->parallel.strategy]);
    if (near->parallel.shard_degree != settings->parallel.shard_degree &&
        (near->parallel.shard_degree > 0 ||
         settings->parallel.shard_degree > 0))
        clean_join(text, size, " ", "parallel.shard_degree=%lld",
                   (long long)near->parallel.shard_degree);
    if (near->parallel.slots != settings->parallel.slots)
        clean_join(text, size, " ", "parallel.slots=%lld",
                   (long long)near->parallel.slots);
    if (near->train.microbatch != settings->train.microbatch)
        clean_join(text, size, " ", "train.microbatch=%lld",
                   (long long)near->train.microbatch);
    if (strcmp(near->memory.checkpoint, settings->memory.checkpoint) != 0)
        clean_join(text, size, " ", "memory.checkpoint=\"%s\"",
                   near->memory.checkpoint);
    if (near->memory.compression != settings->memory.compression)
        clean_join(text, size, " ", "memory.compression=%s",
                   packing_names[near->memory.compression]);
    if (near->checkpoint.async != settings->checkpoint.async)
        clean_join(text, size, " ", "checkpoint.async=false");
    if (near_ranks != ranks)
        clean_join(text, size, " ", "%d ranks", near_ranks);
    if (text[0] == '\0') /* "auto" finds it there */
        clean_join(text, size, " ", "as it is");
}

/* Which limit it is that the plan exceeds, and how much it leaves. */
static void name_limit(const struct memory_plan *plan,
                       const struct train_memory_place *place,
                       size_t limit_bytes, char *text, size_t size)
{
    char bytes[32];
    struct train_memory_place only = { .threads = place->threads,
                                       .ranks = place->ranks,
                                       .node_ranks = place->node_ranks };
    if (!train_memory_fits(plan, &only, limit_bytes)) {
        units_bytes((double)limit_bytes, bytes, sizeof bytes);
        snprintf(text, size, "memory.limit is %s", bytes);
        return;
    }
    only.address_space = place->address_space;
    if (!train_memory_fits(plan, &only, 0)) {
        units_bytes((double)place->address_space, bytes, sizeof bytes);
        snprintf(text, size,
                 "ulimit -v or -d leaves %s of address space, and each "
                 "thread's stack (ulimit -s) takes %zu MiB of it besides",
                 bytes, kernels_thread_space() >> 20);
        return;
    }
    only.room = place->room;
    bool tensors = !train_memory_fits(plan, &only, 0);
    bool device = plan->host > 0;
    units_bytes((double)(tensors ? place->room : place->host_room), bytes,
                sizeof bytes);
    snprintf(text, size,
             tensors && device ? "its GPU has %s left"
                               : "the node has %s for each of its ranks "
                                 "(cgroup or memory)",
             bytes);
}

enum err train_memory_check(const struct train_settings *settings,
                            const struct train_memory_place *place)
{
    enum err rc = ERR_OK;
    struct memory_plan plan;
    char need[32], limit[160], changes[256];
    size_t limit_bytes = (size_t)settings->memory.limit;
    TRY(train_memory_plan(settings, place, &plan));
    if (train_memory_fits(&plan, place, limit_bytes))
        return ERR_OK;
    struct train_memory_nearest *nearest = NULL;
    TRY(new_room(&nearest, 1));
    TRY_OUT(train_memory_nearest(settings, place, limit_bytes, nearest));
    units_bytes((double)plan.total, need, sizeof need);
    name_limit(&plan, place, limit_bytes, limit, sizeof limit);
    snprintf(changes, sizeof changes, "nothing near, on any number of ranks");
    if (nearest->found)
        train_memory_changes(settings, place->ranks, &nearest->settings,
                             nearest->ranks, changes, sizeof changes);
    rc = err_set(ERR_MEMORY,
                 "a rank needs %s of memory with train.microbatch=%lld, %s; "
                 "what fits: %s (tessera-plan shows it by kind)",
                 need, (long long)settings->train.microbatch, limit, changes);
out:
    free(nearest);
    return rc;
}
