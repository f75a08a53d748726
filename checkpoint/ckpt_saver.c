/* The saver as its caller sees it, and its thread. A save begins with a copy of
 * the state; all the rest happens in the thread, one save at a time, in the order
 * of the table in ckpt_saver_order.c, and its outcome is held until the caller
 * asks.
 *
 * Caller and thread share little, and all of it under one mutex: `first` is the
 * mailbox (a state: run the save that begins so; idle: nothing to do, or done),
 * `progress` what the caller may see. The thread works on a copy, `work`, and
 * publishes it where the caller may learn of it, so that neither ever waits for
 * the other's work; `meets` says whether a long silence is that of other ranks
 * or of this rank's own file system. */
#include "checkpoint/ckpt_saver_private.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checkpoint/files/ckpt_crash.h"
#include "src/base/process.h"
#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/files/ckpt_stream.h"
#include "src/base/clock.h"
#include "src/base/new.h"

#define TIMEOUT_S 600.0
/* While training computes, or the process is stopped, nobody looks; so a gap
 * between two looks counts for no more than this part of the deadline. */
#define GAP_MAX 0.1
/* Who waits for the end of a save looks this often. */
#define LOOK_S 0.1
#define NANOSECONDS 1000000000

/* --- the thread --- */

static void forget(struct ckpt_save *save)
{
    free(save->record);
    free(save->records);
    json_decref(save->state);
    save->record = save->records = NULL;
    save->record_bytes = 0;
    save->state = NULL;
}

static enum err run(struct ckpt_saver *saver, enum ckpt_saver_state first)
{
    TRY(err_prefix(ckpt_saver_run(saver, first), "the save of step %" PRId64,
                   saver->work.step));
    forget(&saver->save);
    ckpt_saver_local_forget(saver);
    if (saver->work.error == ERR_OK) {
        ckpt_crash_point("result-agreed", saver->save.rank);
        ckpt_crash_point("done", saver->save.rank);
    }
    return ERR_OK;
}

static void *thread_main(void *arg)
{
    struct ckpt_saver *saver = arg;
    pthread_mutex_lock(&saver->mutex);
    while (saver->first != SAVER_QUIT) {
        if (saver->first == SAVER_IDLE) {
            pthread_cond_wait(&saver->wake, &saver->mutex);
            continue;
        }
        enum ckpt_saver_state first = saver->first;
        saver->work = saver->progress;
        pthread_mutex_unlock(&saver->mutex);
        enum err rc = run(saver, first);
        pthread_mutex_lock(&saver->mutex);
        err_keep(&saver->lost, rc);
        saver->progress = saver->work;
        saver->meets = false;
        saver->first = SAVER_IDLE;
        pthread_cond_signal(&saver->wake);
    }
    pthread_mutex_unlock(&saver->mutex);
    return NULL;
}

void ckpt_saver_meets(struct ckpt_saver *saver, bool meets)
{
    pthread_mutex_lock(&saver->mutex);
    saver->meets = meets;
    pthread_mutex_unlock(&saver->mutex);
}

void ckpt_saver_publish(struct ckpt_saver *saver)
{
    pthread_mutex_lock(&saver->mutex);
    saver->progress = saver->work;
    pthread_mutex_unlock(&saver->mutex);
}

static void thread_give(struct ckpt_saver *saver, enum ckpt_saver_state first)
{
    pthread_mutex_lock(&saver->mutex);
    assert(saver->first == SAVER_IDLE);
    saver->first = first;
    pthread_cond_signal(&saver->wake);
    pthread_mutex_unlock(&saver->mutex);
}

static bool thread_idle(struct ckpt_saver *saver)
{
    pthread_mutex_lock(&saver->mutex);
    bool idle = saver->first == SAVER_IDLE;
    pthread_mutex_unlock(&saver->mutex);
    return idle;
}

static void thread_wait(struct ckpt_saver *saver, double seconds)
{
    struct timespec end;
    assert(seconds > 0);
    clock_gettime(CLOCK_MONOTONIC, &end);
    int64_t ns = end.tv_nsec + (int64_t)(seconds * 1e9);
    end.tv_sec += ns / NANOSECONDS;
    end.tv_nsec = ns % NANOSECONDS;
    pthread_mutex_lock(&saver->mutex);
    int failed = 0;
    while (saver->first != SAVER_IDLE && failed == 0)
        failed = pthread_cond_timedwait(&saver->wake, &saver->mutex, &end);
    pthread_mutex_unlock(&saver->mutex);
}

