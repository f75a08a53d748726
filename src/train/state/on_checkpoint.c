/* Listener: restore a run, and save it: when a save begins, what becomes of it,
 * and how many may fail. Files, commits and formats belong to checkpoint/; when
 * a save is due under "auto" to on_checkpoint_interval.c.
 *
 * before_load restores the newest good checkpoint; batch_ask asks for a save
 * every checkpoint.interval that is in seconds or "auto"; batch_checkpoint
 * saves then and every other interval, at an agreed stop, and at the last step,
 * and looks how the save in flight is doing. With checkpoint.async training
 * waits for the copy of the state only, and the save is written and committed
 * while the next step computes; a save that is due while another is in flight
 * waits for that one. A failed save is counted, recorded and training goes on,
 * until checkpoint.failures_max in a row end the run with the last one's error;
 * where they fail for want of room, not before ten minutes of it. At a stop and
 * at the last step the save is awaited, and tried twice; at the last step room
 * is waited for. Nothing is committed to a run that another has taken over. The
 * state in the manifest is the run's position and what must not change in a run:
 * a resume with another model, data set, batch, seed or slot count is refused,
 * naming the setting; one with other arithmetic (backend, its version; a GPU's
 * libraries) too, unless parallel.allow_arithmetic_change is set or determinism
 * is "fast". */
#include <assert.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>

#include "checkpoint/ckpt.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/timeline.h"
#include "src/job/ledger.h"
#include "src/job/lock.h"
#include "src/job/slurm.h"
#include "src/job/stop.h"
#include "src/train/state/on_checkpoint_parts.h"
#include "src/train/state/state_parts.h"
#include "src/train/start/start.h"

#define WAIT_PAUSE_S 5e-4 /* between looks at a save that all wait for */
#define TELL_SHARE 0.1    /* of a deadline: who waits so long says so */
#define FULL_S 600.0      /* without room for one are no failures */
#define LAST_S 120.0      /* that the last one waits for room */
#define LAST_PAUSE_S 2.0
#define SHARED_MIN 64 /* ranks, if nothing else is asked for */

struct on_checkpoint {
    struct run *run;
    int64_t last_step;   /* committed or restored; -1: none */
    json_t *arithmetics; /* all that this run has computed with, in order */
    struct on_checkpoint_copies *copies; /* NULL: the host reaches the state */
    struct on_checkpoint_items *items;
    struct ckpt_saver *saver;
    struct ckpt_progress progress; /* of the save in flight or last ended */
    double stall_s;                /* what training waited for then */
    bool wait_logged;
    double commit_at, local_at; /* rank 0's clock when they began */
    double save_s;        /* the longest save into the run directory so far */
    int64_t saves_failed; /* in a row, as far as this rank has seen */
    double failing_since; /* the first of them */
    struct on_checkpoint_interval
        *interval;         /* rank 0's with "auto"; else NULL */
    struct lock *lock;     /* lent; NULL: not rank 0 */
    pthread_mutex_t mutex; /* of its use by the saver's thread */
    bool left;             /* guarded: the lock is of no use */

    struct on_checkpoint_told told;
    struct on_checkpoint_local local;
    struct on_checkpoint_kept kept;
    struct on_checkpoint_mirror *mirror;
};

static enum err may_commit(void *arg);

static enum err checkpoint_restore(struct on_checkpoint *checkpoint,
                                   struct run *run)
{
    struct on_checkpoint_from from = { 0 };
    assert(checkpoint->items == NULL && checkpoint->last_step == -1);
    struct on_checkpoint_restored restored = { 0 };
    TRY(comm_agree(run->comm,
                   on_checkpoint_copies_create(run, &checkpoint->copies)));
    TRY(on_checkpoint_items_create(run, &checkpoint->items));
    TRY(on_checkpoint_local_open(run->comm, run->settings.checkpoint.local_dir,
                                 run->settings.run.dir, &checkpoint->local));
    from.items = on_checkpoint_items_list(checkpoint->items, &from.count);
    from.memory = on_checkpoint_copies_memory(checkpoint->copies);
    from.local_dir = checkpoint->local.dir;
    from.local_key = checkpoint->local.secret;
    if (run->settings.checkpoint.keep_state && from.local_dir != NULL &&
        run->position.came_back.asked)
        TRY(comm_agree(run->comm,
                       on_checkpoint_kept_forget(run->comm, from.local_dir,
                                                 checkpoint->local.own.path)));
    TRY(comm_agree(run->comm,
                   on_checkpoint_mirror_create(run, may_commit, checkpoint,
                                               &checkpoint->mirror)));
    TRY(on_checkpoint_mirror_fetch(checkpoint->mirror));
    TRY(on_checkpoint_restore(run, &from, &restored));
    checkpoint->last_step = restored.committed;
    on_checkpoint_mirror_committed(checkpoint->mirror, restored.committed);
    checkpoint->arithmetics = restored.arithmetics;
    return ERR_OK;
}

