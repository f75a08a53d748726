/* A training run on this rank: makes its parts, resolves its schedule, and runs
 * the loop of epochs, steps and events. One step is in trainer_step.c, memory
 * in trainer_memory.c, and what surrounds a run (lock, ledger, exit code) in
 * train_run.c.
 *
 * Ranks call the same functions in the same order; where one could fail alone, all
 * agree behind it (comm_agree), so that none waits for one that has left. A start
 * does so after each part; a step when its gradients are there, and by the
 * exchange at its end, which brings times, what listeners ask for, and who has
 * failed. Whether the run goes on is decided from what all ranks have alike: what
 * was exchanged, sums, the settings, never from a rank's own clock or signal.
 */
#include "src/mirror/home.h"
#include "src/train/loop/trainer.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/comm/topology.h"
#include "src/data/set/order.h"
#include "src/job/stop.h"
#include "src/train/plan/trainer_backend.h"
#include "src/train/start/start.h"
#include "src/train/profile/profile.h"

/* Kernel sets of the processor differ in speed only, those of GPUs in bits. */
static void name_arithmetic(struct run *run)
{
    const struct kernels *kernels = run->engine.kernels;
    bool cpu = strcmp(kernels->backend, "cpu") == 0;
    char text[224], chunks[32] = "";
    kernels->describe(text, sizeof text);
    if (run->settings.parallel.sequence_chunks > 1)
        snprintf(chunks, sizeof chunks, ", chunks %d", MODEL_CHUNKS);
    snprintf(run->engine.arithmetic, sizeof run->engine.arithmetic,
             "%s%s%s %s, sums %d%s", kernels->backend, cpu ? "" : "/",
             cpu ? "" : kernels->kernel_set, text, REPLICA_SUMS, chunks);
}

static enum err open_kernels(struct run *run)
{
    TRY(trainer_backend_find(&run->settings, run->ranks, &run->engine.kernels));
    const struct kernel_memory *memory = run->engine.kernels->memory;
    TRY(memory->use(comm_local_rank(run->comm)));
    /* the libraries' handles belong to the GPU that is used when they are made */
    if (run->engine.kernels->allow_fallback != NULL)
        TRY(run->engine.kernels->allow_fallback(
            trainer_backend_falls_back(&run->settings)));
    TRY(memory->stream_create(false, &run->engine.stream));
    TRY(memory->event_create(&run->engine.copied));
    run->engine.ctx.stream = run->engine.stream;
    name_arithmetic(run);
    return ERR_OK;
}

/* Durations become steps. */
static enum err plan_steps(struct run *run)
{
    const struct train_settings *s = &run->settings;
    TRY(trainer_schedule(s, order_epoch(run->inputs.order), &run->plan));
    return trainer_schedule_check(s, &run->plan);
}

/* What may fail on one rank alone; the caller agrees. */
static enum err create_local(struct run *run)
{
    const struct train_settings *s = &run->settings;
    const struct model_config *config = &s->model;
    TRY(plan_steps(run));
    TRY(train_settings_params(s, &run->engine.params));
    if (trainer_backend_fp8(s))
        TRY(trainer_fp8_create(run->engine.kernels->memory,
                               model_fp8_count(config), &run->engine.fp8));
    return trainer_record_create(run);
}

static enum err check_ranks(const struct train_settings *s, int ranks)
{
    int most = train_memory_ranks_max(s);
    bool leaves = s->parallel.strategy >= REPLICA_ZERO2;
    if (ranks <= most)
        return ERR_OK;
    return err_set(ERR_USAGE,
                   "%d ranks, but this run can have at most %d: a global batch "
                   "has %s = %lld%s; start at most that many, or %s for a new "
                   "run",
                   ranks, most,
                   leaves ? "leaves of train.microbatch" : "parallel.slots",
                   (long long)(most / s->parallel.sequence_degree),
                   s->parallel.sequence_degree > 1
                       ? ", each for parallel.sequence_degree ranks"
                       : "",
                   leaves ? "lower train.microbatch"
                          : "raise parallel.slots (a divisor of "
                            "train.global_batch)");
}

/* Ranks that exchange most are neighbours, but may be on two nodes for no need. */
static enum err warn_torn(const struct run *run)
{
    const struct replica_options o = train_memory_replica(&run->settings);
    const struct {
        const char *name;
        int degree;
    } groups[] = { { "shard_degree", o.shard_degree },
                   { "expert_degree", o.expert_degree },
                   { "sequence_degree", o.sequence_degree } };
    struct topology *t = NULL;
    TRY(topology_create(run->comm, &t));
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        int degree = groups[i].degree;
        int first = degree > 1 ? topology_torn(t, degree) : -1;
        if (first >= 0 && run->rank == 0)
            log_warn("parallel.%s (%d): ranks %d to %d are on more nodes than "
                     "they must be, from %s to %s: choose a divisor of the "
                     "ranks of every node, or they exchange over the network",
                     groups[i].name, degree, first, first + degree - 1,
                     comm_host(run->comm, first),
                     comm_host(run->comm, first + degree - 1));
    }
    topology_destroy(t);
    return ERR_OK;
}

