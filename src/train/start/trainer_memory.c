/* Makes the model, replica and batch for a microbatch that fits into memory,
 * and makes them again with a smaller one where it must. Whether something fits
 * is decided in train_memory.c.
 *
 * What a machine has is measured once, before anything is taken: afterwards the
 * run's own share would count as gone. "auto" of parallel.strategy is chosen by
 * rank 0 for the least that any rank has, and told to the others; it looks at the
 * last start's config.cfg, for the checkpoint with the run's microbatch is read
 * only when there is a replica to read it into.
 *
 * An allocation that fails on one rank is a smaller microbatch on all, as leaves
 * must be alike. Under "elastic" bits depend on it: there only a run without a step
 * takes a smaller one, if it was left to choose, and later the run ends. The replica
 * stays and only counts leaves anew; model, batch and losses are made for one
 * microbatch and go. */
#include "src/base/new.h"
#include "src/train/start/start.h"
#include "src/train/profile/profile.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/files/ckpt_index.h"
#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "src/comm/topology.h"
#include "src/data/set/loader.h"
#include "src/data/set/order.h"
#include "src/train/start/run_data.h"

/* What there is, before anything is taken. The ranks of a node have equal parts
 * of what it has left. */
static enum err measure_place(struct run *run)
{
    const struct kernel_memory *memory = run->engine.kernels->memory;
    struct topology *t = NULL;
    int sharing = comm_local_size(run->comm);
    assert(sharing > 0 && run->engine.place.ranks == 0);
    TRY(topology_create(run->comm, &t));
    int node_ranks = topology_count(t, t->node[run->rank]);
    int uneven = t->least != t->most ? t->nodes : 0;
    topology_destroy(t);
    size_t available = memory_available("");
    size_t space = memory_address_space();
    size_t part = 0;
    if (available != SIZE_MAX)
        part = available / (size_t)sharing + memory_resident();
    size_t text = 0, index = run_data_index_bytes(run->inputs.sets, &text);
    if (run->inputs.eval_sets != NULL)
        index += run_data_index_bytes(run->inputs.eval_sets, &text);
    run->engine.place = (struct train_memory_place){
        .kernels = run->engine.kernels,
        .threads = run->engine.threads,
        .ranks = run->ranks,
        .node_ranks = node_ranks,
        .uneven = uneven,
        .order = order_bytes(run->inputs.order),
        .indexes = index,
        .index_text = text,
        .room = memory->device ? 0 : part,
        .host_room = memory->device ? part : 0,
        .address_space = space == SIZE_MAX ? 0 : space + 1,
    };
    if (memory->device && memory->available != NULL)
        run->engine.place.room = memory->available();
    return ERR_OK;
}

/* What the last start had; NULL: the run is new, or nobody can tell. */
static struct train_settings *read_started(const struct run *run)
{
    char path[FSIO_PATH_MAX];
    struct train_settings *started;
    if (fsio_path(path, "%s/config.cfg", run->settings.run.dir) != ERR_OK ||
        !fsio_exists(path))
        return NULL;
    started = malloc(sizeof *started);
    if (started != NULL &&
        train_settings_read(path, NULL, 0, true, started) == ERR_OK)
        return started;
    log_warn("%s does not tell what the last start had: %s", path,
             started != NULL ? err_text() : "out of memory");
    free(started);
    return NULL;
}

/* Only "run" promises its bits for one strategy: there it stays, if it was left
 * open, and else its degree. */
static void keep_strategy(struct run *run, const struct train_settings *started,
                          bool open, char *why, size_t size)
{
    struct train_settings *s = &run->settings;
    size_t used = strlen(why);
    bool known = started->parallel.strategy != REPLICA_AUTO &&
                 (open || started->parallel.strategy == s->parallel.strategy);
    if (started->parallel.strategy == s->parallel.strategy &&
        started->parallel.shard_degree == s->parallel.shard_degree)
        return;
    if (known && s->parallel.determinism == DETERMINISM_RUN) {
        s->parallel.strategy = started->parallel.strategy;
        s->parallel.shard_degree = started->parallel.shard_degree;
        snprintf(why, size,
                 "parallel.strategy stays %s, and its degree, with which the "
                 "run was started: parallel.determinism is run",
                 replica_strategy_names[s->parallel.strategy]);
        return;
    }
    bool elastic = s->parallel.determinism == DETERMINISM_ELASTIC;
    snprintf(why + used, size - used, " (the last start had %s%s)",
             replica_strategy_names[started->parallel.strategy],
             elastic ? "; bits stay the same" : "");
}

/* The run's microbatch is in its checkpoint, which is read when the strategy is
 * settled; the last start had the same. A run without one is bound by nothing, but
 * goes on as it began if nobody has set another limit since. */
static int64_t expected_microbatch(const struct train_settings *s,
                                   const struct train_settings *started)
{
    assert(s->parallel.slots > 0);
    int64_t slot = s->train.global_batch / s->parallel.slots;
    int64_t then = started != NULL ? started->train.microbatch : 0;
    char newest[FSIO_PATH_MAX];
    bool known = then > 0 && slot % then == 0 &&
                 (started->memory.limit == s->memory.limit ||
                  ckpt_index_newest(newest, s->run.dir) == ERR_OK);
    return known && s->microbatch_automatic ? then : s->train.microbatch;
}

