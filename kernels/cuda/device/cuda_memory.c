/* The memory of a GPU as kernel_memory.h has it: tensors, copies, streams,
 * graphs and events by CUDA's runtime.
 *
 * Copies, records and launches are enqueued and do not wait. Streams are made
 * non-blocking, for otherwise each would wait for the legacy default stream and
 * it for them. Memory is taken in few large pieces at the start (arenas), since
 * cudaFree() waits for the whole device and cudaMalloc() may; and a plan can be
 * compared with what is free before anything is computed. The host's memory is
 * pinned: what is copied from or to other pages goes through a buffer of the
 * driver's, for which the call waits, and overlaps with nothing. */
#include "kernels/cuda/device/cuda_device.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

static enum err use(int local_rank)
{
    int device;
    return cuda_device_use(local_rank, &device);
}

static enum err identify(char *text, size_t bytes)
{
    struct cuda_device_info info;
    enum err rc = cuda_device_info(&info);
    snprintf(text, bytes, "%s", rc == ERR_OK ? info.bus : "");
    return rc;
}

static enum err used(size_t *bytes)
{
    struct cuda_device_info info;
    enum err rc = cuda_device_info(&info);
    *bytes = info.bytes_total - info.bytes_free;
    return rc;
}

static size_t available(void)
{
    struct cuda_device_info info;
    return cuda_device_info(&info) == ERR_OK ? info.bytes_free : 0;
}

/* Urgent work goes first wherever both streams have kernels that wait for room
 * on the device: a checkpoint's copies must not be held up by a whole step. */
static enum err stream_create(bool urgent, void **stream)
{
    int least = 0, greatest = 0;
    cudaStream_t made = NULL;
    *stream = NULL;
    TRY(cuda_device_error(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                          "asking for the streams' priorities"));
    TRY(cuda_device_error(
        cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking,
                                     urgent ? greatest : least),
        "making a stream"));
    *stream = made;
    return ERR_OK;
}

static void stream_destroy(void *stream)
{
    if (stream != NULL)
        (void)cudaStreamDestroy(stream);
}

static enum err stream_wait(void *stream)
{
    return cuda_device_error(cudaStreamSynchronize(stream),
                             "waiting for a stream");
}

static enum err make_event(bool timed, void **event)
{
    cudaEvent_t made = NULL;
    unsigned flags = timed ? cudaEventDefault : cudaEventDisableTiming;
    cudaError_t code = cudaEventCreateWithFlags(&made, flags);
    *event = code == cudaSuccess ? made : NULL;
    return cuda_device_error(code, "making an event");
}

static enum err event_create(void **event)
{
    return make_event(false, event);
}

static enum err event_create_timed(void **event)
{
    return make_event(true, event);
}

static void event_destroy(void *event)
{
    if (event != NULL)
        (void)cudaEventDestroy(event);
}

static enum err event_record(void *event, void *stream)
{
    return cuda_device_error(cudaEventRecord(event, stream),
                             "recording an event");
}

static enum err event_await(void *event, void *stream)
{
    return cuda_device_error(cudaStreamWaitEvent(stream, event, 0),
                             "letting a stream wait for an event");
}

static enum err event_elapsed(void *begin, void *end, double *us)
{
    float ms = 0;
    *us = 0;
    TRY(cuda_device_error(cudaEventSynchronize(end), "waiting for an event"));
    TRY(cuda_device_error(cudaEventElapsedTime(&ms, begin, end),
                          "asking for the time between two events"));
    *us = (double)ms * 1e3;
    return ERR_OK;
}

static enum err event_wait(void *event)
{
    return cuda_device_error(cudaEventSynchronize(event),
                             "waiting for an event");
}

/* A query of what is not done yet leaves an "error", which the next launch of
 * the thread would take for its own. */
static enum err event_done(void *event, bool *done)
{
    cudaError_t code = cudaEventQuery(event);
    *done = code == cudaSuccess;
    if (code == cudaErrorNotReady) {
        (void)cudaGetLastError();
        code = cudaSuccess;
    }
    return cuda_device_error(code, "looking at an event");
}

static void tensors_destroy(struct arena *arena)
{
    assert(arena->base != NULL || arena->capacity == 0);
    if (arena->base != NULL)
        (void)cudaFree(arena->base);
    *arena = (struct arena){ 0 };
}

/* Zeroed and settled before anybody has the pointer: a stream does not wait for
 * the one on which the zeros are written. */
static enum err tensors_create(size_t bytes, struct arena *out)
{
    enum err rc = ERR_OK;
    void *memory = NULL;
    *out = (struct arena){ 0 };
    if (bytes == 0)
        return ERR_OK;
    TRY_OUT(cuda_device_error(cudaMalloc(&memory, bytes),
                              "asking for %zu bytes of device memory", bytes));
    *out = (struct arena){ .base = memory, .capacity = bytes };
    TRY_OUT(cuda_device_error(cudaMemset(memory, 0, bytes),
                              "filling %zu bytes of device memory", bytes));
    TRY_OUT(cuda_device_error(cudaDeviceSynchronize(),
                              "filling %zu bytes of device memory", bytes));
out:
    if (rc != ERR_OK)
        tensors_destroy(out);
    return rc;
}