enum err trainer_create(struct comm *comm,
                        const struct train_settings *settings, int attempt,
                        struct run **out)
{
    enum err rc = ERR_OK;
    struct run *run = NULL;
    assert(attempt > 0 && !settings->partial);
    TRY(new_zeroed(&run, 1));
    run->settings = *settings;
    run->comm = comm;
    run->rank = comm_rank(comm);
    run->ranks = comm_size(comm);
    run->events.rank = run->rank;
    run->attempt = attempt;
    run->position.lr0 = settings->optimizer.lr;
    trainer_groups_begin(run);
    run->now.seq_len = settings->data.seq_len;
    rc = check_ranks(settings, run->ranks);
    struct replica_options options = train_memory_replica(settings);
    if (rc == ERR_OK)
        rc = replica_check(&options, run->ranks);
    TRY_OUT(comm_agree(comm, rc));
    TRY_OUT(start_threads(comm, (int)settings->hardware.threads,
                          &run->engine.threads));
    kernels_spread_threads(run->engine.threads);
    TRY_OUT(comm_agree(comm, open_kernels(run)));
    TRY_OUT(trainer_data_open(run));
    TRY_OUT(comm_agree(comm, create_local(run)));
    TRY_OUT(start_devices(comm, run->engine.kernels->memory,
                          trainer_backend_falls_back(&run->settings),
                          run->engine.devices, sizeof run->engine.devices));
    TRY_OUT(start_same(run));
    TRY_OUT(start_files(run));
    TRY_OUT(trainer_profile_create(run));
    TRY_OUT(trainer_memory_create(run));
    TRY_OUT(comm_agree(comm, warn_torn(run)));
    TRY_OUT(comm_agree(
        comm, algorithms_create(&run->algorithms, &run->settings, run)));
out:
    return new_or_none(rc, run, out, trainer_destroy);
}

/* After all that is on the device. */
static void close_kernels(struct run *run)
{
    if (run->engine.copied != NULL)
        run->engine.kernels->memory->event_destroy(run->engine.copied);
    if (run->engine.stream != NULL)
        run->engine.kernels->memory->stream_destroy(run->engine.stream);
}

bool trainer_destroy(struct run *run)
{
    if (run == NULL)
        return true;
    if (!events_leave(&run->events, true))
        return false;
    events_destroy(&run->events);
    algorithms_destroy(&run->algorithms);
    model_destroy(run->engine.model);
    replica_destroy(run->engine.replica);
    params_destroy(run->engine.params);
    trainer_ahead_destroy(run);
    batch_destroy(run->inputs.batch);
    trainer_data_close(run);
    trainer_losses_destroy(&run->engine.losses);
    trainer_fp8_destroy(run->engine.fp8);
    trainer_profile_destroy(run);
    close_kernels(run);
    free(run->engine.leaf_loss);
    free(run->engine.leaf_balance);
    trainer_record_destroy(run);
    free(run->engine.choices);
    json_decref(run->inputs.text);
    json_decref(run->engine.base);
    json_decref(run->position.rollback_events);
    rollback_free(&run->position.rollbacks);
    free(run);
    return true;
}

enum err trainer_roll_call(struct run *run, enum err rc)
{
    assert(rc != ERR_OK);
    bool shares =
        run->engine.replica != NULL && replica_shares(run->engine.replica);
    if (!shares || (rc != ERR_COMM && !run->engine.adrift))
        return rc;
    run->engine.adrift = true;
    return replica_roll_call(run->engine.replica, rc);
}

enum err trainer_event(struct run *run, enum event event)
{
    trainer_record_position(run);
    trainer_pace_rest(run, true);
    enum err rc = events_run(&run->events, event, &run->now.record);
    trainer_pace_rest(run, false);
    return rc;
}

/* By rank 0's clock where the duration is in seconds. */
static bool reached_end(const struct run *run, double elapsed_s)
{
    return run->plan.max_steps >= 0
               ? run->position.step >= run->plan.max_steps
               : elapsed_s >=
                     trainer_schedule_max_duration(&run->settings).value;
}

/* For a run that needs no further step. */
static void finish(struct run *run, double elapsed_s)
{
    char duration[40];
    struct step_record *record = &run->now.record;
    run->now.finished =
        run->position.ended_early || reached_end(run, elapsed_s);
    if (!run->now.finished || run->position.ended_early)
        return;
    units_format(run->settings.train.max_duration, duration, sizeof duration);
    snprintf(record->why, sizeof record->why, "train.max_duration = %s reached",
             duration);
}

