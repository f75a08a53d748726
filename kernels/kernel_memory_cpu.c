/* Tensors in the program's own memory, work done when a call returns.
 *
 * So a stream is nothing, an event is reached as soon as it is recorded, and
 * host and tensors are one memory: who uses the table as a device wants it is
 * right here, too, and nothing but copies costs anything. */
#include <assert.h>
#include <string.h>

#include "kernels/kernel_memory.h"

static enum err use(int local_rank)
{
    assert(local_rank >= 0);
    return ERR_OK;
}

static enum err stream_create(bool urgent, void **stream)
{
    (void)urgent;
    *stream = NULL;
    return ERR_OK;
}

static enum err move(void *stream, size_t bytes, const void *from, void *to)
{
    (void)stream;
    assert((const char *)from + bytes <= (char *)to ||
           (char *)to + bytes <= (const char *)from || from == to);
    if (bytes > 0)
        memcpy(to, from, bytes);
    return ERR_OK;
}

static enum err nothing(void *what)
{
    (void)what;
    return ERR_OK;
}

static void forget(void *what)
{
    (void)what;
}

static enum err event_create(void **event)
{
    *event = NULL;
    return ERR_OK;
}

static enum err event_at(void *event, void *stream)
{
    (void)stream; /* a table made of this one may have streams */
    assert(event == NULL);
    return ERR_OK;
}

static enum err event_done(void *event, bool *done)
{
    (void)event;
    *done = true;
    return ERR_OK;
}

const struct kernel_memory kernel_memory_cpu = {
    .device = false,
    .use = use,
    .stream_create = stream_create,
    .stream_destroy = forget,
    .tensors_create = arena_create,
    .tensors_destroy = arena_destroy,
    .host_create = arena_create,
    .host_destroy = arena_destroy,
    .upload = move,
    .download = move,
    .copy = move,
    .wait = nothing,
    .event_create = event_create,
    .event_destroy = forget,
    .event_record = event_at,
    .event_await = event_at,
    .event_wait = nothing,
    .event_done = event_done,
};
