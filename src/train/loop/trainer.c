/* A training run on this rank: makes its parts, resolves its schedule, and runs
 * the loop of epochs, steps and events. One step is in trainer_step.c, memory
 * in trainer_memory.c, and what surrounds a run (lock, ledger, exit code) in
 * train_run.c. */
#include "src/train/loop/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/job/stop.h"
#include "src/train/start/trainer_backend.h"
#include "src/train/start/trainer_base.h"
#include "src/train/loop/trainer_ahead.h"
#include "src/train/start/trainer_data.h"
#include "src/train/start/start_devices.h"
#include "src/train/plan/train_memory.h"
#include "src/train/start/start_same.h"
#include "src/train/start/trainer_groups.h"
#include "src/train/loop/trainer_rollback.h"
#include "src/train/settings/trainer_schedule.h"
#include "src/train/start/trainer_threads.h"
#include "src/train/start/trainer_weights.h"
#include "src/train/start/start_files.h"
#include "src/train/start/trainer_memory.h"
#include "src/train/profile/trainer_profile.h"

/* Kernel sets of the processor differ in speed only, those of GPUs in bits. */
static void name_arithmetic(struct trainer *trainer)
{
    const struct kernels *kernels = trainer->kernels;
    bool cpu = strcmp(kernels->backend, "cpu") == 0;
    char text[224];
    kernels->describe(text, sizeof text);
    snprintf(trainer->arithmetic, sizeof trainer->arithmetic, "%s%s%s %s",
             kernels->backend, cpu ? "" : "/", cpu ? "" : kernels->kernel_set,
             text);
}

static enum err open_kernels(struct trainer *trainer)
{
    TRY(trainer_backend_find(&trainer->settings, trainer->ranks,
                             &trainer->kernels));
    const struct kernel_memory *memory = trainer->kernels->memory;
    TRY(memory->use(comm_local_rank(trainer->comm)));
    TRY(memory->stream_create(false, &trainer->stream));
    TRY(memory->event_create(&trainer->copied));
    trainer->ctx.stream = trainer->stream;
    name_arithmetic(trainer);
    return ERR_OK;
}

/* Durations become steps. */
static enum err plan_steps(struct trainer *trainer)
{
    const struct train_settings *s = &trainer->settings;
    struct trainer_schedule plan;
    TRY(trainer_schedule(s, order_epoch(trainer->order), &plan));
    TRY(trainer_schedule_check(s, &plan));
    trainer->rates = plan.rates;
    trainer->schedule = plan.schedule;
    trainer->max_steps = plan.max_steps;
    return ERR_OK;
}

/* What may fail on one rank alone; the caller agrees. */
static enum err create_local(struct trainer *trainer)
{
    const struct train_settings *s = &trainer->settings;
    const struct model_config *config = &s->model;
    TRY(open_kernels(trainer));
    TRY(trainer_data_open(trainer));
    TRY(plan_steps(trainer));
    TRY(train_settings_params(s, &trainer->params));
    if (trainer_backend_fp8(s))
        TRY(trainer_fp8_create(trainer->kernels->memory,
                               model_fp8_count(config), &trainer->fp8));
    return step_record_create(trainer);
}

enum err trainer_create(struct comm *comm,
                        const struct train_settings *settings, int attempt,
                        struct trainer **out)
{
    enum err rc = ERR_OK;
    struct trainer *trainer = NULL;
    TRY(new_zeroed(&trainer, 1));
    trainer->settings = *settings;
    trainer->comm = comm;
    trainer->rank = comm_rank(comm);
    trainer->ranks = comm_size(comm);
    trainer->attempt = attempt;
    trainer->lr0 = settings->optimizer.lr;
    trainer_groups_begin(trainer);
    trainer->seq_len = settings->data.seq_len;
    if (trainer->ranks > train_memory_ranks_max(settings))
        rc = err_set(ERR_USAGE,
                     "%d ranks, but this run can have at most %d: a global "
                     "batch has parallel.slots = %lld%s; start at most that "
                     "many, or raise parallel.slots (a divisor of "
                     "train.global_batch) for a new run",
                     trainer->ranks, train_memory_ranks_max(settings),
                     (long long)settings->parallel.slots,
                     settings->parallel.sequence_degree > 1
                         ? ", each for parallel.sequence_degree ranks"
                         : "");
    struct replica_options options = train_memory_replica(settings);
    if (rc == ERR_OK)
        rc = replica_check(&options, trainer->ranks);
    TRY_OUT(comm_agree(comm, rc));
    TRY_OUT(trainer_threads(comm, (int)settings->hardware.threads,
                            &trainer->threads));
    kernels_spread_threads(trainer->threads);
    TRY_OUT(comm_agree(comm, create_local(trainer)));
    TRY_OUT(start_devices(comm, trainer->kernels->memory,
                          trainer_backend_falls_back(&trainer->settings),
                          trainer->devices, sizeof trainer->devices));
    TRY_OUT(start_same(trainer));
    TRY_OUT(start_files(trainer));
    TRY_OUT(trainer_profile_create(trainer));
    TRY_OUT(trainer_memory_create(trainer));
    TRY_OUT(comm_agree(comm, algorithms_create(trainer)));
    *out = trainer;
    trainer = NULL;
out:
    trainer_destroy(trainer);
    return rc;
}

