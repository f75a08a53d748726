/* The table of sinks, and what brings records to them: for each sink that is
 * wanted a lane, which is a queue and the thread that empties it.
 *
 * A record is copied once, whatever the number of lanes, into a packet that the
 * last lane gives back; packets are used again, so that a run that logs the
 * same names allocates nothing after its first steps. The run only ever holds
 * the mutex for that; lanes hold it to take packets, never while they write. */
#include "src/tracking/tracking.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/tracking/tracking_packet.h"
#include "src/tracking/tracking_sink.h"

#define BATCH 64
#define STACK_BYTES ((size_t)1 << 20)
#define PAUSE_FIRST_S 1.0
#define PAUSE_MAX_S 60.0
#define GRACE_S 1.0 /* for a lane that was told to give up */

static const struct tracking_sink_ops *const all_sinks[] = {
    &tracking_tensorboard_ops, &tracking_csv_ops,
    &tracking_prometheus_ops,  &tracking_mlflow_file_ops,
    &tracking_mlflow_rest_ops, NULL,
};

struct lane {
    struct tracking *tracking;
    const struct tracking_sink_ops *ops;
    void *self;
    pthread_t thread;
    pthread_cond_t wake;
    bool started, done;
    struct tracking_packet **queue; /* [options.queue], a ring */
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
    pthread_cond_t ended; /* a lane is done */
    struct tracking_pool pool;
    struct lane lanes[TRACKING_SINKS_MAX];
    int lane_count;
    bool started;
    bool ending;
    bool left; /* to the lanes that hang: the last of them frees it */
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

static void destroy(struct tracking *tracking)
{
    for (int i = 0; i < tracking->lane_count; i++) {
        struct lane *lane = &tracking->lanes[i];
        pthread_cond_destroy(&lane->wake);
        free(lane->queue);
        free(lane->self);
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
    for (int i = 0; i < tracking->lane_count; i++)
        if (tracking->lanes[i].started && !tracking->lanes[i].done)
            return false;
    return true;
}

/* --- lanes ------------------------------------------------------------------ */

static void lane_lose(struct lane *lane, struct tracking_packet *packet)
{
    if (packet->turn > lane->turn && packet->turn_step < lane->low)
        lane->low = packet->turn_step;
    lane->lost++;
    tracking_packet_give(&lane->tracking->pool, packet);
}

/* Its oldest, under the mutex. */
static struct tracking_packet *lane_pop(struct lane *lane)
{
    struct tracking_packet *packet = lane->queue[lane->first];
    lane->first = (lane->first + 1) % lane->tracking->options.queue;
    lane->count--;
    return packet;
}

static void lane_push(struct lane *lane, struct tracking_packet *packet)
{
    int room = lane->tracking->options.queue;
    if (lane->count == room)
        lane_lose(lane, lane_pop(lane));
    lane->queue[(lane->first + lane->count) % room] = packet;
    if (lane->count++ == 0)
        pthread_cond_signal(&lane->wake);
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
static void lane_pause(struct lane *lane, double seconds)
{
    struct tracking *tracking = lane->tracking;
    double until = clock_now() + seconds;
    double left;
    pthread_mutex_lock(&tracking->mutex);
    while (!tracking->ending && (left = until - clock_now()) > 0)
        wait_on(&lane->wake, &tracking->mutex, left);
    pthread_mutex_unlock(&tracking->mutex);
}

/* The next batch, of one turn; false: there is none and the run ends. */
static bool lane_take(struct lane *lane)
{
    struct tracking *tracking = lane->tracking;
    pthread_mutex_lock(&tracking->mutex);
    while (lane->count == 0 && !tracking->ending)
        pthread_cond_wait(&lane->wake, &tracking->mutex);
    while (lane->count > 0 && lane->batched < BATCH) {
        if (lane->batched > 0 &&
            lane->queue[lane->first]->turn != lane->batch[0]->turn)
            break;
        lane->batch[lane->batched++] = lane_pop(lane);
    }
    bool any = lane->batched > 0;
    pthread_mutex_unlock(&tracking->mutex);
    return any;
}

/* What has been taken is written, or lost. */
static void lane_done_with(struct lane *lane, bool lost)
{
    pthread_mutex_lock(&lane->tracking->mutex);
    for (int i = 0; i < lane->batched; i++)
        if (lost)
            lane_lose(lane, lane->batch[i]);
        else
            tracking_packet_give(&lane->tracking->pool, lane->batch[i]);
    lane->batched = 0;
    pthread_mutex_unlock(&lane->tracking->mutex);
}

static void lane_close(struct lane *lane)
{
    lane->ops->close(lane->self);
    memset(lane->self, 0, lane->ops->bytes);
    lane->begun = false;
}

static enum err lane_open(struct lane *lane)
{
    struct tracking *tracking = lane->tracking;
    if (lane->begun && !lane->broken)
        return ERR_OK;
    lane_close(lane);
    return lane->ops->open(lane->self, &tracking->options, &tracking->given_up);
}

/* A turn that was begun before goes on behind what the sink has of it. */
static enum err lane_begin(struct lane *lane)
{
    const struct tracking_packet *packet = lane->batch[0];
    bool same = lane->turn == packet->turn;
    if (lane->begun && same)
        return ERR_OK;
    pthread_mutex_lock(&lane->tracking->mutex);
    int64_t step = same                            ? lane->at
                   : packet->turn_step < lane->low ? packet->turn_step
                                                   : lane->low;
    pthread_mutex_unlock(&lane->tracking->mutex);
    TRY(lane->ops->begin(lane->self, step));
    lane->begun = true;
    lane->at = step;
    pthread_mutex_lock(&lane->tracking->mutex);
    lane->turn = packet->turn;
    lane->low = same ? lane->low : INT64_MAX;
    pthread_mutex_unlock(&lane->tracking->mutex);
    return ERR_OK;
}

static enum err lane_write(struct lane *lane)
{
    const struct tracking_record *records[BATCH];
    TRY(lane_open(lane));
    TRY(lane_begin(lane));
    for (int i = 0; i < lane->batched; i++)
        records[i] = &lane->batch[i]->record;
    TRY(lane->ops->write(lane->self, records, lane->batched));
    lane->at = records[lane->batched - 1]->step;
    return ERR_OK;
}

/* Only the first failure is news. */
static void lane_note(struct lane *lane, enum err rc, const char *follows)
{
    pthread_mutex_lock(&lane->tracking->mutex);
    err_keep(&lane->failed, rc);
    pthread_mutex_unlock(&lane->tracking->mutex);
    if (lane->warned)
        return;
    lane->warned = true;
    log_warn("tracking: %s: %s; %s", lane->ops->name, lane->failed.text,
             follows);
}

/* The batch is written in the end, or lost: when the run has ended there is one
 * more try. */
static void lane_deliver(struct lane *lane)
{
    struct tracking *tracking = lane->tracking;
    double pause_s = PAUSE_FIRST_S;
    for (;;) {
        pthread_mutex_lock(&tracking->mutex);
        bool last = tracking->ending;
        pthread_mutex_unlock(&tracking->mutex);
        enum err rc = atomic_load(&tracking->given_up)
                          ? err_set(ERR_IO, "there was no time left")
                          : lane_write(lane);
        lane->broken = rc != ERR_OK && rc != ERR_DATA;
        if (rc != ERR_OK)
            lane_note(lane, rc, "training goes on, and this is tried again");
        if (rc == ERR_OK || rc == ERR_DATA || last) {
            lane_done_with(lane, rc != ERR_OK);
            return;
        }
        lane_pause(lane, pause_s);
        pause_s = pause_s * 2 < PAUSE_MAX_S ? pause_s * 2 : PAUSE_MAX_S;
    }
}

static void *lane_main(void *arg)
{
    struct lane *lane = arg;
    struct tracking *tracking = lane->tracking;
    while (lane_take(lane)) {
        lane_deliver(lane);
        lane_pause(lane, lane->ops->pause_s);
    }
    if (lane->begun && lane->ops->finish != NULL &&
        !atomic_load(&tracking->given_up)) {
        enum err rc = lane->ops->finish(lane->self, tracking->end);
        if (rc != ERR_OK)
            lane_note(lane, rc, "it does not know that the run has ended");
    }
    lane_close(lane);
    pthread_mutex_lock(&tracking->mutex);
    lane->done = true;
    bool last = tracking->left && all_done(tracking);
    pthread_cond_signal(&tracking->ended);
    pthread_mutex_unlock(&tracking->mutex);
    if (last)
        destroy(tracking);
    return NULL;
}

/* Signals are the main thread's. */
static void lane_start(struct lane *lane)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    lane->started =
        pthread_create(&lane->thread, &attributes, lane_main, lane) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (!lane->started)
        log_warn("tracking: %s: no thread could be started, so nothing goes "
                 "there",
                 lane->ops->name);
}

/* --- the whole --------------------------------------------------------------- */

static void make_cond(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

static enum err add_lane(struct tracking *tracking,
                         const struct tracking_sink_ops *ops)
{
    assert(tracking->lane_count < TRACKING_SINKS_MAX);
    struct lane *lane = &tracking->lanes[tracking->lane_count++];
    *lane = (struct lane){ .tracking = tracking, .ops = ops, .low = INT64_MAX };
    make_cond(&lane->wake);
    lane->self = calloc(1, ops->bytes);
    lane->queue =
        calloc((size_t)tracking->options.queue, sizeof lane->queue[0]);
    return lane->self != NULL && lane->queue != NULL
               ? ERR_OK
               : err_set(ERR_MEMORY, "out of memory");
}

enum err tracking_create(struct tracking_options *options,
                         struct tracking_map *names,
                         const struct tracking_sink_ops *const *sinks,
                         struct tracking **out)
{
    enum err rc = ERR_OK;
    struct tracking *tracking = calloc(1, sizeof *tracking);
    *out = NULL;
    if (tracking == NULL) {
        tracking_params_free(options->params, options->param_count);
        options->params = NULL;
        return err_set(ERR_MEMORY, "out of memory");
    }
    tracking->options = *options;
    options->params = NULL;
    tracking->names = tracking_map_hold(names);
    pthread_mutex_init(&tracking->mutex, NULL);
    make_cond(&tracking->ended);
    tracking->turn = 1;
    for (sinks = sinks != NULL ? sinks : all_sinks; *sinks != NULL; sinks++)
        if ((*sinks)->wanted(&tracking->options))
            TRY_OUT(add_lane(tracking, *sinks));
    if (tracking->lane_count == 0)
        goto out;
    *out = tracking;
    tracking = NULL;
out:
    if (tracking != NULL)
        destroy(tracking);
    return rc;
}

void tracking_begin(struct tracking *tracking, int64_t step)
{
    tracking->turn++;
    tracking->turn_step = step;
}

void tracking_push(struct tracking *tracking,
                   const struct tracking_record *record)
{
    if (!tracking->started)
        for (int i = 0; i < tracking->lane_count; i++)
            lane_start(&tracking->lanes[i]);
    tracking->started = true;
    pthread_mutex_lock(&tracking->mutex);
    struct tracking_packet *packet =
        tracking_packet_make(&tracking->pool, record);
    if (packet != NULL) {
        packet->turn = tracking->turn;
        packet->turn_step = tracking->turn_step;
        packet->lanes = 1; /* this function, until all have it */
    }
    for (int i = 0; i < tracking->lane_count; i++) {
        struct lane *lane = &tracking->lanes[i];
        if (packet == NULL || !lane->started) {
            lane->lost++;
            continue;
        }
        packet->lanes++;
        lane_push(lane, packet);
    }
    if (packet != NULL)
        tracking_packet_give(&tracking->pool, packet);
    pthread_mutex_unlock(&tracking->mutex);
}

/* Until all lanes are done, or until then; under the mutex. */
static void await_lanes(struct tracking *tracking, double until)
{
    for (;;) {
        double left = until - clock_now();
        if (all_done(tracking) || left <= 0)
            return;
        wait_on(&tracking->ended, &tracking->mutex, left);
    }
}

/* What the lanes have lost, and what those that do not end have left. */
static int count_lost(const struct tracking *tracking,
                      struct tracking_lost *lost)
{
    int count = 0;
    for (int i = 0; i < tracking->lane_count; i++) {
        const struct lane *lane = &tracking->lanes[i];
        struct tracking_lost *one = &lost[count];
        *one = (struct tracking_lost){
            .sink = lane->ops->name,
            .records = lane->lost + lane->count + lane->batched,
        };
        if (one->records == 0)
            continue;
        snprintf(one->reason, sizeof one->reason, "%s",
                 lane->failed.code != ERR_OK ? lane->failed.text
                 : !lane->started            ? "no thread could be started"
                 : !lane->done               ? "it hangs"
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
    for (int i = 0; i < tracking->lane_count; i++)
        pthread_cond_signal(&tracking->lanes[i].wake);
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
    await_lanes(tracking, tracking->ending_at + wait_s);
    atomic_store(&tracking->given_up, true);
    await_lanes(tracking, clock_now() + GRACE_S);
    int count = count_lost(tracking, lost);
    bool all = all_done(tracking);
    for (int i = 0; i < tracking->lane_count; i++) {
        const struct lane *lane = &tracking->lanes[i];
        if (lane->started && lane->done)
            threads[done++] = lane->thread;
        else if (lane->started)
            pthread_detach(lane->thread);
    }
    tracking->left = !all;
    pthread_mutex_unlock(&tracking->mutex);
    while (done > 0)
        pthread_join(threads[--done], NULL);
    if (all)
        destroy(tracking);
    return count;
}