/* In the saver's thread, when it happens: the step that computes meanwhile may
 * be long. */
static void record_save(void *arg, const struct ckpt_progress *progress)
{
    struct on_checkpoint *checkpoint = arg;
    on_checkpoint_tell(&checkpoint->told, progress);
}

/* In the saver's thread. A process that stood still for long may have lost the
 * run to another, which trains. */
static enum err may_commit(void *arg)
{
    struct on_checkpoint *checkpoint = arg;
    enum err rc = ERR_OK;
    pthread_mutex_lock(&checkpoint->mutex);
    if (checkpoint->left)
        rc = err_set(ERR_BUSY, "the run has ended here");
    else if (checkpoint->lock != NULL)
        rc = lock_check(checkpoint->lock);
    pthread_mutex_unlock(&checkpoint->mutex);
    return rc;
}

static int64_t spared(void *arg)
{
    struct on_checkpoint *checkpoint = arg;
    return on_checkpoint_mirror_spared(checkpoint->mirror);
}

/* A smaller microbatch leaves room for the copy, if that is where tensors are. */
static enum err make_saver(const struct on_checkpoint *checkpoint,
                           struct run *run, const struct ckpt_options *options,
                           struct ckpt_saver **out)
{
    int count = 0;
    const struct ckpt_item *items =
        on_checkpoint_items_list(checkpoint->items, &count);
    for (;;) {
        enum err rc = ckpt_saver_create(run->comm, run->settings.run.dir,
                                        options, items, count, out);
        if (rc != ERR_MEMORY || options->memory != NULL)
            return rc;
        TRY(trainer_memory_shrink(run));
    }
}

static enum err checkpoint_open(struct on_checkpoint *checkpoint,
                                struct run *run)
{
    const struct train_settings *s = &run->settings;
    char attempt[64];
    struct slurm slurm;
    bool kept = s->checkpoint.keep_state && checkpoint->local.dir != NULL;
    assert(checkpoint->saver == NULL);
    slurm_read(&slurm);
    snprintf(attempt, sizeof attempt, "%ld.%d", slurm.job_id, run->attempt);
    checkpoint->told.run = run;
    struct ckpt_options options = {
        .attempt = attempt,
        .keep = (int)s->checkpoint.keep,
        .keep_every = s->checkpoint.keep_every,
        .keep_best = s->checkpoint.keep_best,
        .timeout_s = s->checkpoint.timeout_s,
        .stage = s->checkpoint.async,
        .record = record_save,
        .may_commit = may_commit,
        .spared = spared,
        .record_arg = checkpoint,
        .memory = on_checkpoint_copies_memory(checkpoint->copies),
        .local_dir = kept ? NULL : checkpoint->local.dir,
        .local_key = checkpoint->local.secret,
    };
    if (s->checkpoint.writers == WRITERS_NODE ||
        (s->checkpoint.writers == WRITERS_AUTO && run->ranks >= SHARED_MIN))
        options.file_ranks = INT_MAX;
    if (s->checkpoint.redundancy == REDUNDANCY_XOR)
        options.xor_group = (int)s->checkpoint.redundancy_group;
    TRY(make_saver(checkpoint, run, &options, &checkpoint->saver));
    if (!kept)
        return ERR_OK;
    /* on the nodes lies what was just loaded, if it came from there */
    on_checkpoint_kept_begin(
        run, checkpoint->last_step < 0 ? run->position.step : -1,
        &checkpoint->local, &options, &checkpoint->kept);
    return make_saver(checkpoint, run, &options, &checkpoint->kept.saver);
}

static bool in_flight(const struct on_checkpoint *checkpoint)
{
    return checkpoint->progress.phase == CKPT_STAGED ||
           checkpoint->progress.phase == CKPT_PERSISTED;
}