static enum err host_create(size_t bytes, struct arena *out)
{
    void *memory = NULL;
    *out = (struct arena){ 0 };
    if (bytes == 0)
        return ERR_OK;
    TRY(cuda_device_error(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault),
                          "asking for %zu bytes of pinned host memory", bytes));
    memset(memory, 0, bytes);
    *out = (struct arena){ .base = memory, .capacity = bytes };
    return ERR_OK;
}

static void host_destroy(struct arena *arena)
{
    assert(arena->base != NULL || arena->capacity == 0);
    if (arena->base != NULL)
        (void)cudaFreeHost(arena->base);
    *arena = (struct arena){ 0 };
}

static enum err enqueue_copy(void *stream, size_t bytes, const void *from,
                             void *to, enum cudaMemcpyKind kind)
{
    return cuda_device_error(cudaMemcpyAsync(to, from, bytes, kind, stream),
                             "copying %zu bytes", bytes);
}

static enum err upload(void *stream, size_t bytes, const void *host,
                       void *tensor)
{
    return enqueue_copy(stream, bytes, host, tensor, cudaMemcpyHostToDevice);
}

static enum err download(void *stream, size_t bytes, const void *tensor,
                         void *host)
{
    return enqueue_copy(stream, bytes, tensor, host, cudaMemcpyDeviceToHost);
}

static enum err copy_within(void *stream, size_t bytes, const void *from,
                            void *to)
{
    assert((const char *)from + bytes <= (char *)to ||
           (char *)to + bytes <= (const char *)from || from == to);
    return enqueue_copy(stream, bytes, from, to, cudaMemcpyDeviceToDevice);
}

/* The capture is this thread's alone: meanwhile others copy, wait and take
 * pinned memory for a checkpoint, which would spoil a capture of all threads. A
 * relaxed one would also let pass what this thread must not do. */
static enum err capture_begin(void *stream)
{
    return cuda_device_error(
        cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
        "beginning to keep a stream's work");
}

/* What was kept becomes a graph with its arguments resolved, and is brought to
 * the device now, so that the first launch is as cheap as the rest. The stream
 * must leave its capture also where it has failed: EndCapture comes first, and
 * all that follows cleans up. */
static enum err capture_end(void *stream, void **graph)
{
    enum err rc = ERR_OK;
    cudaGraph_t kept = NULL;
    cudaGraphExec_t made = NULL;
    *graph = NULL;
    TRY_OUT(cuda_device_error(cudaStreamEndCapture(stream, &kept),
                              "keeping a stream's work"));
    TRY_OUT(cuda_device_error(cudaGraphInstantiate(&made, kept, 0),
                              "making a graph of a stream's work"));
    TRY_OUT(cuda_device_error(cudaGraphUpload(made, stream),
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

static enum err graph_launch(void *graph, void *stream)
{
    return cuda_device_error(cudaGraphLaunch(graph, stream),
                             "launching a graph");
}

static void graph_destroy(void *graph)
{
    if (graph != NULL)
        (void)cudaGraphExecDestroy(graph);
}

const struct kernel_memory cuda_memory = {
    .device = true,
    .use = use,
    .identify = identify,
    .visible = cuda_device_count,
    .used = used,
    .available = available,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .tensors_create = tensors_create,
    .tensors_destroy = tensors_destroy,
    .host_create = host_create,
    .host_destroy = host_destroy,
    .upload = upload,
    .download = download,
    .copy = copy_within,
    .wait = stream_wait,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .graph_launch = graph_launch,
    .graph_destroy = graph_destroy,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_await = event_await,
    .event_wait = event_wait,
    .event_done = event_done,
    .event_create_timed = event_create_timed,
    .event_elapsed = event_elapsed,
};

/* Runs between two events; one before them finds caches and clocks cold. Events
 * are of the device's clock, so what the host does meanwhile is not counted, as
 * long as it enqueues faster than the device works. */
#define RUNS 10

enum err cuda_device_time(void *stream, enum err (*run)(void *), void *argument,
                          double *us)
{
    enum err rc = ERR_OK;
    void *begin = NULL, *end = NULL;
    double all = 0;
    *us = 0;
    TRY_OUT(make_event(true, &begin));
    TRY_OUT(make_event(true, &end));
    TRY_OUT(run(argument));
    TRY_OUT(event_record(begin, stream));
    for (int i = 0; i < RUNS; i++)
        TRY_OUT(run(argument));
    TRY_OUT(event_record(end, stream));
    TRY_OUT(event_elapsed(begin, end, &all));
    *us = all / RUNS;
out:
    event_destroy(end);
    event_destroy(begin);
    return rc;
}
