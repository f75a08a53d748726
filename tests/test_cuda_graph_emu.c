/* Graphs of the device that is played by the emulator (cuda_emulator_memory.h):
 * what they do is what CUDA's do, so that what is tested on them holds there.
 * Ops and copies are done at each launch, in their order, and never before. */
#include <pthread.h>

#include "kernels/kernels.h"
#include "tests/cuda_emulator_memory.h"
#include "tests/tap.h"

#define COUNT 64
#define BYTES (COUNT * sizeof(float))

struct bench {
    const struct kernels *kernels;
    const struct kernel_memory *memory;
    struct kernel_ctx ctx;
    struct arena tensors, host;
    float *x, *y; /* tensors [COUNT] */
    float *here;  /* [COUNT] of the host, where copies go by themselves */
};

static enum err bench_open(struct bench *b)
{
    b->memory = b->kernels->memory;
    b->ctx.threads = 1;
    TRY(b->memory->stream_create(false, &b->ctx.stream));
    TRY(b->memory->tensors_create(2 * BYTES, &b->tensors));
    TRY(b->memory->host_create(BYTES, &b->host));
    b->x = arena_take(&b->tensors, BYTES);
    b->y = arena_take(&b->tensors, BYTES);
    b->here = arena_take(&b->host, BYTES);
    return ERR_OK;
}

static void bench_close(struct bench *b)
{
    b->memory->host_destroy(&b->host);
    b->memory->tensors_destroy(&b->tensors);
    b->memory->stream_destroy(b->ctx.stream);
}

/* y = 2 x by two ops whose order matters. */
static enum err enqueue(struct bench *b)
{
    TRY(b->memory->copy(b->ctx.stream, BYTES, b->x, b->y));
    return b->kernels->accumulate(&b->ctx, DTYPE_F32, COUNT, b->x, b->y);
}

static enum err put(struct bench *b, float value, float *tensor)
{
    for (int i = 0; i < COUNT; i++)
        b->here[i] = value;
    enum err rc = b->memory->upload(b->ctx.stream, BYTES, b->here, tensor);
    return rc == ERR_OK ? b->memory->wait(b->ctx.stream) : rc;
}

static float get(struct bench *b, const float *tensor)
{
    bool same = true;
    if (b->memory->download(b->ctx.stream, BYTES, tensor, b->here) != ERR_OK ||
        b->memory->wait(b->ctx.stream) != ERR_OK)
        return -1.0f;
    for (int i = 1; i < COUNT; i++)
        same &= b->here[i] == b->here[0];
    return same ? b->here[0] : -1.0f;
}

static enum err keep(struct bench *b, void **graph)
{
    TRY(b->memory->capture_begin(b->ctx.stream));
    TRY(enqueue(b));
    return b->memory->capture_end(b->ctx.stream, graph);
}

static void test_replay(struct bench *b)
{
    enum err rc = ERR_OK;
    void *graph = NULL;
    struct cuda_emulator_memory_counts before, after;
    TRY_OUT(put(b, 1.0f, b->x));
    TRY_OUT(put(b, 5.0f, b->y));
    before = cuda_emulator_memory_counts();
    TRY_OUT(keep(b, &graph));
    after = cuda_emulator_memory_counts();
    tap_ok(after.enqueued == before.enqueued && after.captures == 1 &&
               after.launches == 0 && get(b, b->y) == 5.0f,
           "what is kept is not done");
    for (int i = 1; i <= 3; i++) {
        TRY_OUT(put(b, (float)i, b->x));
        before = cuda_emulator_memory_counts();
        TRY_OUT(b->memory->graph_launch(graph, b->ctx.stream));
        after = cuda_emulator_memory_counts();
        tap_ok(after.enqueued == before.enqueued + 1 &&
                   after.waits == before.waits && after.launches == i,
               "launch %d is one call, without a wait", i);
        tap_is_close(get(b, b->y), 2.0 * i, 0, "and takes what is there");
    }
    TRY_OUT(put(b, 1.0f, b->x));
    TRY_OUT(b->memory->graph_launch(graph, b->ctx.stream));
    TRY_OUT(b->memory->copy(b->ctx.stream, BYTES, b->y, b->x));
    TRY_OUT(b->memory->graph_launch(graph, b->ctx.stream));
    tap_is_close(get(b, b->y), 4.0, 0, "launches and ops come in their order");
    TRY_OUT(enqueue(b));
    tap_is_close(get(b, b->y), 4.0, 0, "later ops are done, not kept");
out:
    tap_ok(rc == ERR_OK, "nothing failed");
    b->memory->graph_destroy(graph);
    b->memory->graph_destroy(NULL);
}

/* --- what cannot be kept --- */

static enum err do_upload(struct bench *b)
{
    return b->memory->upload(b->ctx.stream, BYTES, b->here, b->x);
}

static enum err do_pageable_upload(struct bench *b)
{
    float numbers[COUNT] = { 0 };
    return b->memory->upload(b->ctx.stream, BYTES, numbers, b->x);
}

static enum err do_download(struct bench *b)
{
    return b->memory->download(b->ctx.stream, BYTES, b->x, b->here);
}

static enum err do_wait(struct bench *b)
{
    return b->memory->wait(b->ctx.stream);
}