/* What the save in flight has come to. */
static void take_in(struct on_checkpoint *checkpoint)
{
    const struct ckpt_progress *progress = &checkpoint->progress;
    /* What happens on the nodes alone neither mends nor ends a run. */
    if (progress->local)
        return;
    if (progress->phase == CKPT_COMMITTED) {
        checkpoint->save_s =
            fmax(checkpoint->save_s,
                 progress->stage_s + progress->persist_s + progress->commit_s);
        checkpoint->last_step = progress->step;
        checkpoint->saves_failed = 0;
        on_checkpoint_mirror_committed(checkpoint->mirror, progress->step);
    } else if (progress->phase == CKPT_FAILED) {
        if (checkpoint->saves_failed++ == 0)
            checkpoint->failing_since = clock_now();
    }
    if (!in_flight(checkpoint))
        on_checkpoint_interval_ended(checkpoint->interval, progress,
                                     checkpoint->stall_s);
}

/* Look how the save in flight is doing. */
static enum err checkpoint_follow(struct on_checkpoint *checkpoint)
{
    if (!in_flight(checkpoint))
        return ERR_OK;
    TRY(ckpt_saver_poll(checkpoint->saver, &checkpoint->progress));
    take_in(checkpoint);
    return ERR_OK;
}

/* Until its end or this time. */
static enum err follow_until(struct on_checkpoint *checkpoint, double end)
{
    TRY(checkpoint_follow(checkpoint));
    while (in_flight(checkpoint) && clock_now() < end) {
        clock_sleep(WAIT_PAUSE_S);
        TRY(checkpoint_follow(checkpoint));
    }
    return ERR_OK;
}

/* Wait until all ranks have seen its end. A save may take checkpoint.timeout_s, a rank
 * that does not answer is named after parallel.timeout_s: so a sum tells now and then
 * what rank 0 knows, with whose end a save is all but over. Then all ask. Collective. */
static enum err checkpoint_wait(struct on_checkpoint *checkpoint,
                                struct run *run)
{
    double every_s = TELL_SHARE * comm_timeout_s(run->comm);
    int64_t busy = 1;
    while (busy > 0) {
        double end = clock_now() + every_s;
        TRY(follow_until(checkpoint, run->rank == 0 ? end : 0.0));
        busy = run->rank == 0 && in_flight(checkpoint);
        TRY(comm_all_reduce_i64(run->comm, &busy, 1, COMM_MAX));
    }
    do {
        TRY(follow_until(checkpoint, clock_now() + every_s));
        busy = in_flight(checkpoint);
        TRY(comm_all_reduce_i64(run->comm, &busy, 1, COMM_MAX));
    } while (busy > 0);
    return ERR_OK;
}

/* Only where all ranks have seen the end of the last save. A full file system
 * has longer: the run could but wait for room in any case. Collective. */
static enum err check_failures(const struct on_checkpoint *checkpoint,
                               const struct run *run)
{
    const struct ckpt_progress *progress = &checkpoint->progress;
    assert(!in_flight(checkpoint) && checkpoint->saves_failed >= 0);
    if (checkpoint->saves_failed < run->settings.checkpoint.failures_max)
        return ERR_OK;
    int64_t over = progress->error != ERR_FULL ||
                   clock_now() - checkpoint->failing_since >= FULL_S;
    TRY(comm_all_reduce_i64(run->comm, &over, 1, COMM_MAX));
    if (over == 0)
        return ERR_OK;
    return err_set(progress->error,
                   "%lld saves in a row have failed, the last at step %lld: %s",
                   (long long)checkpoint->saves_failed,
                   (long long)progress->step, progress->text);
}

/* One save at a time. */
static enum err wait_for_last(struct on_checkpoint *checkpoint, struct run *run)
{
    bool waits = in_flight(checkpoint);
    double begin_s = clock_now();
    TRY(checkpoint_wait(checkpoint, run));
    if (waits && run->rank == 0 && !checkpoint->wait_logged) {
        checkpoint->wait_logged = true;
        log_warn("step %lld waited %.2fs for the save of step %lld, which took "
                 "%.2fs: a longer checkpoint.%sinterval would not wait",
                 (long long)run->position.step, clock_now() - begin_s,
                 (long long)checkpoint->progress.step,
                 checkpoint->progress.total_s,
                 checkpoint->progress.local ? "local_" : "");
    }
    return check_failures(checkpoint, run);
}

