/* Streams, events, arenas and copies of the CUDA device. */
#include "kernels/cuda_device.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

#define ALIGNMENT ((size_t)256)

struct cuda_device_arena {
    enum cuda_device_place place;
    char *memory;
    size_t bytes, used;
};

enum err cuda_device_stream_create(bool urgent, void **stream)
{
    enum err rc = ERR_OK;
    int least = 0, greatest = 0;
    cudaStream_t made = NULL;
    *stream = NULL;
    TRY(cuda_device_error(
        (int)cudaDeviceGetStreamPriorityRange(&least, &greatest),
        "asking for the streams' priorities"));
    TRY(cuda_device_error(
        (int)cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking,
                                          urgent ? greatest : least),
        "making a stream"));
    *stream = made;
out:
    return rc;
}

void cuda_device_stream_destroy(void *stream)
{
    if (stream != NULL)
        (void)cudaStreamDestroy(stream);
}

enum err cuda_device_stream_wait(void *stream)
{
    return cuda_device_error((int)cudaStreamSynchronize(stream),
                             "waiting for a stream");
}

enum err cuda_device_stream_done(void *stream, bool *done)
{
    cudaError_t code = cudaStreamQuery(stream);
    *done = code == cudaSuccess;
    if (code == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* no error, so not for the next launch */
        code = cudaSuccess;
    }
    return cuda_device_error((int)code, "looking at a stream");
}

enum err cuda_device_event_create(bool timed, void **event)
{
    cudaEvent_t made = NULL;
    unsigned flags = timed ? cudaEventDefault : cudaEventDisableTiming;
    cudaError_t code = cudaEventCreateWithFlags(&made, flags);
    *event = code == cudaSuccess ? made : NULL;
    return cuda_device_error((int)code, "making an event");
}

void cuda_device_event_destroy(void *event)
{
    if (event != NULL)
        (void)cudaEventDestroy(event);
}

enum err cuda_device_event_record(void *event, void *stream)
{
    return cuda_device_error((int)cudaEventRecord(event, stream),
                             "recording an event");
}

enum err cuda_device_event_await(void *event, void *stream)
{
    return cuda_device_error((int)cudaStreamWaitEvent(stream, event, 0),
                             "letting a stream wait for an event");
}

enum err cuda_device_event_elapsed(void *begin, void *end, double *us)
{
    enum err rc = ERR_OK;
    float ms = 0;
    *us = 0;
    TRY(cuda_device_error((int)cudaEventSynchronize(end),
                          "waiting for an event"));
    TRY(cuda_device_error((int)cudaEventElapsedTime(&ms, begin, end),
                          "asking for the time between two events"));
    *us = (double)ms * 1e3;
out:
    return rc;
}

static cudaError_t arena_fill(const struct cuda_device_arena *arena)
{
    cudaError_t code = cudaMemset(arena->memory, 0xff, arena->bytes);
    return code == cudaSuccess ? cudaDeviceSynchronize() : code;
}

enum err cuda_device_arena_create(enum cuda_device_place place, size_t bytes,
                                  bool poison, struct cuda_device_arena **out)
{
    enum err rc = ERR_OK;
    void *memory = NULL;
    bool pinned = place == CUDA_DEVICE_PINNED;
    struct cuda_device_arena *arena = calloc(1, sizeof *arena);
    *out = NULL;
    if (arena == NULL)
        return err_set(ERR_MEMORY, "no memory for an arena's description");
    arena->place = place;
    arena->bytes = bytes;
    TRY(cuda_device_error(
        (int)(pinned ? cudaHostAlloc(&memory, bytes, cudaHostAllocDefault)
                     : cudaMalloc(&memory, bytes)),
        "asking for %zu bytes of %s memory", bytes,
        pinned ? "pinned host" : "device"));
    arena->memory = memory;
    if (poison)
        TRY(cuda_device_error((int)arena_fill(arena), "filling %zu bytes",
                              bytes));
    *out = arena;
    arena = NULL;
out:
    cuda_device_arena_destroy(arena);
    return rc;
}

void cuda_device_arena_destroy(struct cuda_device_arena *arena)
{
    if (arena == NULL)
        return;
    if (arena->memory != NULL && arena->place == CUDA_DEVICE_PINNED)
        (void)cudaFreeHost(arena->memory);
    else if (arena->memory != NULL)
        (void)cudaFree(arena->memory);
    free(arena);
}

enum err cuda_device_arena_take(struct cuda_device_arena *arena, size_t bytes,
                                void **piece)
{
    size_t from = (arena->used + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    *piece = NULL;
    if (from > arena->bytes || bytes > arena->bytes - from)
        return err_set(ERR_MEMORY,
                       "an arena of %zu bytes has %zu left, not %zu: the plan "
                       "that sized it forgot something",
                       arena->bytes, arena->bytes - arena->used, bytes);
    *piece = arena->memory + from;
    arena->used = from + bytes;
    return ERR_OK;
}

enum err cuda_device_copy(void *stream, void *to, const void *from,
                          size_t bytes)
{
    return cuda_device_error(
        (int)cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream),
        "copying %zu bytes", bytes);
}

/* Runs between two events; one before them finds caches and clocks cold. */
#define RUNS 10

enum err cuda_device_time(void *stream, enum err (*run)(void *), void *argument,
                          double *us)
{
    enum err rc = ERR_OK;
    void *begin = NULL, *end = NULL;
    double all = 0;
    *us = 0;
    TRY(cuda_device_event_create(true, &begin));
    TRY(cuda_device_event_create(true, &end));
    TRY(run(argument));
    TRY(cuda_device_event_record(begin, stream));
    for (int i = 0; i < RUNS; i++)
        TRY(run(argument));
    TRY(cuda_device_event_record(end, stream));
    TRY(cuda_device_event_elapsed(begin, end, &all));
    *us = all / RUNS;
out:
    cuda_device_event_destroy(end);
    cuda_device_event_destroy(begin);
    return rc;
}
