#include "tests/cuda_emulator_memory.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define AREAS_MAX 256
#define STREAMS_MAX 64

/* What the emulator calls, if the program has this file. */
void cuda_emulator_open(bool open);
void cuda_emulator_defer(void *stream, void (*run)(void *), void *what);

struct area {
    char *base;
    size_t bytes;
    bool device;
};

struct task {
    struct task *next;
    void (*run)(void *);
    void *what; /* freed after it */
};

struct stream {
    struct task *first, *last;
    int64_t enqueued, done;
};

struct event {
    struct stream *stream; /* NULL: never recorded */
    int64_t place;         /* tasks that are done before it */
};

struct copy {
    size_t bytes;
    const void *from;
    void *to;
};

static pthread_mutex_t lock;
static pthread_once_t lock_once = PTHREAD_ONCE_INIT;
static struct area areas[AREAS_MAX];
static struct stream *streams[STREAMS_MAX];
static int opened;
static int64_t waits;

static void lock_create(void)
{
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &kind);
    pthread_mutexattr_destroy(&kind);
}

static void begin(void)
{
    pthread_once(&lock_once, lock_create);
    pthread_mutex_lock(&lock);
}

static void end(void)
{
    pthread_mutex_unlock(&lock);
}

static void *checked(void *memory)
{
    if (memory == NULL)
        abort();
    return memory;
}

/* --- memory ----------------------------------------------------------------
 */

static void protect(int access)
{
    for (int i = 0; i < AREAS_MAX; i++)
        if (areas[i].device &&
            mprotect(areas[i].base, areas[i].bytes, access) != 0)
            abort();
}

/* Nested: a kernel may run while another one's stream is. */
void cuda_emulator_open(bool open)
{
    if (open) {
        begin();
        if (opened++ == 0)
            protect(PROT_READ | PROT_WRITE);
        return;
    }
    if (--opened == 0)
        protect(PROT_NONE);
    end();
}

static enum err area_create(size_t bytes, bool device, struct arena *out)
{
    size_t page = 4096;
    size_t whole = (bytes + page) / page * page;
    int i = 0;
    begin();
    while (i < AREAS_MAX && areas[i].base != NULL)
        i++;
    assert(i < AREAS_MAX && opened == 0);
    void *base = mmap(NULL, whole, device ? PROT_NONE : PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base != MAP_FAILED)
        areas[i] = (struct area){ base, whole, device };
    end();
    if (base == MAP_FAILED)
        return err_set(ERR_MEMORY, "emulated device: no %zu bytes", bytes);
    *out = (struct arena){ .base = base, .capacity = bytes };
    return ERR_OK;
}

static enum err tensors_create(size_t bytes, struct arena *out)
{
    return area_create(bytes, true, out);
}

static enum err host_create(size_t bytes, struct arena *out)
{
    return area_create(bytes, false, out);
}

static bool is_pinned(const void *p)
{
    for (int i = 0; i < AREAS_MAX; i++)
        if (areas[i].base != NULL && !areas[i].device &&
            (const char *)p >= areas[i].base &&
            (const char *)p < areas[i].base + areas[i].bytes)
            return true;
    return false;
}

/* --- streams ---------------------------------------------------------------
 */

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
    waits += stream->done < until;
    stream_run(stream, until);
}

void cuda_emulator_defer(void *to, void (*run)(void *), void *what)
{
    struct stream *stream = to;
    struct task *task = checked(calloc(1, sizeof *task));
    *task = (struct task){ NULL, run, what };
    begin();
    if (stream->first == NULL)
        stream->first = task;
    else
        stream->last->next = task;
    stream->last = task;
    stream->enqueued++;
    end();
}

static enum err stream_create(bool urgent, void **stream)
{
    int i = 0;
    (void)urgent;
    begin();
    while (i < STREAMS_MAX && streams[i] != NULL)
        i++;
    assert(i < STREAMS_MAX);
    streams[i] = checked(calloc(1, sizeof *streams[i]));
    *stream = streams[i];
    end();
    return ERR_OK;
}

static void stream_destroy(void *which)
{
    begin();
    for (int i = 0; i < STREAMS_MAX; i++)
        if (which != NULL && streams[i] == which) {
            stream_run(streams[i], streams[i]->enqueued);
            free(streams[i]);
            streams[i] = NULL;
        }
    end();
}