static enum err checkpoint_start(struct on_checkpoint *checkpoint,
                                 struct run *run, bool local)
{
    enum err rc = ERR_OK;
    json_t *state = NULL;
    struct state_run its = { run, .arithmetics = checkpoint->arithmetics };
    assert(!in_flight(checkpoint) && run->position.step > 0);
    TRY_OUT(comm_agree(run->comm, state_parts_store(&its, &state)));
    double start_s = clock_now();
    TRY_OUT(on_checkpoint_copies_begin(checkpoint->copies));
    TRY_OUT(
        local ? ckpt_saver_start_local(checkpoint->saver, run->position.step,
                                       state)
              : ckpt_saver_start(checkpoint->saver, run->position.step, state));
    TRY_OUT(on_checkpoint_copies_end(checkpoint->copies));
    checkpoint->progress = (struct ckpt_progress){ .phase = CKPT_STAGED,
                                                   .local = local,
                                                   .step = run->position.step };
    checkpoint->stall_s = clock_now() - start_s;
    if (!local)
        on_checkpoint_interval_started(checkpoint->interval);
    if (run->rank == 0)
        log_debug("step %lld staged: %.3fs", (long long)run->position.step,
                  checkpoint->stall_s);
    if (!run->settings.checkpoint.async)
        TRY_OUT(checkpoint_wait(checkpoint, run));
out:
    json_decref(state);
    return rc;
}

/* The last step of this attempt must be committed; a second try may meet a
 * better moment, and at a run's end room is waited for. */
static enum err checkpoint_finish(struct on_checkpoint *checkpoint,
                                  struct run *run, bool waits)
{
    double end_s = clock_now() + LAST_S;
    int64_t again = 1;
    TRY(checkpoint_wait(checkpoint, run));
    while (checkpoint->last_step != run->position.step && again != 0) {
        if (run->rank == 0)
            log_warn("step %lld is the last one: trying again",
                     (long long)run->position.step);
        TRY(checkpoint_start(checkpoint, run, false));
        TRY(checkpoint_wait(checkpoint, run));
        again = waits && checkpoint->progress.error == ERR_FULL &&
                clock_now() < end_s && stop_requested() == 0;
        TRY(comm_all_reduce_i64(run->comm, &again, 1, COMM_MIN));
        if (again != 0)
            clock_sleep(LAST_PAUSE_S);
    }
    if (checkpoint->last_step != run->position.step)
        return err_set(checkpoint->progress.error,
                       "step %lld, the last one, could not be saved twice: %s",
                       (long long)run->position.step,
                       checkpoint->progress.text);
    return ERR_OK;
}

static enum err save_if_due(struct on_checkpoint *checkpoint,
                            const struct step_record *step, bool last)
{
    struct run *run = checkpoint->run;
    bool settle = step->agreed[ASK_SETTLE] != 0;
    bool due = last || step->agreed[ASK_SAVE] != 0 ||
               run_due(run, run->settings.checkpoint.interval);
    on_checkpoint_interval_step(checkpoint->interval, step->step_s);
    TRY(settle ? checkpoint_wait(checkpoint, run)
               : checkpoint_follow(checkpoint));
    if (settle)
        TRY(check_failures(checkpoint, run));
    bool local_due = !due && checkpoint->local.dir != NULL &&
                     checkpoint->kept.saver == NULL &&
                     (step->agreed[ASK_SAVE_LOCAL] != 0 ||
                      run_due(run, run->settings.checkpoint.local_interval));
    if ((!due && !local_due) || step->step == 0)
        return ERR_OK;
    TRY(wait_for_last(checkpoint, run));
    /* After a step that was given up; not before the wait, as ranks see the end
     * of a save one after the other. */
    if (checkpoint->last_step == step->step)
        return ERR_OK;
    TRY(checkpoint_start(checkpoint, run, local_due));
    if (last)
        TRY(checkpoint_finish(checkpoint, run, step->stop_signal == 0));
    return ERR_OK;
}

