/* The saver's thread: takes one save at a time, runs it and holds its outcome
 * until the caller asks.
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

#define NANOSECONDS 1000000000

static void forget(struct ckpt_save *save)
{
    free(save->record);
    free(save->records);
    json_decref(save->state);
    save->record = save->records = NULL;
    save->state = NULL;
}

static enum err run(struct ckpt_saver *saver, enum ckpt_saver_state first)
{
    enum err rc = ckpt_saver_run(saver, first);
    if (rc != ERR_OK)
        return err_prefix(rc, "the save of step %" PRId64, saver->work.step);
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

void ckpt_saver_thread_give(struct ckpt_saver *saver,
                            enum ckpt_saver_state first)
{
    pthread_mutex_lock(&saver->mutex);
    assert(saver->first == SAVER_IDLE);
    saver->first = first;
    pthread_cond_signal(&saver->wake);
    pthread_mutex_unlock(&saver->mutex);
}

bool ckpt_saver_thread_idle(struct ckpt_saver *saver)
{
    pthread_mutex_lock(&saver->mutex);
    bool idle = saver->first == SAVER_IDLE;
    pthread_mutex_unlock(&saver->mutex);
    return idle;
}

void ckpt_saver_thread_wait(struct ckpt_saver *saver, double seconds)
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

enum err ckpt_saver_thread_create(struct ckpt_saver *saver)
{
    int failed = process_thread(&saver->thread, 0, thread_main, saver);
    saver->thread_made = failed == 0;
    return failed == 0 ? ERR_OK
                       : err_set(ERR_MEMORY,
                                 "checkpoint: no writer thread: %s: raise the "
                                 "limit of processes",
                                 strerror(failed));
}

void ckpt_saver_thread_end(struct ckpt_saver *saver)
{
    if (!saver->thread_made)
        return;
    ckpt_saver_thread_give(saver, SAVER_QUIT);
    pthread_join(saver->thread, NULL);
    /* of a broken one late messages may still be at work */
    if (!saver->broken)
        forget(&saver->save);
}