/* After all that is on the device. */
static void close_kernels(struct trainer *trainer)
{
    if (trainer->copied != NULL)
        trainer->kernels->memory->event_destroy(trainer->copied);
    if (trainer->stream != NULL)
        trainer->kernels->memory->stream_destroy(trainer->stream);
}

bool trainer_destroy(struct trainer *trainer)
{
    if (trainer == NULL)
        return true;
    if (!events_leave(&trainer->events, true))
        return false;
    events_destroy(&trainer->events);
    algorithms_destroy(&trainer->algorithms);
    model_destroy(trainer->model);
    replica_destroy(trainer->replica);
    params_destroy(trainer->params);
    trainer_ahead_destroy(trainer);
    batch_destroy(trainer->batch);
    trainer_data_close(trainer);
    trainer_losses_destroy(&trainer->losses);
    trainer_fp8_destroy(trainer->fp8);
    trainer_profile_destroy(trainer);
    close_kernels(trainer);
    free(trainer->leaf_loss);
    free(trainer->leaf_balance);
    step_record_destroy(trainer);
    free(trainer->choices);
    json_decref(trainer->text);
    json_decref(trainer->base);
    json_decref(trainer->rollback_events);
    rollback_free(&trainer->rollbacks);
    free(trainer);
    return true;
}

enum err trainer_roll_call(struct trainer *trainer, enum err rc)
{
    bool shares = trainer->replica != NULL && replica_shares(trainer->replica);
    if (!shares || (rc != ERR_COMM && !trainer->adrift))
        return rc;
    trainer->adrift = true;
    return replica_roll_call(trainer->replica, rc);
}

enum err trainer_event(struct trainer *trainer, enum event event)
{
    step_record_position(trainer);
    return events_run(&trainer->events, event, &trainer->record);
}

/* By rank 0's clock where the duration is in seconds. */
static bool reached_end(const struct trainer *trainer, double elapsed_s)
{
    return trainer->max_steps >= 0
               ? trainer->step >= trainer->max_steps
               : elapsed_s >=
                     trainer_schedule_max_duration(&trainer->settings).value;
}

/* For a run that needs no further step. */
static void finish(struct trainer *trainer, double elapsed_s)
{
    char duration[40];
    struct step_record *record = &trainer->record;
    trainer->finished = trainer->ended_early || reached_end(trainer, elapsed_s);
    if (!trainer->finished || trainer->ended_early)
        return;
    units_format(trainer->settings.train.max_duration, duration,
                 sizeof duration);
    snprintf(record->why, sizeof record->why, "train.max_duration = %s reached",
             duration);
}

enum err trainer_start(struct trainer *trainer)
{
    TRY(trainer_event(trainer, EVENT_INIT));
    TRY(trainer_event(trainer, EVENT_BEFORE_LOAD));
    if (trainer->fp8 != NULL)
        TRY(trainer_fp8_give(trainer->fp8, trainer->model));
    if (trainer->step == 0)
        TRY(trainer_weights_init(trainer));
    else
        TRY(trainer_base_fill(trainer));
    TRY(comm_agree(trainer->comm, algorithms_begin(&trainer->algorithms)));
    TRY(trainer_event(trainer, EVENT_AFTER_LOAD));
    finish(trainer, trainer->elapsed_s);
    return comm_agree(trainer->comm, err_again(&trainer->events.held));
}

/* Does the step that follows `step` completed ones begin a new epoch? */
static bool epoch_begins(const struct trainer *trainer, int64_t step)
{
    int64_t epoch = trainer->rates.samples_per_epoch;
    return step == 0 ||
           trainer_rollback_position(trainer, step) / epoch !=
               trainer_rollback_position(trainer, step - 1) / epoch;
}