static enum err thread_create(struct ckpt_saver *saver)
{
    int failed = process_thread(&saver->thread, 0, thread_main, saver);
    saver->thread_made = failed == 0;
    return failed == 0 ? ERR_OK
                       : err_set(ERR_MEMORY,
                                 "checkpoint: no writer thread: %s: raise the "
                                 "limit of processes",
                                 strerror(failed));
}

static void thread_end(struct ckpt_saver *saver)
{
    if (!saver->thread_made)
        return;
    thread_give(saver, SAVER_QUIT);
    pthread_join(saver->thread, NULL);
    /* of a broken one late messages may still be at work */
    if (!saver->broken)
        forget(&saver->save);
}

/* --- how it stands --- */

/* Waiting for others has a deadline of its own, in the thread, which names who
 * is missing; that a rank is lost the caller's communicator knows long before. */
static enum err check_deadline(struct ckpt_saver *saver, bool meets)
{
    TRY(comm_verdict(saver->comm));
    double timeout_s = saver->save.options.timeout_s;
    double gap_s = clock_now() - saver->polled_s;
    saver->polled_s += gap_s;
    saver->waited_s +=
        gap_s < GAP_MAX * timeout_s ? gap_s : GAP_MAX * timeout_s;
    if (meets)
        saver->waited_s = 0.0;
    if (saver->waited_s <= timeout_s)
        return ERR_OK;
    return err_set(ERR_COMM,
                   "the save of step %" PRId64 ": rank %d (%s) is still "
                   "writing after %.3g s: look at its file system",
                   saver->save.step, saver->save.rank,
                   comm_host(saver->comm, saver->save.rank), timeout_s);
}

enum err ckpt_saver_poll(struct ckpt_saver *saver,
                         struct ckpt_progress *progress)
{
    enum err rc = ERR_OK;
    if (saver->broken)
        return err_set(ERR_COMM, "%s", saver->failure);
    pthread_mutex_lock(&saver->mutex);
    bool done = saver->first == SAVER_IDLE;
    bool meets = saver->meets;
    if (err_again(&saver->lost) != ERR_OK)
        rc = err_set(ERR_COMM, "%s", err_text());
    *progress = saver->progress;
    if (done)
        saver->progress = (struct ckpt_progress){ .phase = CKPT_IDLE };
    pthread_mutex_unlock(&saver->mutex);
    if (!done)
        rc = check_deadline(saver, meets);
    if (rc != ERR_OK) {
        saver->broken = true;
        snprintf(saver->failure, sizeof saver->failure, "%s", err_text());
    }
    return rc;
}

enum err ckpt_saver_wait(struct ckpt_saver *saver,
                         struct ckpt_progress *progress)
{
    TRY(ckpt_saver_poll(saver, progress));
    while (progress->phase == CKPT_STAGED ||
           progress->phase == CKPT_PERSISTED) {
        thread_wait(saver, LOOK_S);
        TRY(ckpt_saver_poll(saver, progress));
    }
    return ERR_OK;
}

static enum err copy_items(struct ckpt_saver *saver)
{
    const struct ckpt_memory *memory = saver->save.options.memory;
    for (int i = 0; i < saver->save.item_count; i++) {
        const struct ckpt_item *from = &saver->sources[i];
        void *to = saver->items[i].data;
        int64_t elements = ckpt_part_elements(&from->part, from->dims);
        size_t bytes = (size_t)elements * dtype_bytes(from->dtype);
        if (bytes > 0 && memory == NULL)
            ckpt_stage_copy(to, from->data, bytes);
        else if (bytes > 0)
            TRY(memory->copy_out(memory->arg, to, from->data, bytes));
    }
    return ERR_OK;
}

/* The copies that were begun are done. */
static enum err finish_copies(struct ckpt_saver *saver)
{
    const struct ckpt_memory *memory = saver->save.options.memory;
    if (!saver->copying)
        return ERR_OK;
    saver->copying = false;
    return memory->finish != NULL ? memory->finish(memory->arg) : ERR_OK;
}

