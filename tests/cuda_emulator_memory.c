#include "tests/cuda_emulator_memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/cuda_emulator_streams.h"

#define AREAS_MAX 256

/* What the emulator calls, if the program has this file. */
void cuda_emulator_open(bool open);

struct area {
    char *base;
    size_t bytes;
    bool device;
};

struct copy {
    size_t bytes;
    const void *from;
    void *to;
};

static struct area areas[AREAS_MAX];
static int opened;

/* --- memory --- */

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
        cuda_emulator_streams_lock();
        if (opened++ == 0)
            protect(PROT_READ | PROT_WRITE);
        return;
    }
    if (--opened == 0)
        protect(PROT_NONE);
    cuda_emulator_streams_unlock();
}

static enum err area_create(size_t bytes, bool device, struct arena *out)
{
    enum err rc = ERR_OK;
    size_t page = 4096;
    size_t whole = (bytes + page) / page * page;
    int i = 0;
    *out = (struct arena){ 0 };
    cuda_emulator_streams_lock();
    TRY_OUT(cuda_emulator_streams_kept_here("taking memory"));
    while (i < AREAS_MAX && areas[i].base != NULL)
        i++;
    assert(i < AREAS_MAX && opened == 0);
    void *base = mmap(NULL, whole, device ? PROT_NONE : PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base != MAP_FAILED)
        areas[i] = (struct area){ base, whole, device };
    if (base == MAP_FAILED)
        TRY_OUT(err_set(ERR_MEMORY, "emulated device: no %zu bytes", bytes));
    *out = (struct arena){ .base = base, .capacity = bytes };
out:
    cuda_emulator_streams_unlock();
    return rc;
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

/* A device does not give memory back before all is done. */
static void area_destroy(struct arena *arena)
{
    cuda_emulator_streams_lock();
    if (arena->base != NULL)
        cuda_emulator_streams_finish();
    for (int i = 0; i < AREAS_MAX && arena->base != NULL; i++)
        if (areas[i].base == arena->base) {
            munmap(areas[i].base, areas[i].bytes);
            areas[i] = (struct area){ 0 };
        }
    cuda_emulator_streams_unlock();
    *arena = (struct arena){ 0 };
}

/* --- copies --- */

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
        cuda_emulator_streams_wait(stream);
        run_copy(&copy);
        return;
    }
    struct copy *later = malloc(sizeof *later);
    if (later == NULL)
        abort();
    *later = copy;
    cuda_emulator_defer(stream, run_copy, later);
}

static enum err upload(void *stream, size_t bytes, const void *host,
                       void *tensor)
{
    enum err rc = ERR_OK;
    cuda_emulator_streams_lock();
    TRY_OUT(cuda_emulator_streams_kept_by(stream, "an upload"));
    enqueue_copy(stream, bytes, host, tensor, !is_pinned(host));
out:
    cuda_emulator_streams_unlock();
    return rc;
}

static enum err download(void *stream, size_t bytes, const void *tensor,
                         void *host)
{
    enum err rc = ERR_OK;
    cuda_emulator_streams_lock();
    TRY_OUT(cuda_emulator_streams_kept_by(stream, "a download"));
    enqueue_copy(stream, bytes, tensor, host, !is_pinned(host));
out:
    cuda_emulator_streams_unlock();
    return rc;
}

static enum err copy_tensors(void *stream, size_t bytes, const void *from,
                             void *to)
{
    cuda_emulator_streams_lock();
    enqueue_copy(stream, bytes, from, to, false);
    cuda_emulator_streams_unlock();
    return ERR_OK;
}

static enum err use(int local_rank)
{
    (void)local_rank;
    return ERR_OK;
}

const struct kernel_memory cuda_emulator_memory = {
    .device = true,
    .use = use,
    .stream_create = cuda_emulator_streams_create,
    .stream_destroy = cuda_emulator_streams_destroy,
    .tensors_create = tensors_create,
    .tensors_destroy = area_destroy,
    .host_create = host_create,
    .host_destroy = area_destroy,
    .upload = upload,
    .download = download,
    .copy = copy_tensors,
    .wait = cuda_emulator_streams_wait,
    .capture_begin = cuda_emulator_streams_capture_begin,
    .capture_end = cuda_emulator_streams_capture_end,
    .graph_launch = cuda_emulator_streams_graph_launch,
    .graph_destroy = cuda_emulator_streams_graph_destroy,
    .event_create = cuda_emulator_streams_event_create,
    .event_destroy = cuda_emulator_streams_event_destroy,
    .event_record = cuda_emulator_streams_event_record,
    .event_await = cuda_emulator_streams_event_await,
    .event_wait = cuda_emulator_streams_event_wait,
    .event_done = cuda_emulator_streams_event_done,
    .event_create_timed = cuda_emulator_streams_event_create_timed,
    .event_elapsed = cuda_emulator_streams_event_elapsed,
};
