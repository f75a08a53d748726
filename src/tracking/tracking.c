/* What brings records to trackers: for each sink that is wanted a worker, which
 * is a queue and the thread that empties it.
 *
 * A record is copied once, whatever the number of workers, into a packet that
 * the last worker gives back; packets are used again, so that a run that logs
 * the same names allocates nothing after its first steps. The run only ever
 * holds the mutex for that; workers hold it to take packets, never while they
 * write.
 *
 * A run that goes back to a checkpoint begins a new "turn". A batch is of one
 * turn, so that a worker which is behind tells its sink of the step back between
 * the right two records. When the run ends workers have some seconds; then they
 * are told to give up, and one that does not answer even so keeps what it uses:
 * memory that is left behind is better than a program that does not end. */
#include "src/tracking/tracking.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/base/process.h"
#include "src/tracking/tracking_packet.h"

#define BATCH 64
#define STACK_BYTES ((size_t)1 << 20)
#define PAUSE_FIRST_S 1.0
#define PAUSE_MAX_S 60.0
#define GRACE_S 1.0 /* for a worker that was told to give up */

struct worker {
    struct tracking *tracking;
    const struct tracking_sink_ops *ops;
    void *self;
    pthread_t thread;
    pthread_cond_t wake;
    bool started, done;
    struct tracking_packet **queue; /* [settings.queue], a ring */
    int first, count;
    struct tracking_packet *batch[BATCH]; /* taken from it, not written yet */
    int batched;
    int64_t lost;
    int64_t turn; /* begun last */
    int64_t at;   /* the last step of it that the sink has for good */
    int64_t low;  /* the least step of later turns whose packets were lost */
    struct err_kept failed; /* last */
    /* the thread's own: the sink is open and has begun; its last call failed */
    bool begun, broken, warned;
};

struct tracking {
    struct tracking_options options;
    struct tracking_map *names; /* held */
    pthread_mutex_t mutex;
    pthread_cond_t ended; /* a worker is done */
    struct tracking_pool pool;
    struct worker workers[TRACKING_SINKS_MAX];
    int worker_count;
    bool started;
    bool ending;
    bool left; /* to the workers that hang: the last of them frees it */
    double ending_at;
    enum tracking_end end;
    atomic_bool given_up;
    int64_t turn, turn_step;
};

void tracking_params_free(struct tracking_param *params, int count)
{
    for (int i = 0; i < count; i++) {
        free(params[i].key);
        free(params[i].value);
    }
    free(params);
}

static void tracking_destroy(struct tracking *tracking)
{
    for (int i = 0; i < tracking->worker_count; i++) {
        struct worker *worker = &tracking->workers[i];
        pthread_cond_destroy(&worker->wake);
        free(worker->queue);
        free(worker->self);
    }
    tracking_pool_free(&tracking->pool);
    tracking_params_free(tracking->options.params,
                         tracking->options.param_count);
    tracking_map_destroy(tracking->names);
    pthread_cond_destroy(&tracking->ended);
    pthread_mutex_destroy(&tracking->mutex);
    free(tracking);
}

static bool all_done(const struct tracking *tracking)
{
    for (int i = 0; i < tracking->worker_count; i++)
        if (tracking->workers[i].started && !tracking->workers[i].done)
            return false;
    return true;
}

static void worker_lose(struct worker *worker, struct tracking_packet *packet)
{
    assert(packet->workers > 0);
    if (packet->turn > worker->turn && packet->turn_step < worker->low)
        worker->low = packet->turn_step;
    worker->lost++;
    tracking_packet_give(&worker->tracking->pool, packet);
}

/* Its oldest, under the mutex. */
static struct tracking_packet *worker_pop(struct worker *worker)
{
    assert(worker->count > 0);
    struct tracking_packet *packet = worker->queue[worker->first];
    worker->first =
        (worker->first + 1) % (int)worker->tracking->options.settings.queue;
    worker->count--;
    return packet;
}

static void worker_push(struct worker *worker, struct tracking_packet *packet)
{
    assert(packet->workers > 0);
    int room = (int)worker->tracking->options.settings.queue;
    if (worker->count == room)
        worker_lose(worker, worker_pop(worker));
    worker->queue[(worker->first + worker->count) % room] = packet;
    if (worker->count++ == 0)
        pthread_cond_signal(&worker->wake);
}