/* Rank 0. */
static enum err choose_strategy(struct run *run,
                                const struct train_memory_place *place,
                                const struct train_settings *started)
{
    struct train_settings *s = &run->settings;
    bool open = s->parallel.strategy == REPLICA_AUTO;
    char why[384];
    TRY(train_memory_strategy(s, place, (size_t)s->memory.limit, why,
                              sizeof why));
    if (started != NULL)
        keep_strategy(run, started, open, why, sizeof why);
    log_info("%s", why);
    return ERR_OK;
}

/* The place as all see it that choose for all: the rank that has least, the smallest node. */
static enum err agree_place(const struct run *run,
                            struct train_memory_place *place)
{
    struct topology *t = NULL;
    int64_t least[3];
    *place = run->engine.place;
    least[0] = place->room > 0 ? (int64_t)place->room : INT64_MAX;
    least[1] = place->host_room > 0 ? (int64_t)place->host_room : INT64_MAX;
    least[2] = -place->threads;
    TRY(comm_all_reduce_i64(run->comm, least, 3, COMM_MIN));
    TRY(comm_agree(run->comm, topology_create(run->comm, &t)));
    place->room = least[0] == INT64_MAX ? 0 : (size_t)least[0];
    place->host_room = least[1] == INT64_MAX ? 0 : (size_t)least[1];
    place->threads = (int)-least[2];
    place->address_space = 0;
    place->node_ranks = t->least;
    place->group_ranks = topology_group(t);
    topology_destroy(t);
    return ERR_OK;
}

/* A run goes on with what its last start had, "auto" becomes the same on all ranks, for
 * the one that has least. */
static enum err settle_strategy(struct run *run)
{
    enum err rc = ERR_OK;
    struct train_settings *s = &run->settings;
    struct train_settings *started = NULL;
    struct train_memory_place place;
    if (run->rank == 0)
        started = read_started(run);
    run->engine.place.resumed = started != NULL;
    TRY_OUT(comm_broadcast(run->comm, &run->engine.place.resumed,
                           sizeof run->engine.place.resumed, 0));
    s->train.microbatch = expected_microbatch(s, started);
    TRY_OUT(comm_broadcast(run->comm, &s->train.microbatch,
                           sizeof s->train.microbatch, 0));
    if (!train_memory_chooses(s, &run->engine.place))
        goto out;
    TRY_OUT(agree_place(run, &place));
    if (run->rank == 0)
        rc = choose_strategy(run, &place, started);
    TRY_OUT(comm_agree(run->comm, rc));
    TRY_OUT(comm_broadcast(run->comm, &s->parallel.strategy,
                           sizeof s->parallel.strategy, 0));
    TRY_OUT(comm_broadcast(run->comm, &s->parallel.shard_degree,
                           sizeof s->parallel.shard_degree, 0));
out:
    free(started);
    return rc;
}

/* The first sample of each set, so that an evaluation that cannot work fails now and not
 * after days. */
static enum err probe_eval(struct run *run)
{
    const struct run_data *sets = run->inputs.eval_sets;
    for (int i = 0; sets != NULL && i < sets->count; i++)
        TRY(loader_read(&sets->sets[i], run->inputs.eval_orders[i], 0, 1,
                        run->inputs.batch));
    return ERR_OK;
}

/* What depends on the microbatch, as far as it is not there; may fail on one
 * rank alone. */
static enum err make_leaf(struct run *run)
{
    const struct train_settings *s = &run->settings;
    struct replica_options replica = train_memory_replica(s);
    size_t leaves = (size_t)replica.slots * (size_t)replica.leaves;
    if (run->inputs.batch != NULL)
        return ERR_OK;
    assert(leaves > 0 && run->engine.model == NULL);
    TRY(train_memory_check(s, &run->engine.place));
    TRY(batch_create(s->train.microbatch, s->data.seq_len, &run->inputs.batch));
    run->inputs.batch->truncate = s->data.too_long == TOO_LONG_TRUNCATE;
    run->inputs.batch->joined = !s->model.attn_uses_sequence_id;
    TRY(probe_eval(run));
    TRY(new_zeroed(&run->engine.leaf_loss, leaves));
    TRY(new_zeroed(&run->engine.leaf_balance, leaves));
    return trainer_losses_create(run->engine.kernels->memory, (int64_t)leaves,
                                 replica.sequence_chunks, &run->engine.losses);
}

