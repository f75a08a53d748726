#include "tests/deferred_memory.h"

#include <assert.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAR ((uintptr_t)1 << 60)
#define STREAMS 32
#define ALIGN ((size_t)256)

enum kind { COPY, RECORD, AWAIT, CALL };

struct event {
    unsigned long recorded, reached; /* numbers of the latest */
    struct stream *stream;
    struct event *next; /* destroyed one */
};

struct op {
    enum kind kind;
    void *to;
    const void *from;
    size_t bytes;
    struct event *event;
    unsigned long number;
    bool (*run)(void *);
    void *argument;
};

struct stream {
    bool urgent, running;
    struct op *ops;
    size_t first, end, room;
};

struct deferred deferred;

/* Streams with work left stay here, and events, which may be in it. */
static struct stream *streams[STREAMS];
static struct event *events_gone;

static void *make(size_t bytes)
{
    void *made = calloc(1, bytes);
    if (made == NULL)
        abort();
    return made;
}

void *deferred_reach(const void *tensor)
{
    assert((uintptr_t)tensor > FAR);
    return (void *)((uintptr_t)tensor - FAR);
}

static bool run_to(struct event *event, unsigned long number, bool force);

/* The first op of the stream; false when that has to wait. */
static bool run_one(struct stream *stream, bool force)
{
    bool done = true;
    if (stream->running || stream->first == stream->end)
        return false;
    stream->running = true;
    struct op op = stream->ops[stream->first];
    if (op.kind == COPY)
        memcpy(op.to, op.from, op.bytes);
    else if (op.kind == RECORD)
        op.event->reached = op.number;
    else if (op.kind == AWAIT)
        done = run_to(op.event, op.number, force);
    else
        done = op.run(op.argument);
    stream->running = false;
    stream->first += done;
    return done;
}

static bool run_to(struct event *event, unsigned long number, bool force)
{
    while (event->reached < number)
        if (!force || !run_one(event->stream, true))
            return false;
    return true;
}

static void run_streams(bool urgent, bool others)
{
    bool moved = urgent || others;
    while (moved) {
        moved = false;
        for (int i = 0; i < STREAMS; i++)
            while (streams[i] != NULL &&
                   (streams[i]->urgent ? urgent : others) &&
                   run_one(streams[i], false))
                moved = true;
    }
}

static void run_eager(void)
{
    run_streams(deferred.eager == EAGER_URGENT, deferred.eager == EAGER_OTHERS);
}

void deferred_progress(void)
{
    run_streams(true, true);
}

static void enqueue(struct stream *stream, struct op op)
{
    if (stream->first == stream->end)
        stream->first = stream->end = 0;
    if (stream->end == stream->room) {
        stream->room = 2 * stream->room + 16;
        stream->ops = realloc(stream->ops, stream->room * sizeof op);
        if (stream->ops == NULL)
            abort();
    }
    stream->ops[stream->end++] = op;
    run_eager();
}

void deferred_call(void *stream, bool (*run)(void *), void *argument)
{
    enqueue(stream,
            (struct op){ .kind = CALL, .run = run, .argument = argument });
}

static enum err use(int local_rank)
{
    (void)local_rank;
    return ERR_OK;
}

static enum err identify(char *text, size_t bytes)
{
    snprintf(text, bytes, "%s", deferred.name != NULL ? deferred.name : "");
    return ERR_OK;
}

static enum err stream_create(bool urgent, void **out)
{
    struct stream *stream = make(sizeof *stream);
    int i = 0;
    stream->urgent = urgent;
    while (streams[i] != NULL)
        i++;
    assert(i < STREAMS);
    streams[i] = stream;
    *out = stream;
    return ERR_OK;
}

static void stream_destroy(void *stream_)
{
    struct stream *stream = stream_;
    if (stream == NULL)
        return;
    if (stream->first < stream->end) {
        deferred.lost++;
        return;
    }
    for (int i = 0; i < STREAMS; i++)
        if (streams[i] == stream)
            streams[i] = NULL;
    free(stream->ops);
    free(stream);
}

static enum err host_create(size_t bytes, struct arena *out)
{
    deferred.host_creates++;
    *out = (struct arena){ .base = make(bytes), .capacity = bytes };
    return ERR_OK;
}

static void host_destroy(struct arena *arena)
{
    free(arena->base);
    *arena = (struct arena){ 0 };
}

static enum err tensors_create(size_t bytes, struct arena *out)
{
    size_t whole = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    void *made = aligned_alloc(ALIGN, whole);
    if (made == NULL)
        abort();
    char *base = (char *)((uintptr_t)memset(made, 0, whole) + FAR);
    *out = (struct arena){ .base = base, .capacity = bytes };
    return ERR_OK;
}

static void tensors_destroy(struct arena *arena)
{
    if (arena->base != NULL)
        free(deferred_reach(arena->base));
    *arena = (struct arena){ 0 };
}

static enum err move(void *stream, size_t bytes, const void *from, void *to)
{
    if (bytes > 0)
        enqueue(stream,
                (struct op){
                    .kind = COPY, .from = from, .to = to, .bytes = bytes });
    return ERR_OK;
}

static enum err upload(void *stream, size_t bytes, const void *host,
                       void *tensor)
{
    return move(stream, bytes, host, deferred_reach(tensor));
}

static enum err download(void *stream, size_t bytes, const void *tensor,
                         void *host)
{
    memset(host, 0xdd, bytes);
    return move(stream, bytes, deferred_reach(tensor), host);
}

static enum err copy(void *stream, size_t bytes, const void *from, void *to)
{
    return move(stream, bytes, deferred_reach(from), deferred_reach(to));
}

static enum err stream_wait(void *stream_)
{
    struct stream *stream = stream_;
    while (stream->first < stream->end)
        if (!run_one(stream, true))
            sched_yield();
    run_eager();
    return ERR_OK;
}

static enum err event_create(void **event)
{
    *event = make(sizeof(struct event));
    return ERR_OK;
}

static void event_destroy(void *event_)
{
    struct event *event = event_;
    if (event == NULL)
        return;
    event->next = events_gone;
    events_gone = event;
}

static enum err event_record(void *event_, void *stream)
{
    struct event *event = event_;
    event->stream = stream;
    event->recorded++;
    enqueue(stream, (struct op){ .kind = RECORD,
                                 .event = event,
                                 .number = event->recorded });
    return ERR_OK;
}

static enum err event_await(void *event_, void *stream)
{
    struct event *event = event_;
    enqueue(stream, (struct op){ .kind = AWAIT,
                                 .event = event,
                                 .number = event->recorded });
    return ERR_OK;
}

static enum err event_wait(void *event_)
{
    struct event *event = event_;
    while (!run_to(event, event->recorded, true))
        sched_yield();
    run_eager();
    return ERR_OK;
}

/* Most who ask come too early. */
static enum err event_done(void *event_, bool *done)
{
    static unsigned asked;
    struct event *event = event_;
    *done = event->reached == event->recorded;
    if (!*done && ++asked % 3 == 0)
        *done = run_to(event, event->recorded, true);
    run_eager();
    return ERR_OK;
}

const struct kernel_memory deferred_memory = {
    .device = true,
    .use = use,
    .identify = identify,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .tensors_create = tensors_create,
    .tensors_destroy = tensors_destroy,
    .host_create = host_create,
    .host_destroy = host_destroy,
    .upload = upload,
    .download = download,
    .copy = copy,
    .wait = stream_wait,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_await = event_await,
    .event_wait = event_wait,
    .event_done = event_done,
};