/* So long at most. */
static void wait_on(pthread_cond_t *cond, pthread_mutex_t *mutex,
                    double seconds)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    int64_t ns = at.tv_nsec + (int64_t)(seconds * 1e9);
    at.tv_sec += ns / 1000000000;
    at.tv_nsec = ns % 1000000000;
    pthread_cond_timedwait(cond, mutex, &at);
}

/* So long, or until the run ends. */
static void worker_pause(struct worker *worker, double seconds)
{
    struct tracking *tracking = worker->tracking;
    double until = clock_now() + seconds;
    double left;
    pthread_mutex_lock(&tracking->mutex);
    while (!tracking->ending && (left = until - clock_now()) > 0)
        wait_on(&worker->wake, &tracking->mutex, left);
    pthread_mutex_unlock(&tracking->mutex);
}

/* The next batch, of one turn; false: there is none and the run ends. */
static bool worker_take(struct worker *worker)
{
    struct tracking *tracking = worker->tracking;
    pthread_mutex_lock(&tracking->mutex);
    while (worker->count == 0 && !tracking->ending)
        pthread_cond_wait(&worker->wake, &tracking->mutex);
    while (worker->count > 0 && worker->batched < BATCH) {
        if (worker->batched > 0 &&
            worker->queue[worker->first]->turn != worker->batch[0]->turn)
            break;
        worker->batch[worker->batched++] = worker_pop(worker);
    }
    bool any = worker->batched > 0;
    pthread_mutex_unlock(&tracking->mutex);
    return any;
}

/* What has been taken is written, or lost. */
static void worker_done_with(struct worker *worker, bool lost)
{
    assert(worker->batched > 0);
    pthread_mutex_lock(&worker->tracking->mutex);
    for (int i = 0; i < worker->batched; i++)
        if (lost)
            worker_lose(worker, worker->batch[i]);
        else
            tracking_packet_give(&worker->tracking->pool, worker->batch[i]);
    worker->batched = 0;
    pthread_mutex_unlock(&worker->tracking->mutex);
}

static void worker_close(struct worker *worker)
{
    worker->ops->close(worker->self);
    memset(worker->self, 0, worker->ops->bytes);
    worker->begun = false;
}

static enum err worker_open(struct worker *worker)
{
    struct tracking *tracking = worker->tracking;
    if (worker->begun && !worker->broken)
        return ERR_OK;
    worker_close(worker);
    return worker->ops->open(worker->self, &tracking->options);
}

/* A turn that was begun before goes on behind what the sink has of it. */
static enum err worker_begin(struct worker *worker)
{
    assert(worker->batched > 0);
    const struct tracking_packet *packet = worker->batch[0];
    bool same = worker->turn == packet->turn;
    if (worker->begun && same)
        return ERR_OK;
    pthread_mutex_lock(&worker->tracking->mutex);
    int64_t low = worker->low;
    pthread_mutex_unlock(&worker->tracking->mutex);
    int64_t step = same                      ? worker->at
                   : packet->turn_step < low ? packet->turn_step
                                             : low;
    TRY(worker->ops->begin(worker->self, step));
    worker->begun = true;
    worker->at = step;
    pthread_mutex_lock(&worker->tracking->mutex);
    worker->turn = packet->turn;
    worker->low = same ? worker->low : INT64_MAX;
    pthread_mutex_unlock(&worker->tracking->mutex);
    return ERR_OK;
}

static enum err worker_write(struct worker *worker)
{
    assert(worker->batched > 0 && worker->batched <= BATCH);
    const struct tracking_record *records[BATCH];
    TRY(worker_open(worker));
    TRY(worker_begin(worker));
    for (int i = 0; i < worker->batched; i++)
        records[i] = &worker->batch[i]->record;
    TRY(worker->ops->write(worker->self, records, worker->batched));
    worker->at = records[worker->batched - 1]->step;
    return ERR_OK;
}

