#include "tests/cuda_emulator_streams.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"

#define STREAMS_MAX 64

struct task {
    struct task *next;
    void (*run)(void *);
    void *what; /* freed after it */
};

struct graph {
    struct task *first, *last; /* kept, whatever is launched */
    int64_t launches;          /* not done yet */
};

struct stream {
    struct task *first, *last;
    int64_t enqueued, done;
    struct graph *capture;    /* where tasks go instead; NULL: it does not */
    pthread_t capture_thread; /* that has begun it */
    bool capture_broken;
};

struct event {
    struct stream *stream; /* NULL: never recorded */
    int64_t place;         /* tasks that are done before it */
    double *reached_s;     /* when the stream came there; NULL: not kept */
};

static pthread_mutex_t lock;
static pthread_once_t lock_once = PTHREAD_ONCE_INIT;
static struct stream *streams[STREAMS_MAX];
static struct cuda_emulator_memory_counts counts;
static bool graphs_refused;

static void lock_create(void)
{
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &kind);
    pthread_mutexattr_destroy(&kind);
}

void cuda_emulator_streams_lock(void)
{
    pthread_once(&lock_once, lock_create);
    pthread_mutex_lock(&lock);
}

void cuda_emulator_streams_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

static void *checked(void *memory)
{
    if (memory == NULL)
        abort();
    return memory;
}

/* A mistake of the program that CUDA would not forgive either. */
static void forbid(bool wrong, const char *text)
{
    if (!wrong)
        return;
    fprintf(stderr, "cuda emulator: %s\n", text);
    abort();
}

/* --- streams --- */

static void stream_run(struct stream *stream, int64_t until)
{
    while (stream->done < until) {
        struct task *task = stream->first;
        stream->first = task->next;
        task->run(task->what);
        free(task->what);
        free(task);
        stream->done++;
    }
}

/* The same for the host. */
static void stream_wait(struct stream *stream, int64_t until)
{
    counts.waits += stream->done < until;
    stream_run(stream, until);
}

void cuda_emulator_defer(void *to, void (*run)(void *), void *what)
{
    struct stream *stream = to;
    struct task *task = checked(calloc(1, sizeof *task));
    *task = (struct task){ NULL, run, what };
    cuda_emulator_streams_lock();
    struct graph *kept = stream->capture;
    struct task **first = kept != NULL ? &kept->first : &stream->first;
    struct task **last = kept != NULL ? &kept->last : &stream->last;
    if (*first == NULL)
        *first = task;
    else
        (*last)->next = task;
    *last = task;
    if (kept == NULL) {
        stream->enqueued++;
        counts.enqueued++;
    }
    cuda_emulator_streams_unlock();
}

enum err cuda_emulator_streams_create(bool urgent, void **stream)
{
    int i = 0;
    (void)urgent;
    cuda_emulator_streams_lock();
    while (i < STREAMS_MAX && streams[i] != NULL)
        i++;
    assert(i < STREAMS_MAX);
    streams[i] = checked(calloc(1, sizeof *streams[i]));
    *stream = streams[i];
    cuda_emulator_streams_unlock();
    return ERR_OK;
}

void cuda_emulator_streams_destroy(void *which)
{
    cuda_emulator_streams_lock();
    for (int i = 0; i < STREAMS_MAX; i++)
        if (which != NULL && streams[i] == which) {
            forbid(streams[i]->capture != NULL,
                   "a stream is destroyed while its work is kept");
            stream_run(streams[i], streams[i]->enqueued);
            free(streams[i]);
            streams[i] = NULL;
        }
    cuda_emulator_streams_unlock();
}

void cuda_emulator_streams_finish(void)
{
    for (int i = 0; i < STREAMS_MAX; i++)
        if (streams[i] != NULL)
            stream_run(streams[i], streams[i]->enqueued);
}

