#include "checkpoint/ckpt_saver_private.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "src/base/clock.h"

#define NANOSECONDS 1000000000

void ckpt_saver_record(const struct ckpt_saver *saver, enum err rc,
                       double commit_s)
{
    const struct ckpt_options *options = &saver->save.options;
    struct ckpt_progress progress = saver->progress;
    progress.phase = rc == ERR_OK ? CKPT_COMMITTED : CKPT_FAILED;
    progress.commit_s = commit_s;
    progress.error = rc;
    snprintf(progress.text, sizeof progress.text, "%s",
             rc == ERR_OK ? "" : err_text());
    if (options->record != NULL)
        options->record(options->record_arg, &progress);
    if (rc != ERR_OK)
        err_set(rc, "%s", progress.text);
}

/* Commit, or clear away what a rank's failure left; the error stays. */
static enum err run_end(struct ckpt_saver *saver, double start_s)
{
    enum err rc = (enum err)saver->outcome.code;
    if (rc == ERR_OK)
        rc = ckpt_save_commit(&saver->save);
    else
        err_set(rc, "%s", saver->outcome.text);
    if (rc != ERR_OK) {
        char text[512];
        snprintf(text, sizeof text, "%s", err_text());
        ckpt_save_give_up(&saver->save);
        err_set(rc, "%s", text);
    }
    ckpt_saver_record(saver, rc, clock_now() - start_s);
    return rc;
}

static enum err run_task(struct ckpt_saver *saver, enum ckpt_saver_task task)
{
    enum err rc = ERR_OK;
    switch (task) {
    case TASK_BEGIN:
        return ckpt_save_begin(&saver->save);
    case TASK_WRITE:
        rc = ckpt_saver_staged(saver);
        return rc != ERR_OK ? rc : ckpt_save_write(&saver->save);
    case TASK_END:
        return run_end(saver, clock_now());
    default:
        return ckpt_saver_local_task(saver, task);
    }
}

static void *thread_main(void *arg)
{
    struct ckpt_saver *saver = arg;
    pthread_mutex_lock(&saver->mutex);
    while (saver->task != TASK_QUIT) {
        if (saver->task == TASK_NONE) {
            pthread_cond_wait(&saver->wake, &saver->mutex);
            continue;
        }
        enum ckpt_saver_task task = saver->task;
        pthread_mutex_unlock(&saver->mutex);
        double start_s = clock_now();
        enum err rc = run_task(saver, task);
        pthread_mutex_lock(&saver->mutex);
        saver->task_s = clock_now() - start_s;
        saver->done.code = rc;
        snprintf(saver->done.text, sizeof saver->done.text, "%s",
                 rc == ERR_OK ? "" : err_text());
        saver->task = TASK_NONE;
        pthread_cond_signal(&saver->wake);
    }
    pthread_mutex_unlock(&saver->mutex);
    return NULL;
}

void ckpt_saver_task_give(struct ckpt_saver *saver, enum ckpt_saver_task task)
{
    pthread_mutex_lock(&saver->mutex);
    assert(saver->task == TASK_NONE);
    saver->task = task;
    pthread_cond_signal(&saver->wake);
    pthread_mutex_unlock(&saver->mutex);
}

bool ckpt_saver_task_done(struct ckpt_saver *saver)
{
    pthread_mutex_lock(&saver->mutex);
    bool done = saver->task == TASK_NONE;
    pthread_mutex_unlock(&saver->mutex);
    return done;
}

void ckpt_saver_task_wait(struct ckpt_saver *saver, double seconds)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    int64_t ns = end.tv_nsec + (int64_t)(seconds * 1e9);
    end.tv_sec += ns / NANOSECONDS;
    end.tv_nsec = ns % NANOSECONDS;
    pthread_mutex_lock(&saver->mutex);
    int failed = 0;
    while (saver->task != TASK_NONE && failed == 0)
        failed = pthread_cond_timedwait(&saver->wake, &saver->mutex, &end);
    pthread_mutex_unlock(&saver->mutex);
}

/* Signals are the training thread's: none may be taken by the writer. */
enum err ckpt_saver_thread_create(struct ckpt_saver *saver)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&saver->thread, NULL, thread_main, saver);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
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
    ckpt_saver_task_give(saver, TASK_QUIT);
    pthread_join(saver->thread, NULL);
}