/* Only the first failure is news. */
static void worker_note(struct worker *worker, enum err rc, const char *follows)
{
    pthread_mutex_lock(&worker->tracking->mutex);
    err_keep(&worker->failed, rc);
    pthread_mutex_unlock(&worker->tracking->mutex);
    if (worker->warned)
        return;
    worker->warned = true;
    log_warn("tracking: %s: %s; %s", worker->ops->name, worker->failed.text,
             follows);
}

/* The batch is written in the end, or lost: when the run has ended there is one
 * more try. */
static void worker_deliver(struct worker *worker)
{
    struct tracking *tracking = worker->tracking;
    double pause_s = PAUSE_FIRST_S;
    for (;;) {
        pthread_mutex_lock(&tracking->mutex);
        bool last = tracking->ending;
        pthread_mutex_unlock(&tracking->mutex);
        enum err rc = atomic_load(&tracking->given_up)
                          ? err_set(ERR_IO, "there was no time left")
                          : worker_write(worker);
        worker->broken = rc != ERR_OK && rc != ERR_DATA;
        if (rc != ERR_OK)
            worker_note(worker, rc,
                        "training goes on, and this is tried again");
        if (rc == ERR_OK || rc == ERR_DATA || last) {
            worker_done_with(worker, rc != ERR_OK);
            return;
        }
        worker_pause(worker, pause_s);
        pause_s = pause_s * 2 < PAUSE_MAX_S ? pause_s * 2 : PAUSE_MAX_S;
    }
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    struct tracking *tracking = worker->tracking;
    while (worker_take(worker)) {
        worker_deliver(worker);
        worker_pause(worker, worker->ops->pause_s);
    }
    if (worker->begun && worker->ops->finish != NULL &&
        !atomic_load(&tracking->given_up)) {
        enum err rc = worker->ops->finish(worker->self, tracking->end);
        if (rc != ERR_OK)
            worker_note(worker, rc, "it does not know that the run has ended");
    }
    worker_close(worker);
    pthread_mutex_lock(&tracking->mutex);
    worker->done = true;
    bool last = tracking->left && all_done(tracking);
    pthread_cond_signal(&tracking->ended);
    pthread_mutex_unlock(&tracking->mutex);
    if (last)
        tracking_destroy(tracking);
    return NULL;
}

static void worker_start(struct worker *worker)
{
    worker->started =
        process_thread(&worker->thread, STACK_BYTES, worker_main, worker) == 0;
    if (!worker->started)
        log_warn("tracking: %s: no thread could be started, so nothing goes "
                 "there",
                 worker->ops->name);
}