enum err cuda_emulator_streams_wait(void *stream)
{
    enum err rc = ERR_OK;
    struct stream *s = stream;
    cuda_emulator_streams_lock();
    TRY_OUT(cuda_emulator_streams_kept_here("a wait"));
    if (s != NULL)
        stream_wait(s, s->enqueued);
out:
    cuda_emulator_streams_unlock();
    return rc;
}

/* --- events --- */

enum err cuda_emulator_streams_event_create(void **event)
{
    *event = checked(calloc(1, sizeof(struct event)));
    return ERR_OK;
}

enum err cuda_emulator_streams_event_create_timed(void **event)
{
    struct event *e = checked(calloc(1, sizeof *e));
    e->reached_s = checked(calloc(1, sizeof *e->reached_s));
    *event = e;
    return ERR_OK;
}

/* A time that is still to be kept has its place in the event. */
void cuda_emulator_streams_event_destroy(void *event)
{
    struct event *e = event;
    if (e == NULL)
        return;
    cuda_emulator_streams_lock();
    if (e->reached_s != NULL)
        cuda_emulator_streams_finish();
    cuda_emulator_streams_unlock();
    free(e->reached_s);
    free(e);
}

static void run_clock(void *what)
{
    **(double **)what = clock_now();
}

/* What comes to the event is its clock, which is done before it. */
static void defer_clock(struct event *event, struct stream *stream)
{
    double **what = checked(malloc(sizeof *what));
    *what = event->reached_s;
    if (stream != NULL) {
        cuda_emulator_defer(stream, run_clock, what);
        return;
    }
    run_clock(what);
    free(what);
}

enum err cuda_emulator_streams_event_record(void *event, void *stream)
{
    enum err rc = ERR_OK;
    struct stream *s = stream;
    struct event *e = event;
    cuda_emulator_streams_lock();
    TRY_OUT(cuda_emulator_streams_kept_by(stream, "an event"));
    if (e->reached_s != NULL)
        defer_clock(e, s);
    e->stream = s;
    e->place = s != NULL ? s->enqueued : 0;
out:
    cuda_emulator_streams_unlock();
    return rc;
}

enum err cuda_emulator_streams_event_elapsed(void *begin, void *end, double *us)
{
    const struct event *first = begin, *second = end;
    forbid(first->reached_s == NULL || second->reached_s == NULL,
           "the time between events that keep none");
    *us = 1e6 * (*second->reached_s - *first->reached_s);
    return ERR_OK;
}

static void run_await(void *what)
{
    const struct event *event = what;
    stream_run(event->stream, event->place);
}

/* As the event is now, whatever is recorded in it later. */
enum err cuda_emulator_streams_event_await(void *event, void *stream)
{
    enum err rc = ERR_OK;
    cuda_emulator_streams_lock();
    TRY_OUT(cuda_emulator_streams_kept_by(stream, "an event"));
    if (stream != NULL && ((struct event *)event)->stream != NULL) {
        struct event *now = checked(malloc(sizeof *now));
        memcpy(now, event, sizeof *now);
        cuda_emulator_defer(stream, run_await, now);
    }
out:
    cuda_emulator_streams_unlock();
    return rc;
}

enum err cuda_emulator_streams_event_wait(void *event)
{
    enum err rc = ERR_OK;
    const struct event *e = event;
    cuda_emulator_streams_lock();
    TRY_OUT(cuda_emulator_streams_kept_here("a wait"));
    if (e->stream != NULL)
        stream_wait(e->stream, e->place);
out:
    cuda_emulator_streams_unlock();
    return rc;
}

/* Time passes between two questions. */
enum err cuda_emulator_streams_event_done(void *event, bool *done)
{
    enum err rc = ERR_OK;
    const struct event *e = event;
    *done = false;
    cuda_emulator_streams_lock();
    TRY_OUT(cuda_emulator_streams_kept_here("asking an event"));
    *done = e->stream == NULL || e->stream->done >= e->place;
    if (!*done)
        stream_run(e->stream, e->stream->done + 1);
out:
    cuda_emulator_streams_unlock();
    return rc;
}

