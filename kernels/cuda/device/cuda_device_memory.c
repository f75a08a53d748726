/* Streams, graphs, events, arenas and copies of the CUDA device, as calls of
 * CUDA's. The table of kernel_memory.h that uses them is in cuda_memory.c. */
#include "kernels/cuda/device/cuda_device.h"

#include <cuda_runtime_api.h>
#include <string.h>

enum err cuda_device_stream_create(bool urgent, void **stream)
{
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
    return ERR_OK;
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
    float ms = 0;
    *us = 0;
    TRY(cuda_device_error((int)cudaEventSynchronize(end),
                          "waiting for an event"));
    TRY(cuda_device_error((int)cudaEventElapsedTime(&ms, begin, end),
                          "asking for the time between two events"));
    *us = (double)ms * 1e3;
    return ERR_OK;
}

enum err cuda_device_event_wait(void *event)
{
    return cuda_device_error((int)cudaEventSynchronize(event),
                             "waiting for an event");
}

enum err cuda_device_event_done(void *event, bool *done)
{
    cudaError_t code = cudaEventQuery(event);
    *done = code == cudaSuccess;
    if (code == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* no error, so not for the next launch */
        code = cudaSuccess;
    }
    return cuda_device_error((int)code, "looking at an event");
}

enum err cuda_device_tensors_create(size_t bytes, struct arena *out)
{
    enum err rc = ERR_OK;
    void *memory = NULL;
    *out = (struct arena){ 0 };
    if (bytes == 0)
        return ERR_OK;
    TRY_OUT(cuda_device_error((int)cudaMalloc(&memory, bytes),
                              "asking for %zu bytes of device memory", bytes));
    *out = (struct arena){ .base = memory, .capacity = bytes };
    TRY_OUT(cuda_device_error((int)cudaMemset(memory, 0, bytes),
                              "filling %zu bytes of device memory", bytes));
    TRY_OUT(cuda_device_error((int)cudaDeviceSynchronize(),
                              "filling %zu bytes of device memory", bytes));
out:
    if (rc != ERR_OK)
        cuda_device_tensors_destroy(out);
    return rc;
}

void cuda_device_tensors_destroy(struct arena *arena)
{
    if (arena->base != NULL)
        (void)cudaFree(arena->base);
    *arena = (struct arena){ 0 };
}

enum err cuda_device_host_create(size_t bytes, struct arena *out)
{
    void *memory = NULL;
    *out = (struct arena){ 0 };
    if (bytes == 0)
        return ERR_OK;
    TRY(cuda_device_error(
        (int)cudaHostAlloc(&memory, bytes, cudaHostAllocDefault),
        "asking for %zu bytes of pinned host memory", bytes));
    memset(memory, 0, bytes);
    *out = (struct arena){ .base = memory, .capacity = bytes };
    return ERR_OK;
}

void cuda_device_host_destroy(struct arena *arena)
{
    if (arena->base != NULL)
        (void)cudaFreeHost(arena->base);
    *arena = (struct arena){ 0 };
}

static enum err copy(void *stream, size_t bytes, const void *from, void *to,
                     enum cudaMemcpyKind kind)
{
    return cuda_device_error(
        (int)cudaMemcpyAsync(to, from, bytes, kind, stream),
        "copying %zu bytes", bytes);
}

enum err cuda_device_upload(void *stream, size_t bytes, const void *host,
                            void *tensor)
{
    return copy(stream, bytes, host, tensor, cudaMemcpyHostToDevice);
}

enum err cuda_device_download(void *stream, size_t bytes, const void *tensor,
                              void *host)
{
    return copy(stream, bytes, tensor, host, cudaMemcpyDeviceToHost);
}

enum err cuda_device_copy(void *stream, size_t bytes, const void *from,
                          void *to)
{
    return copy(stream, bytes, from, to, cudaMemcpyDeviceToDevice);
}

/* The capture is this thread's alone: meanwhile others copy, wait and take
 * pinned memory for a checkpoint, which would spoil a capture of all threads. A
 * relaxed one would also let pass what this thread must not do. */
enum err cuda_device_capture_begin(void *stream)
{
    return cuda_device_error(
        (int)cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
        "beginning to keep a stream's work");
}

enum err cuda_device_capture_end(void *stream, void **graph)
{
    enum err rc = ERR_OK;
    cudaGraph_t kept = NULL;
    cudaGraphExec_t made = NULL;
    *graph = NULL;
    TRY_OUT(cuda_device_error((int)cudaStreamEndCapture(stream, &kept),
                              "keeping a stream's work"));
    TRY_OUT(cuda_device_error((int)cudaGraphInstantiate(&made, kept, 0),
                              "making a graph of a stream's work"));
    TRY_OUT(cuda_device_error((int)cudaGraphUpload(made, stream),
                              "bringing a graph to the device"));
    *graph = made;
    made = NULL;
out:
    if (made != NULL)
        (void)cudaGraphExecDestroy(made);
    if (kept != NULL)
        (void)cudaGraphDestroy(kept);
    return rc;
}

enum err cuda_device_graph_launch(void *graph, void *stream)
{
    return cuda_device_error((int)cudaGraphLaunch(graph, stream),
                             "launching a graph");
}

void cuda_device_graph_destroy(void *graph)
{
    if (graph != NULL)
        (void)cudaGraphExecDestroy(graph);
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
    TRY_OUT(cuda_device_event_create(true, &begin));
    TRY_OUT(cuda_device_event_create(true, &end));
    TRY_OUT(run(argument));
    TRY_OUT(cuda_device_event_record(begin, stream));
    for (int i = 0; i < RUNS; i++)
        TRY_OUT(run(argument));
    TRY_OUT(cuda_device_event_record(end, stream));
    TRY_OUT(cuda_device_event_elapsed(begin, end, &all));
    *us = all / RUNS;
out:
    cuda_device_event_destroy(end);
    cuda_device_event_destroy(begin);
    return rc;
}