static void make_cond(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

static enum err add_worker(struct tracking *tracking,
                           const struct tracking_sink_ops *ops)
{
    assert(tracking->worker_count < TRACKING_SINKS_MAX);
    struct worker *worker = &tracking->workers[tracking->worker_count++];
    *worker =
        (struct worker){ .tracking = tracking, .ops = ops, .low = INT64_MAX };
    make_cond(&worker->wake);
    TRY(new_memory(&worker->self, 1, ops->bytes, true, ops->name));
    return new_zeroed(&worker->queue, (size_t)tracking->options.settings.queue);
}

enum err tracking_create(struct tracking_options *options,
                         struct tracking_map *names,
                         const struct tracking_sink_ops *const *sinks,
                         struct tracking **out)
{
    assert(options->settings.queue > 0 && options->param_count >= 0);
    enum err rc = ERR_OK;
    struct tracking *tracking = NULL;
    *out = NULL;
    rc = new_zeroed(&tracking, 1);
    if (rc != ERR_OK) {
        tracking_params_free(options->params, options->param_count);
        options->params = NULL;
        return rc;
    }
    tracking->options = *options;
    tracking->options.given_up = &tracking->given_up;
    options->params = NULL;
    tracking->names = tracking_map_hold(names);
    pthread_mutex_init(&tracking->mutex, NULL);
    make_cond(&tracking->ended);
    tracking->turn = 1;
    for (sinks = sinks != NULL ? sinks : tracking_sinks; *sinks != NULL;
         sinks++)
        if ((*sinks)->wanted(&tracking->options.settings))
            TRY_OUT(add_worker(tracking, *sinks));
    if (tracking->worker_count == 0)
        goto out;
    *out = tracking;
    tracking = NULL;
out:
    if (tracking != NULL)
        tracking_destroy(tracking);
    return rc;
}

void tracking_begin(struct tracking *tracking, int64_t step)
{
    assert(step >= 0);
    tracking->turn++;
    tracking->turn_step = step;
}

void tracking_push(struct tracking *tracking,
                   const struct tracking_record *record)
{
    if (!tracking->started)
        for (int i = 0; i < tracking->worker_count; i++)
            worker_start(&tracking->workers[i]);
    tracking->started = true;
    pthread_mutex_lock(&tracking->mutex);
    struct tracking_packet *packet =
        tracking_packet_make(&tracking->pool, record);
    if (packet != NULL) {
        packet->turn = tracking->turn;
        packet->turn_step = tracking->turn_step;
        packet->workers = 1; /* this function, until all have it */
    }
    for (int i = 0; i < tracking->worker_count; i++) {
        struct worker *worker = &tracking->workers[i];
        if (packet == NULL || !worker->started) {
            worker->lost++;
            continue;
        }
        packet->workers++;
        worker_push(worker, packet);
    }
    if (packet != NULL)
        tracking_packet_give(&tracking->pool, packet);
    pthread_mutex_unlock(&tracking->mutex);
}

/* Until all workers are done, or until then; under the mutex. */
static void await_workers(struct tracking *tracking, double until)
{
    for (double left; !all_done(tracking) && (left = until - clock_now()) > 0;)
        wait_on(&tracking->ended, &tracking->mutex, left);
}

/* What the workers have lost, and what those that do not end have left. */
static int count_lost(const struct tracking *tracking,
                      struct tracking_lost *lost)
{
    int count = 0;
    for (int i = 0; i < tracking->worker_count; i++) {
        const struct worker *worker = &tracking->workers[i];
        struct tracking_lost *one = &lost[count];
        *one = (struct tracking_lost){
            .sink = worker->ops->name,
            .records = worker->lost + worker->count + worker->batched,
        };
        if (one->records == 0)
            continue;
        snprintf(one->reason, sizeof one->reason, "%s",
                 worker->failed.code != ERR_OK ? worker->failed.text
                 : !worker->started            ? "no thread could be started"
                 : !worker->done               ? "it hangs"
                                               : "it is slower than the run");
        count++;
    }
    return count;
}

/* Under the mutex. */
static void begin_end(struct tracking *tracking, enum tracking_end end)
{
    if (tracking->ending)
        return;
    tracking->ending = true;
    tracking->ending_at = clock_now();
    tracking->end = end;
    for (int i = 0; i < tracking->worker_count; i++)
        pthread_cond_signal(&tracking->workers[i].wake);
}

void tracking_model(struct tracking *tracking,
                    const struct tracking_model *model)
{
    assert(!tracking->ending); /* workers read it behind that */
    tracking->options.model = *model;
}

void tracking_finish(struct tracking *tracking, enum tracking_end end)
{
    pthread_mutex_lock(&tracking->mutex);
    begin_end(tracking, end);
    pthread_mutex_unlock(&tracking->mutex);
}

int tracking_end(struct tracking *tracking, enum tracking_end end,
                 double wait_s, struct tracking_lost *lost)
{
    pthread_t threads[TRACKING_SINKS_MAX];
    int done = 0;
    pthread_mutex_lock(&tracking->mutex);
    begin_end(tracking, end);
    await_workers(tracking, tracking->ending_at + wait_s);
    atomic_store(&tracking->given_up, true);
    await_workers(tracking, clock_now() + GRACE_S);
    int count = count_lost(tracking, lost);
    bool all = all_done(tracking);
    for (int i = 0; i < tracking->worker_count; i++) {
        const struct worker *worker = &tracking->workers[i];
        if (worker->started && worker->done)
            threads[done++] = worker->thread;
        else if (worker->started)
            pthread_detach(worker->thread);
    }
    tracking->left = !all;
    pthread_mutex_unlock(&tracking->mutex);
    while (done > 0)
        pthread_join(threads[--done], NULL);
    if (all)
        tracking_destroy(tracking);
    return count;
}
