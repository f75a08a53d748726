/* A ring of batches: a thread fills it, the trainer empties it.
 *
 * Reading a batch may wait for a disk or a server; the step must not. Which
 * batches a rank will ask for is a function of the step's number (positions
 * first + offset, step by step), so the thread needs no state from the trainer:
 * it is told where the next batch begins and goes on by itself. If another one
 * is asked for than it has read (after a resume or a rollback), it begins again
 * from there, and what it was reading is thrown away by its number of restarts.
 * So reading ahead changes when bytes are read and never which. */
#include "src/data/set/loader_ahead.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/base/process.h"
#include "src/base/timeline.h"

/* Batches whose shards are asked for before they are read. */
#define AHEAD_WANTED 8

struct ahead_slot {
    struct batch *batch;
    struct err_kept failed;
};

struct loader_ahead {
    struct loader_ahead_plan plan;
    int64_t *offsets;
    pthread_t thread;
    bool started;

    pthread_mutex_t mutex; /* of all below, but the batch that is being read */
    pthread_cond_t more;   /* for the thread: there is something to do */
    pthread_cond_t ready;  /* for the trainer: a batch, or an error */
    bool ended;
    bool runs;         /* there is a next batch to be read */
    int64_t next;      /* number of the batch in the slot `head` */
    int64_t wanted;    /* that whose shards are asked for next */
    uint64_t restarts; /* what is being read may be for nobody */
    int head, count;
    struct ahead_slot slot[]; /* plan.depth */
};

/* Where batch `number` of the run begins. */
static int64_t ahead_position(const struct loader_ahead *ahead, int64_t number)
{
    const struct loader_ahead_plan *plan = &ahead->plan;
    return number / plan->count * plan->stride +
           ahead->offsets[number % plan->count];
}

/* The first batch that begins there. */
static int64_t ahead_number(const struct loader_ahead *ahead, int64_t position)
{
    const struct loader_ahead_plan *plan = &ahead->plan;
    int64_t step = position / plan->stride, offset = position % plan->stride;
    int at = 0;
    while (at < plan->count && ahead->offsets[at] != offset)
        at++;
    assert(at < plan->count);
    return step * plan->count + at;
}

/* Ask for the shards of the batches up to `number` and some more. An order that
 * fails tells so when the batch is read. */
static void ahead_want(struct loader_ahead *ahead, int64_t from, int64_t number)
{
    const struct loader_ahead_plan *plan = &ahead->plan;
    for (int64_t n = from; n <= number; n++)
        for (int64_t i = 0; i < plan->samples; i++) {
            int stream = 0;
            int64_t sample = 0;
            if (order_sample(plan->order, ahead_position(ahead, n) + i, &stream,
                             &sample) == ERR_OK)
                dataset_want(plan->datasets[stream], sample);
        }
}

/* Reads one batch; the mutex is held before and after, not meanwhile. */
static void ahead_fill(struct loader_ahead *ahead, bool cached)
{
    const struct loader_ahead_plan *plan = &ahead->plan;
    struct timeline_span span;
    uint64_t restarts = ahead->restarts;
    int64_t number = ahead->next + ahead->count;
    int64_t wanted = ahead->wanted;
    struct ahead_slot *slot =
        &ahead->slot[(ahead->head + ahead->count) % plan->depth];
    if (wanted < number)
        wanted = number;
    ahead->wanted = number + AHEAD_WANTED + 1;
    pthread_mutex_unlock(&ahead->mutex);
    /* shards of later batches first, so that they travel while this one is read
     */
    if (cached)
        ahead_want(ahead, wanted, number + AHEAD_WANTED);
    slot->batch->truncate = plan->truncate;
    slot->batch->joined = plan->joined;
    timeline_begin(plan->timeline, &span, TIMELINE_READ);
    err_keep(&slot->failed, loader_read(plan->datasets, plan->order,
                                        ahead_position(ahead, number),
                                        plan->samples, slot->batch));
    timeline_end(&span, NULL);
    pthread_mutex_lock(&ahead->mutex);
    if (restarts != ahead->restarts)
        return; /* somebody began anew meanwhile: not counted, so overwritten */
    ahead->count++;
    ahead->runs = slot->failed.code == ERR_OK; /* what follows is for nobody */
    pthread_cond_signal(&ahead->ready);
}