static enum err do_wait_elsewhere(struct bench *b)
{
    void *other = NULL;
    enum err rc = b->memory->stream_create(false, &other);
    if (rc == ERR_OK)
        rc = b->memory->wait(other);
    b->memory->stream_destroy(other);
    return rc;
}

static enum err do_memory(struct bench *b)
{
    struct arena arena = { 0 };
    enum err rc = b->memory->tensors_create(64, &arena);
    tap_ok(arena.base == NULL, "no memory is given");
    return rc;
}

/* number: which of the calls of an event. */
static enum err with_event(struct bench *b, int number)
{
    void *event = NULL;
    bool done = true;
    enum err rc = b->memory->event_create(&event);
    if (rc != ERR_OK)
        return rc;
    rc = number == 0   ? b->memory->event_record(event, b->ctx.stream)
         : number == 1 ? b->memory->event_await(event, b->ctx.stream)
         : number == 2 ? b->memory->event_wait(event)
                       : b->memory->event_done(event, &done);
    b->memory->event_destroy(event);
    return rc;
}

static enum err do_record(struct bench *b)
{
    return with_event(b, 0);
}

static enum err do_await(struct bench *b)
{
    return with_event(b, 1);
}

static enum err do_event_wait(struct bench *b)
{
    return with_event(b, 2);
}

static enum err do_event_done(struct bench *b)
{
    return with_event(b, 3);
}

static void test_spoilt(struct bench *b)
{
    static const struct {
        const char *name;
        enum err (*call)(struct bench *);
    } cases[] = {
        { "an upload", do_upload },
        { "an upload of pageable memory", do_pageable_upload },
        { "a download", do_download },
        { "a wait", do_wait },
        { "a wait for another stream", do_wait_elsewhere },
        { "memory", do_memory },
        { "an event that is recorded", do_record },
        { "an event that is awaited", do_await },
        { "a wait for an event", do_event_wait },
        { "a question to an event", do_event_done },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        void *graph = b;
        enum err rc = put(b, 3.0f, b->y);
        int64_t captures = cuda_emulator_memory_counts().captures;
        rc = rc == ERR_OK ? b->memory->capture_begin(b->ctx.stream) : rc;
        rc = rc == ERR_OK ? enqueue(b) : rc;
        tap_ok(rc == ERR_OK && cases[i].call(b) == ERR_UNSUPPORTED,
               "%s is refused: %s", cases[i].name, err_text());
        rc = enqueue(b);
        tap_ok(rc == ERR_OK &&
                   b->memory->capture_end(b->ctx.stream, &graph) ==
                       ERR_UNSUPPORTED &&
                   graph == NULL &&
                   cuda_emulator_memory_counts().captures == captures,
               "and nothing is kept in the end");
        tap_is_close(get(b, b->y), 3.0, 0, "nor done");
        tap_ok(put(b, 2.0f, b->x) == ERR_OK && enqueue(b) == ERR_OK &&
                   get(b, b->y) == 4.0f,
               "the stream is as before");
    }
    tap_is_int(b->memory->capture_begin(NULL), ERR_UNSUPPORTED,
               "nothing is kept without a stream");
}

/* --- another thread --- */

static void *copies(void *argument)
{
    struct bench *b = argument;
    void *stream = NULL;
    struct arena host = { 0 };
    bool fine = b->memory->stream_create(false, &stream) == ERR_OK &&
                b->memory->host_create(BYTES, &host) == ERR_OK &&
                b->memory->download(stream, BYTES, b->x, host.base) == ERR_OK &&
                b->memory->wait(stream) == ERR_OK &&
                *(float *)(void *)host.base == 7.0f;
    b->memory->host_destroy(&host);
    b->memory->stream_destroy(stream);
    return fine ? b : NULL;
}

/* As a checkpoint's do. */
static void test_others(struct bench *b)
{
    void *graph = NULL, *fine = NULL;
    pthread_t thread;
    bool kept = put(b, 7.0f, b->x) == ERR_OK &&
                b->memory->capture_begin(b->ctx.stream) == ERR_OK;
    if (pthread_create(&thread, NULL, copies, b) != 0)
        abort();
    pthread_join(thread, &fine);
    kept = kept && enqueue(b) == ERR_OK &&
           b->memory->capture_end(b->ctx.stream, &graph) == ERR_OK;
    tap_ok(fine != NULL, "another thread copies and waits meanwhile");
    tap_ok(kept && b->memory->graph_launch(graph, b->ctx.stream) == ERR_OK &&
               get(b, b->y) == 14.0f,
           "and spoils nothing");
    b->memory->graph_destroy(graph);
}

int main(void)
{
    struct bench b = { 0 };
    tap_ok(kernel_memory_cpu.capture_begin == NULL &&
               kernel_memory_cpu.graph_launch == NULL,
           "the processor has no graphs");
    if (kernels_find("cuda", "emulated", &b.kernels) != ERR_OK) {
        tap_skip("no emulated device: %s", err_text());
        return tap_done();
    }
    if (tap_ok(bench_open(&b) == ERR_OK, "a device")) {
        test_replay(&b);
        test_spoilt(&b);
        test_others(&b);
    }
    bench_close(&b);
    return tap_done();
}