/* The other ranks hear of a failure when they agree on the shards. */
static void begin_copies(struct ckpt_saver *saver)
{
    /* of a save that failed before its shards were written */
    enum err rc = finish_copies(saver);
    saver->copying = saver->save.options.memory != NULL;
    if (rc == ERR_OK)
        rc = copy_items(saver);
    err_keep(&saver->staged, rc);
}

enum err ckpt_saver_staged(struct ckpt_saver *saver)
{
    enum err rc = finish_copies(saver);
    return saver->staged.code != ERR_OK ? err_again(&saver->staged) : rc;
}

static enum err stage(struct ckpt_saver *saver, int64_t step,
                      const json_t *state, enum ckpt_saver_state first)
{
    struct ckpt_save *save = &saver->save;
    assert(step >= 0);
    if (saver->broken)
        return err_set(ERR_COMM, "%s", saver->failure);
    if (!thread_idle(saver) || saver->progress.phase != CKPT_IDLE)
        return err_set(ERR_BUSY,
                       "step %" PRId64 " can't be saved while step %" PRId64
                       " is being saved",
                       step, saver->progress.step);
    saver->start_s = saver->polled_s = clock_now();
    saver->waited_s = 0.0;
    err_keep(&saver->staged, ERR_OK);
    save->step = step;
    saver->progress = (struct ckpt_progress){ .phase = CKPT_STAGED,
                                              .step = step,
                                              .bytes = save->bytes };
    if (saver->stage.base != NULL) {
        begin_copies(saver);
        saver->progress.stage_s = clock_now() - saver->start_s;
    }
    if (save->rank == 0 && (state != NULL || first == NODE_WRITE) &&
        (save->state = json_deep_copy(state)) == NULL)
        err_keep(&saver->staged,
                 err_set(ERR_MEMORY, "checkpoint: out of memory"));
    ckpt_crash_point("staged", save->rank);
    return ERR_OK;
}

/* `dir`: the run directory, or this node's folder. */
static enum err start(struct ckpt_saver *saver, const char *dir, int64_t step,
                      const json_t *state, enum ckpt_saver_state first)
{
    struct ckpt_save *save = &saver->save;
    char tmp[FSIO_PATH_MAX];
    TRY(ckpt_index_tmp_path(tmp, dir, step, save->attempt));
    TRY(stage(saver, step, state, first));
    memcpy(save->tmp, tmp, sizeof tmp);
    saver->progress.local = first == NODE_WRITE;
    thread_give(saver, first);
    return ERR_OK;
}

enum err ckpt_saver_start(struct ckpt_saver *saver, int64_t step,
                          const json_t *state)
{
    return start(saver, saver->save.run_dir, step, state, RUN_BEGIN);
}

enum err ckpt_saver_start_local(struct ckpt_saver *saver, int64_t step,
                                const json_t *state)
{
    assert(saver->local != NULL);
    return start(saver, saver->save.local_dir, step, state, NODE_WRITE);
}

static void *stage_take(struct arena *arena, const struct ckpt_item *item)
{
    size_t bytes = (size_t)ckpt_part_elements(&item->part, item->dims) *
                   dtype_bytes(item->dtype);
    size_t pages = (bytes + CKPT_STAGE_ALIGN - 1) / CKPT_STAGE_ALIGN;
    return arena_take(arena, pages * CKPT_STAGE_ALIGN);
}

size_t ckpt_saver_stage_bytes(const struct ckpt_item *items, int item_count,
                              size_t *small)
{
    struct arena plan = { 0 };
    size_t before = 0;
    *small = 0;
    for (int i = 0; i < item_count; i++, before = plan.used) {
        stage_take(&plan, &items[i]);
        if (plan.used - before <= CKPT_STREAM_DIRECT_BYTES)
            *small += plan.used - before;
    }
    return plan.used;
}

static enum err stage_create(struct ckpt_saver *saver)
{
    const struct ckpt_memory *memory = saver->save.options.memory;
    size_t small, bytes = ckpt_saver_stage_bytes(
                      saver->sources, saver->save.item_count, &small);
    if (memory != NULL && bytes > 0)
        return memory->stage_create(bytes, &saver->stage);
    return arena_create(bytes, &saver->stage);
}

static void stage_destroy(struct ckpt_saver *saver)
{
    const struct ckpt_memory *memory = saver->save.options.memory;
    (void)finish_copies(saver);
    if (memory != NULL && saver->stage.base != NULL)
        memory->stage_destroy(&saver->stage);
    else
        arena_destroy(&saver->stage);
}