/* With the replica's groups; may fail on one rank alone. */
static enum err make_model(struct run *run)
{
    const struct model_config *config = &run->settings.model;
    struct model_options options;
    if (run->engine.model != NULL)
        return ERR_OK;
    TRY(train_memory_model(&run->settings, run->engine.threads, &options));
    options.stream = run->engine.stream;
    options.profile = trainer_profile_ops(run);
    options.sequence = replica_sequence(run->engine.replica);
    options.experts = replica_experts(run->engine.replica);
    if (options.sequence != NULL)
        options.first_place = options.sequence->rank * options.own_chunks;
    TRY(model_create(config, run->engine.params, run->engine.kernels, &options,
                     &run->engine.model));
    if (run->engine.fp8 != NULL) {
        TRY(trainer_fp8_give(run->engine.fp8, run->engine.model));
        /* what is loaded next takes their place */
        TRY(run->engine.kernels->memory->wait(run->engine.stream));
    }
    run->engine.ctx = *model_ctx(run->engine.model);
    return trainer_ahead_create(run);
}

static void drop_leaf(struct run *run)
{
    model_destroy(run->engine.model);
    trainer_ahead_destroy(run);
    batch_destroy(run->inputs.batch);
    free(run->engine.leaf_loss);
    free(run->engine.leaf_balance);
    trainer_losses_destroy(&run->engine.losses);
    run->engine.model = NULL;
    run->inputs.batch = NULL;
    run->engine.leaf_loss = NULL;
    run->engine.leaf_balance = NULL;
}

/* Its kernels have the context of the model that follows. */
static enum err make_replica(struct run *run)
{
    struct replica_options options = train_memory_replica(&run->settings);
    if (run->engine.replica != NULL)
        return replica_set_leaves(run->engine.replica, options.leaves,
                                  options.once);
    return replica_create(run->comm, run->engine.kernels, &run->engine.ctx,
                          run->engine.params, &options, &run->engine.replica);
}

/* The same on all ranks, for the one that has least; or no more. */
static enum err settle_once(struct run *run)
{
    struct train_settings *s = &run->settings;
    s->once = false;
    if (run->engine.each || s->parallel.shard_degree <= 1)
        return ERR_OK;
    enum err rc =
        train_memory_once(s, &run->engine.place, (size_t)s->memory.limit);
    int64_t once = s->once;
    TRY(comm_agree(run->comm, rc));
    TRY(comm_all_reduce_i64(run->comm, &once, 1, COMM_MIN));
    s->once = once != 0;
    if (s->once && run->rank == 0)
        log_info("shard groups exchange gradients once a step");
    return ERR_OK;
}

/* One smaller, without making it; `begun`: bits may depend on the one there is. */
static enum err step_down(struct run *run, bool begun)
{
    struct train_settings *s = &run->settings;
    int64_t smaller = train_memory_smaller(s->train.microbatch);
    bool elastic = s->parallel.determinism == DETERMINISM_ELASTIC;
    if (smaller == 0 || (elastic && (begun || !s->microbatch_automatic)))
        return ERR_MEMORY;
    if (run->rank == 0 && elastic && run->engine.place.resumed)
        log_warn(
            "train.microbatch is now %lld, no longer %lld, for which there "
            "is no memory, if no checkpoint of the run has another one",
            (long long)smaller, (long long)s->train.microbatch);
    else if (run->rank == 0)
        log_warn("train.microbatch is now %lld, no longer %lld%s: %s",
                 (long long)smaller, (long long)s->train.microbatch,
                 elastic ? " (the run keeps it, and has the bits of it)" : "",
                 err_text());
    s->train.microbatch = smaller;
    run->engine.shrunk = true;
    return ERR_OK;
}

/* Without sums that wait for other groups, from now on, before bits change. */
static enum err take_less(struct run *run, bool begun)
{
    if (!run->settings.once)
        return step_down(run, begun);
    if (run->rank == 0)
        log_warn("shard groups exchange gradients in each microstep, and not "
                 "once a step: %s",
                 err_text());
    run->engine.each = true;
    return ERR_OK;
}

enum err trainer_memory_create(struct run *run)
{
    enum err rc = ERR_OK;
    if (run->engine.place.ranks == 0) {
        TRY(comm_agree(run->comm, measure_place(run)));
        TRY(settle_strategy(run));
    }
    assert(run->settings.parallel.strategy != REPLICA_AUTO);
    for (;;) {
        TRY(settle_once(run));
        rc = comm_agree(run->comm, make_leaf(run));
        if (rc == ERR_OK)
            rc = comm_agree(run->comm, make_replica(run));
        if (rc == ERR_OK)
            rc = comm_agree(run->comm, make_model(run));
        if (rc != ERR_MEMORY)
            return rc;
        TRY(take_less(run, run->engine.adopted));
        drop_leaf(run);
    }
}

enum err trainer_memory_shrink(struct run *run)
{
    TRY(take_less(run, run->engine.adopted || run->position.step > 0));
    drop_leaf(run);
    return trainer_memory_create(run);
}

enum err trainer_memory_adopt(struct run *run, int64_t microbatch)
{
    run->settings.train.microbatch = microbatch;
    run->engine.place.resumed = run->engine.adopted = true;
    assert(microbatch > 0);
    drop_leaf(run);
    return trainer_memory_create(run);
}

enum err trainer_memory_plan(const struct run *run, struct memory_plan *out)
{
    return train_memory_plan(&run->settings, &run->engine.place, out);
}