/* The run ends here, by the largest of what was asked for. */
static void stop(struct trainer *trainer, int number)
{
    struct step_record *record = &trainer->record;
    trainer->stop_signal = number;
    if (number != 0 && !trainer->finished)
        snprintf(record->why, sizeof record->why, "stopped by %s",
                 stop_text(number));
}

/* What the ranks have to tell each other decides whether the run goes on. */
static enum err exchange(struct trainer *trainer)
{
    TRY(trainer_event(trainer, EVENT_BATCH_ASK));
    TRY(step_record_exchange(trainer));
    trainer->ended_early |= trainer->record.agreed[ASK_FINISH] != 0;
    finish(trainer, trainer->of_rank[0].elapsed_s);
    stop(trainer, (int)trainer->record.agreed[ASK_STOP]);
    return ERR_OK;
}

/* The ranks have agreed to stop amid the step, whose work is lost: what there
 * is to save is the state before it. */
static enum err give_up(struct trainer *trainer, double begin_s)
{
    stop(trainer, trainer->stop.agreed);
    if (trainer->rank == 0)
        log_info("step %lld is given up after %.1f s of it",
                 (long long)trainer->step + 1, clock_now() - begin_s);
    return trainer_event(trainer, EVENT_BATCH_CHECKPOINT);
}

static enum err fit_step(struct trainer *trainer)
{
    if (epoch_begins(trainer, trainer->step))
        TRY(trainer_event(trainer, EVENT_EPOCH_START));
    tracking_list_clear(trainer->record.scalars);
    TRY(trainer_event(trainer, EVENT_BATCH_START));
    TRY(trainer_event(trainer, EVENT_BEFORE_TRAIN_BATCH));
    double begin = clock_now();
    TRY(trainer_step(trainer));
    if (trainer->back.asked)
        return ERR_OK;
    if (trainer->stop.agreed != 0)
        return give_up(trainer, begin);
    step_record_time(trainer, clock_now() - begin);
    trainer->elapsed_s += trainer->record.step_s;
    TRY(exchange(trainer));
    TRY(trainer_event(trainer, EVENT_BATCH_END));
    TRY(trainer_event(trainer, EVENT_BATCH_CHECKPOINT));
    if (!epoch_begins(trainer, trainer->step))
        return ERR_OK;
    TRY(trainer_event(trainer, EVENT_EPOCH_END));
    return trainer_event(trainer, EVENT_EPOCH_CHECKPOINT);
}

/* The first step of an attempt may take minutes. */
static void tell_first(const struct trainer *trainer)
{
    int count = replica_microsteps(trainer->replica);
    if (trainer->rank == 0 && !trainer->finished && trainer->stop_signal == 0)
        log_info("computing step %lld: %d microbatch%s of %lld samples on each "
                 "rank",
                 (long long)trainer->step + 1, count, count == 1 ? "" : "es",
                 (long long)trainer->settings.train.microbatch);
}

enum err trainer_fit(struct trainer *trainer)
{
    trainer_profile_tell(trainer);
    TRY(trainer_event(trainer, EVENT_FIT_START));
    /* a signal may have come while data and weights were loaded */
    if (!trainer->finished)
        TRY(exchange(trainer));
    tell_first(trainer);
    while (!trainer->finished && trainer->stop_signal == 0) {
        TRY(trainer_profile_before_step(trainer));
        TRY(fit_step(trainer));
        if (trainer->back.asked)
            return comm_agree(trainer->comm, err_again(&trainer->events.held));
        TRY(trainer_profile_after_step(trainer));
    }
    TRY(trainer_event(trainer, EVENT_FIT_END));
    trainer->incomplete = trainer->events.asks.of[ASK_CONTINUE] != 0;
    return comm_agree(trainer->comm, err_again(&trainer->events.held));
}

bool trainer_due(const struct trainer *trainer, struct duration interval)
{
    int64_t steps = 0;
    if (interval.unit == UNIT_SEC || interval.unit == UNIT_AUTO)
        return false;
    if (units_steps(interval, &trainer->rates, &steps) != ERR_OK || steps == 0)
        return false;
    return trainer->step % steps == 0;
}

enum err trainer_steps(const struct trainer *trainer, const char *key,
                       struct duration duration, int64_t *steps)
{
    enum err rc = units_steps(duration, &trainer->rates, steps);
    return rc == ERR_OK ? ERR_OK : err_prefix(rc, "%s", key);
}

int64_t trainer_tokens(const struct trainer *trainer)
{
    return trainer->step * trainer->rates.tokens_per_step -
           trainer->tokens_left_out;
}