/* --- what is kept --- */

static enum err spoil(struct stream *stream, const char *what)
{
    stream->capture_broken = true;
    return err_set(ERR_UNSUPPORTED,
                   "emulated device: %s cannot be kept in a graph", what);
}

enum err cuda_emulator_streams_kept_by(void *stream, const char *what)
{
    struct stream *s = stream;
    return s != NULL && s->capture != NULL ? spoil(s, what) : ERR_OK;
}

enum err cuda_emulator_streams_kept_here(const char *what)
{
    enum err rc = ERR_OK;
    for (int i = 0; i < STREAMS_MAX; i++)
        if (streams[i] != NULL && streams[i]->capture != NULL &&
            pthread_equal(streams[i]->capture_thread, pthread_self()))
            rc = spoil(streams[i], what);
    return rc;
}

static void graph_free(struct graph *graph)
{
    struct task *next;
    for (struct task *task = graph->first; task != NULL; task = next) {
        next = task->next;
        free(task->what);
        free(task);
    }
    free(graph);
}

enum err cuda_emulator_streams_capture_begin(void *stream)
{
    struct stream *s = stream;
    if (s == NULL)
        return err_set(ERR_UNSUPPORTED,
                       "emulated device: work without a stream is not kept");
    cuda_emulator_streams_lock();
    forbid(s->capture != NULL, "the stream's work is kept already");
    s->capture = checked(calloc(1, sizeof *s->capture));
    s->capture_thread = pthread_self();
    s->capture_broken = false;
    cuda_emulator_streams_unlock();
    return ERR_OK;
}

enum err cuda_emulator_streams_capture_end(void *stream, void **graph)
{
    enum err rc = ERR_OK;
    struct stream *s = stream;
    cuda_emulator_streams_lock();
    forbid(s->capture == NULL, "the stream's work is not kept");
    forbid(!pthread_equal(s->capture_thread, pthread_self()),
           "another thread has begun to keep the stream's work");
    *graph = s->capture;
    s->capture = NULL;
    if (s->capture_broken || graphs_refused) {
        graph_free(*graph);
        *graph = NULL;
        rc = err_set(ERR_UNSUPPORTED,
                     "emulated device: something cannot be kept in a graph");
    } else {
        counts.captures++;
    }
    cuda_emulator_streams_unlock();
    return rc;
}

static void run_graph(void *what)
{
    struct graph *graph = *(struct graph **)what;
    for (struct task *task = graph->first; task != NULL; task = task->next)
        task->run(task->what);
    graph->launches--;
}

enum err cuda_emulator_streams_graph_launch(void *graph, void *stream)
{
    struct graph **what = checked(malloc(sizeof *what));
    struct stream *s = stream;
    *what = graph;
    cuda_emulator_streams_lock();
    forbid(s == NULL || s->capture != NULL,
           "a graph is launched where it cannot be");
    (*what)->launches++;
    counts.launches++;
    cuda_emulator_defer(stream, run_graph, what);
    cuda_emulator_streams_unlock();
    return ERR_OK;
}

void cuda_emulator_streams_graph_destroy(void *graph)
{
    struct graph *g = graph;
    if (g == NULL)
        return;
    cuda_emulator_streams_lock();
    forbid(g->launches > 0,
           "a graph is destroyed before its launches are done");
    graph_free(g);
    cuda_emulator_streams_unlock();
}

struct cuda_emulator_memory_counts cuda_emulator_memory_counts(void)
{
    cuda_emulator_streams_lock();
    struct cuda_emulator_memory_counts now = counts;
    cuda_emulator_streams_unlock();
    return now;
}

int64_t cuda_emulator_memory_waits(void)
{
    return cuda_emulator_memory_counts().waits;
}

void cuda_emulator_memory_refuse_graphs(bool refuse)
{
    cuda_emulator_streams_lock();
    graphs_refused = refuse;
    cuda_emulator_streams_unlock();
}