static enum err copy_texts(struct ckpt_save *save, const char *run_dir,
                           const struct ckpt_options *options)
{
    assert(options->keep >= 0 && options->keep_every >= 0);
    save->options = *options;
    if (save->options.timeout_s <= 0.0)
        save->options.timeout_s = TIMEOUT_S;
    save->options.attempt = save->attempt;
    snprintf(save->attempt, sizeof save->attempt, "%s", options->attempt);
    if (options->local_dir != NULL)
        TRY(fsio_path(save->local_dir, "%s", options->local_dir));
    return fsio_path(save->run_dir, "%s", run_dir);
}

/* What may fail on one rank alone. */
static enum err create_local(struct ckpt_saver *saver, const char *run_dir,
                             const struct ckpt_options *options,
                             const struct ckpt_item *items)
{
    struct ckpt_save *save = &saver->save;
    size_t count = (size_t)save->item_count;
    TRY(new_zeroed(&saver->sources, count + 1));
    TRY(new_zeroed(&saver->items, count + 1));
    TRY(new_zeroed(&save->shard_of, 2 * (size_t)save->ranks));
    save->file_of = save->shard_of + save->ranks;
    TRY(new_zeroed(&save->makes, (size_t)save->ranks));
    TRY(new_zeroed(&save->lengths, save->rank == 0 ? (size_t)save->ranks : 1));
    save->items = saver->items;
    if (count > 0) {
        memcpy(saver->sources, items, count * sizeof *items);
        memcpy(saver->items, items, count * sizeof *items);
    }
    TRY(copy_texts(save, run_dir, options));
    TRY(ckpt_save_check(save));
    if (options->stage || options->memory != NULL) {
        TRY(stage_create(saver));
        for (int i = 0; i < save->item_count; i++)
            saver->items[i].data = stage_take(&saver->stage, &items[i]);
    }
    return thread_create(saver);
}

enum err ckpt_saver_create(struct comm *comm, const char *run_dir,
                           const struct ckpt_options *options,
                           const struct ckpt_item *items, int item_count,
                           struct ckpt_saver **out)
{
    enum err rc = ERR_OK;
    struct ckpt_saver *saver = NULL;
    *out = NULL;
    rc = new_zeroed(&saver, 1);
    if (saver != NULL) {
        saver->save.rank = comm_rank(comm);
        saver->save.ranks = comm_size(comm);
        saver->save.item_count = item_count;
        pthread_condattr_t clock;
        pthread_condattr_init(&clock);
        pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
        pthread_mutex_init(&saver->mutex, NULL);
        pthread_cond_init(&saver->wake, &clock);
        pthread_condattr_destroy(&clock);
        rc = create_local(saver, run_dir, options, items);
    }
    TRY_OUT(comm_agree(comm, rc));
    TRY_OUT(comm_duplicate(comm, &saver->comm));
    TRY_OUT(ckpt_save_plan(&saver->save, saver->comm));
    comm_detach(saver->comm);
    if (options->local_dir != NULL)
        rc = ckpt_saver_local_create(saver);
    TRY_OUT(comm_agree(comm, rc));
out:
    return new_or_none(rc, saver, out, ckpt_saver_destroy);
}

bool ckpt_saver_destroy(struct ckpt_saver *saver)
{
    struct ckpt_progress progress;
    if (saver == NULL)
        return true;
    if (!saver->broken)
        (void)ckpt_saver_wait(saver, &progress);
    /* A thread that hangs reads its items, and a late rank may still write into
     * what it was asked for: those stay until the process ends. */
    if (saver->broken && !thread_idle(saver))
        return false;
    thread_end(saver);
    if (!saver->broken)
        ckpt_saver_local_destroy(saver);
    comm_destroy(saver->comm);
    stage_destroy(saver);
    if (saver->broken)
        return true;
    pthread_cond_destroy(&saver->wake);
    pthread_mutex_destroy(&saver->mutex);
    ckpt_group_free(&saver->save.group);
    free(saver->save.makes);
    free(saver->save.shard_of); /* file_of lies behind it */
    free(saver->save.lengths);
    free(saver->items);
    free(saver->sources);
    free(saver);
    return true;
}