/* A device does not give memory back before all is done. */
static void area_destroy(struct arena *arena)
{
    begin();
    for (int i = 0; i < STREAMS_MAX && arena->base != NULL; i++)
        if (streams[i] != NULL)
            stream_run(streams[i], streams[i]->enqueued);
    for (int i = 0; i < AREAS_MAX && arena->base != NULL; i++)
        if (areas[i].base == arena->base) {
            munmap(areas[i].base, areas[i].bytes);
            areas[i] = (struct area){ 0 };
        }
    end();
    *arena = (struct arena){ 0 };
}

static enum err wait_for(void *stream)
{
    struct stream *s = stream;
    begin();
    if (s != NULL)
        stream_wait(s, s->enqueued);
    end();
    return ERR_OK;
}

/* --- copies ----------------------------------------------------------------
 */

static void run_copy(void *what)
{
    const struct copy *copy = what;
    cuda_emulator_open(true);
    if (copy->bytes > 0)
        memcpy(copy->to, copy->from, copy->bytes);
    cuda_emulator_open(false);
}

static void enqueue_copy(void *stream, size_t bytes, const void *from, void *to,
                         bool now)
{
    struct copy copy = { bytes, from, to };
    if (stream == NULL || now) {
        wait_for(stream);
        run_copy(&copy);
        return;
    }
    struct copy *later = checked(malloc(sizeof *later));
    *later = copy;
    cuda_emulator_defer(stream, run_copy, later);
}

static enum err upload(void *stream, size_t bytes, const void *host,
                       void *tensor)
{
    begin();
    enqueue_copy(stream, bytes, host, tensor, !is_pinned(host));
    end();
    return ERR_OK;
}

static enum err download(void *stream, size_t bytes, const void *tensor,
                         void *host)
{
    begin();
    enqueue_copy(stream, bytes, tensor, host, !is_pinned(host));
    end();
    return ERR_OK;
}

static enum err copy_tensors(void *stream, size_t bytes, const void *from,
                             void *to)
{
    begin();
    enqueue_copy(stream, bytes, from, to, false);
    end();
    return ERR_OK;
}

/* --- events ----------------------------------------------------------------
 */

static enum err event_create(void **event)
{
    *event = checked(calloc(1, sizeof(struct event)));
    return ERR_OK;
}

static enum err event_record(void *event, void *stream)
{
    struct stream *s = stream;
    begin();
    *(struct event *)event = (struct event){ s, s != NULL ? s->enqueued : 0 };
    end();
    return ERR_OK;
}

static void run_await(void *what)
{
    const struct event *event = what;
    stream_run(event->stream, event->place);
}

/* As the event is now, whatever is recorded in it later. */
static enum err event_await(void *event, void *stream)
{
    begin();
    if (stream != NULL && ((struct event *)event)->stream != NULL) {
        struct event *now = checked(malloc(sizeof *now));
        memcpy(now, event, sizeof *now);
        cuda_emulator_defer(stream, run_await, now);
    }
    end();
    return ERR_OK;
}

static enum err event_wait(void *event)
{
    const struct event *e = event;
    begin();
    if (e->stream != NULL)
        stream_wait(e->stream, e->place);
    end();
    return ERR_OK;
}

/* Time passes between two questions. */
static enum err event_done(void *event, bool *done)
{
    const struct event *e = event;
    begin();
    *done = e->stream == NULL || e->stream->done >= e->place;
    if (!*done)
        stream_run(e->stream, e->stream->done + 1);
    end();
    return ERR_OK;
}

static enum err use(int local_rank)
{
    (void)local_rank;
    return ERR_OK;
}

int64_t cuda_emulator_memory_waits(void)
{
    begin();
    int64_t count = waits;
    end();
    return count;
}

const struct kernel_memory cuda_emulator_memory = {
    .device = true,
    .use = use,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .tensors_create = tensors_create,
    .tensors_destroy = area_destroy,
    .host_create = host_create,
    .host_destroy = area_destroy,
    .upload = upload,
    .download = download,
    .copy = copy_tensors,
    .wait = wait_for,
    .event_create = event_create,
    .event_destroy = free,
    .event_record = event_record,
    .event_await = event_await,
    .event_wait = event_wait,
    .event_done = event_done,
};