static void *ahead_run(void *arg)
{
    struct loader_ahead *ahead = arg;
    bool cached = false; /* any of them */
    for (int d = 0; d < ahead->plan.dataset_count; d++)
        cached = cached || dataset_is_cached(ahead->plan.datasets[d]);
    pthread_mutex_lock(&ahead->mutex);
    while (!ahead->ended) {
        if (ahead->runs && ahead->count < ahead->plan.depth)
            ahead_fill(ahead, cached);
        else
            pthread_cond_wait(&ahead->more, &ahead->mutex);
    }
    pthread_mutex_unlock(&ahead->mutex);
    return NULL;
}

enum err loader_ahead_create(const struct loader_ahead_plan *plan,
                             struct loader_ahead **out)
{
    assert(plan->depth > 0 && plan->count > 0 && plan->samples > 0);
    enum err rc = ERR_OK;
    size_t depth = (size_t)plan->depth;
    struct loader_ahead *ahead =
        calloc(1, sizeof *ahead + depth * sizeof ahead->slot[0]);
    if (ahead == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    pthread_mutex_init(&ahead->mutex, NULL);
    pthread_cond_init(&ahead->more, NULL);
    pthread_cond_init(&ahead->ready, NULL);
    ahead->plan = *plan;
    TRY_OUT(new_zeroed(&ahead->offsets, (size_t)plan->count));
    memcpy(ahead->offsets, plan->offsets,
           (size_t)plan->count * sizeof ahead->offsets[0]);
    for (int i = 0; i < plan->count; i++)
        assert(plan->offsets[i] >= 0 && plan->offsets[i] < plan->stride);
    for (int d = 0; d < plan->depth; d++)
        TRY_OUT(
            batch_create(plan->samples, plan->seq_len, &ahead->slot[d].batch));
    ahead->started = process_thread(&ahead->thread, 0, ahead_run, ahead) == 0;
    if (!ahead->started)
        TRY_OUT(err_set(ERR_MEMORY, "no thread to read ahead: set "
                                    "data.prefetch = 0, or raise the limit of "
                                    "processes"));
out:
    return new_or_none(rc, ahead, out, loader_ahead_destroy);
}

void loader_ahead_destroy(struct loader_ahead *ahead)
{
    if (ahead == NULL)
        return;
    if (ahead->started) {
        pthread_mutex_lock(&ahead->mutex);
        ahead->ended = true;
        pthread_cond_signal(&ahead->more);
        pthread_mutex_unlock(&ahead->mutex);
        /* the thread may be waiting for a file that never comes */
        for (int d = 0; d < ahead->plan.dataset_count; d++)
            dataset_stop(ahead->plan.datasets[d], true);
        pthread_join(ahead->thread, NULL);
        for (int d = 0; d < ahead->plan.dataset_count; d++)
            dataset_stop(ahead->plan.datasets[d], false);
    }
    for (int d = 0; d < ahead->plan.depth; d++)
        batch_destroy(ahead->slot[d].batch);
    pthread_cond_destroy(&ahead->ready);
    pthread_cond_destroy(&ahead->more);
    pthread_mutex_destroy(&ahead->mutex);
    free(ahead->offsets);
    free(ahead);
}

/* Begin again at another batch. */
static void ahead_restart(struct loader_ahead *ahead, int64_t position)
{
    ahead->next = ahead->wanted = ahead_number(ahead, position);
    ahead->head = ahead->count = 0;
    ahead->runs = true;
    ahead->restarts++;
    pthread_cond_signal(&ahead->more);
}

enum err loader_ahead_read(struct loader_ahead *ahead, int64_t first,
                           struct batch *batch)
{
    pthread_mutex_lock(&ahead->mutex);
    bool expected = (ahead->runs || ahead->count > 0) &&
                    ahead_position(ahead, ahead->next) == first;
    if (!expected)
        ahead_restart(ahead, first);
    while (ahead->count == 0)
        pthread_cond_wait(&ahead->ready, &ahead->mutex);
    /* the slot stays the trainer's until `head` moves: the thread fills others
     */
    struct ahead_slot *slot = &ahead->slot[ahead->head];
    pthread_mutex_unlock(&ahead->mutex);
    enum err rc = err_again(&slot->failed);
    if (rc == ERR_OK)
        batch_copy(slot->batch, batch);
    pthread_mutex_lock(&ahead->mutex);
    ahead->head = (ahead->head + 1) % ahead->plan.depth;
    ahead->count--;
    ahead->next++;
    pthread_cond_signal(&ahead->more);
    pthread_mutex_unlock(&ahead->mutex);
    return rc;
}