enum err trainer_start(struct run *run)
{
    assert(run->position.step == 0 && !run->now.finished);
    TRY(trainer_event(run, EVENT_INIT));
    TRY(trainer_event(run, EVENT_BEFORE_LOAD));
    if (run->engine.fp8 != NULL)
        TRY(trainer_fp8_give(run->engine.fp8, run->engine.model));
    if (run->position.step == 0)
        TRY(trainer_weights_init(run));
    else
        TRY(trainer_base_fill(run));
    home_end(); /* what was read is here */
    TRY(comm_agree(run->comm, algorithms_begin(&run->algorithms)));
    TRY(trainer_event(run, EVENT_AFTER_LOAD));
    finish(run, run->position.elapsed_s);
    return comm_agree(run->comm, err_again(&run->events.held));
}

/* Does the step that follows `step` completed ones begin a new epoch? */
static bool epoch_begins(const struct run *run, int64_t step)
{
    int64_t epoch = run->plan.rates.samples_per_epoch;
    assert(epoch > 0 && step >= 0);
    return step == 0 || trainer_rollback_position(run, step) / epoch !=
                            trainer_rollback_position(run, step - 1) / epoch;
}

/* The run ends here, by the largest of what was asked for. */
static void stop(struct run *run, int number)
{
    struct step_record *record = &run->now.record;
    run->now.stop_signal = number;
    if (number != 0 && !run->now.finished)
        snprintf(record->why, sizeof record->why, "stopped by %s",
                 stop_text(number));
}

/* What the ranks have to tell each other decides whether the run goes on. */
static enum err exchange(struct run *run)
{
    TRY(trainer_event(run, EVENT_BATCH_ASK));
    TRY(trainer_record_exchange(run));
    run->position.ended_early |= run->now.record.agreed[ASK_FINISH] != 0;
    finish(run, run->now.of_rank[0].elapsed_s);
    stop(run, (int)run->now.record.agreed[ASK_STOP]);
    return ERR_OK;
}

/* The ranks have agreed to stop amid the step, whose work is lost: what there
 * is to save is the state before it. */
static enum err give_up(struct run *run, double begin_s)
{
    assert(run->now.stop.agreed != 0);
    stop(run, run->now.stop.agreed);
    if (run->rank == 0)
        log_info("step %lld is given up after %.1f s of it",
                 (long long)run->position.step + 1, clock_now() - begin_s);
    return trainer_event(run, EVENT_BATCH_CHECKPOINT);
}

static enum err fit_step(struct run *run)
{
    const int64_t before = run->position.step;
    if (epoch_begins(run, before))
        TRY(trainer_event(run, EVENT_EPOCH_START));
    tracking_list_clear(run->now.record.scalars);
    TRY(trainer_event(run, EVENT_BATCH_START));
    TRY(trainer_event(run, EVENT_BEFORE_TRAIN_BATCH));
    double begin = clock_now();
    double waited_s = comm_waited_s(run->comm);
    trainer_pace_begin(run);
    enum err rc = trainer_step(run);
    trainer_pace_end(run, clock_now() - begin);
    run->now.record.wait_s = comm_waited_s(run->comm) - waited_s;
    TRY(rc);
    if (run->now.back.asked)
        return ERR_OK;
    if (run->now.stop.agreed != 0)
        return give_up(run, begin);
    assert(run->position.step == before + 1);
    trainer_record_time(run, clock_now() - begin);
    run->position.elapsed_s += run->now.record.step_s;
    TRY(exchange(run));
    TRY(trainer_event(run, EVENT_BATCH_END));
    TRY(trainer_event(run, EVENT_BATCH_CHECKPOINT));
    if (!epoch_begins(run, run->position.step))
        return ERR_OK;
    TRY(trainer_event(run, EVENT_EPOCH_END));
    return trainer_event(run, EVENT_EPOCH_CHECKPOINT);
}

/* The first step of an attempt may take minutes. */
static void tell_first(const struct run *run)
{
    int count = replica_microsteps(run->engine.replica);
    if (run->rank == 0 && !run->now.finished && run->now.stop_signal == 0)
        log_info("computing step %lld: %d microbatch%s of %lld samples on each "
                 "rank",
                 (long long)run->position.step + 1, count,
                 count == 1 ? "" : "es",
                 (long long)run->settings.train.microbatch);
}

enum err trainer_fit(struct run *run)
{
    trainer_profile_tell(run);
    TRY(trainer_event(run, EVENT_FIT_START));
    /* a signal may have come while data and weights were loaded */
    if (!run->now.finished)
        TRY(exchange(run));
    tell_first(run);
    while (!run->now.finished && run->now.stop_signal == 0) {
        TRY(trainer_profile_before_step(run));
        TRY(fit_step(run));
        if (run->now.back.asked)
            return comm_agree(run->comm, err_again(&run->events.held));
        TRY(trainer_profile_after_step(run));
    }
    TRY(trainer_event(run, EVENT_FIT_END));
    run->now.incomplete = run->events.asks.of[ASK_CONTINUE] != 0;
    return comm_agree(run->comm, err_again(&run->events.held));
}