static enum err checkpoint_step(struct on_checkpoint *checkpoint,
                                const struct step_record *step)
{
    bool last = step->finished || step->stop_signal != 0;
    bool kept = checkpoint->kept.saver != NULL;
    assert(step->step == checkpoint->run->position.step);
    if (kept && !last && step->step > 0)
        TRY(on_checkpoint_kept_step(&checkpoint->kept, checkpoint->copies,
                                    checkpoint->arithmetics));
    on_checkpoint_mirror_hear(checkpoint->mirror, step->agreed[ASK_MIRROR]);
    TRY(save_if_due(checkpoint, step, last));
    return kept && last ? on_checkpoint_kept_end(&checkpoint->kept) : ERR_OK;
}

/* Rank 0's clock and its choice decide when a save is due. */
static void checkpoint_ask(struct on_checkpoint *checkpoint,
                           const struct step_record *step, struct asks *asks)
{
    const struct train_settings *s = &checkpoint->run->settings;
    events_ask(asks, ASK_SETTLE,
               checkpoint->saves_failed >= s->checkpoint.failures_max);
    asks->end_s = fmax(asks->end_s, 2 * checkpoint->save_s);
    on_checkpoint_mirror_ask(checkpoint->mirror, asks);
    if (step->rank != 0)
        return;
    events_ask(
        asks, ASK_SAVE,
        step_record_seconds_due(s->checkpoint.interval,
                                &checkpoint->commit_at) ||
            on_checkpoint_interval_due(checkpoint->interval, step->step));
    events_ask(asks, ASK_SAVE_LOCAL,
               step_record_seconds_due(s->checkpoint.local_interval,
                                       &checkpoint->local_at));
}

static enum err checkpoint_handle(void *self, enum event event,
                                  const struct step_record *step,
                                  struct asks *asks)
{
    struct on_checkpoint *checkpoint = self;
    switch (event) {
    case EVENT_BEFORE_LOAD:
        return checkpoint_restore(checkpoint, checkpoint->run);
    case EVENT_AFTER_LOAD:
        return checkpoint_open(checkpoint, checkpoint->run);
    case EVENT_FIT_START:
        on_checkpoint_interval_begin(checkpoint->interval, step->step);
        checkpoint->commit_at = checkpoint->local_at = clock_now();
        return ERR_OK;
    case EVENT_FIT_END:
        return on_checkpoint_mirror_finish(checkpoint->mirror);
    case EVENT_BATCH_ASK:
        TRY(on_checkpoint_kept_wait(&checkpoint->kept));
        checkpoint_ask(checkpoint, step, asks);
        return ERR_OK;
    default:
        return checkpoint_step(checkpoint, step);
    }
}

static enum err checkpoint_create(void *self, struct run *run)
{
    struct on_checkpoint *checkpoint = self;
    pthread_mutex_init(&checkpoint->mutex, NULL);
    checkpoint->run = run;
    checkpoint->last_step = -1;
    checkpoint->lock = run->lock;
    if (run->rank == 0 && run->settings.checkpoint.interval.unit == UNIT_AUTO)
        return on_checkpoint_interval_create(run->settings.run.dir,
                                             &checkpoint->interval);
    return ERR_OK;
}

/* A save in flight is awaited, with the other ranks. Where they are not
 * together it commits nothing and does not look at the lock any more. */
static bool checkpoint_leave(void *self, bool together)
{
    struct on_checkpoint *checkpoint = self;
    on_checkpoint_mirror_stop(checkpoint->mirror);
    if (together) { /* false: its thread hangs in a write */
        bool ended = ckpt_saver_destroy(checkpoint->kept.saver);
        return ckpt_saver_destroy(checkpoint->saver) && ended;
    }
    pthread_mutex_lock(&checkpoint->mutex);
    checkpoint->left = true;
    pthread_mutex_unlock(&checkpoint->mutex);
    return true;
}

static void checkpoint_destroy(void *self)
{
    struct on_checkpoint *checkpoint = self;
    on_checkpoint_mirror_destroy(checkpoint->mirror);
    on_checkpoint_items_destroy(checkpoint->items);
    on_checkpoint_copies_destroy(checkpoint->copies);
    on_checkpoint_interval_destroy(checkpoint->interval);
    on_checkpoint_local_close(&checkpoint->local);
    json_decref(checkpoint->arithmetics);
    pthread_mutex_destroy(&checkpoint->mutex);
}

const struct listener_ops on_checkpoint_ops = {
    LISTENER_OF(struct on_checkpoint), .create_together = checkpoint_create,
    .destroy = checkpoint_destroy, .handle = checkpoint_handle,
    .leave = checkpoint_leave
};
