/* Where a backend's tensors lie, and in which order its work is done. On CPU
 * tensors are the program's own memory and all is done when a call returns; on
 * a device the host can neither read nor write tensors, and ops and copies are
 * enqueued on a stream, which does them in order. So whoever holds a pointer to
 * a tensor looks at it through this table only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "src/base/arena.h"
#include "src/base/err.h"

struct kernel_memory {
    bool device; /* the host cannot reach tensors */

    /* Makes the calling thread use the device of this rank: the first call of
     * every thread that computes or copies. ERR_UNSUPPORTED without one. */
    enum err (*use)(int local_rank);
    /* What tells it from the node's other devices, its PCI address. NULL: not a
     * device that NCCL knows. */
    enum err (*identify)(char *text, size_t bytes);
    /* How many devices this rank sees, and how much of its own one's memory is
     * in use, by whomever. NULL: not known. */
    enum err (*visible)(int *count);
    enum err (*used)(size_t *bytes);

    /* Bytes that the rank's device has left for tensors; 0: not known. NULL:
     * not a device, or one that can't tell. */
    size_t (*available)(void);

    /* A stream, NULL on CPU. It waits for no other; work on an urgent one goes
     * first. */
    enum err (*stream_create)(bool urgent, void **stream);
    void (*stream_destroy)(void *stream);

    /* Memory for tensors, zeroed. Pieces are 64-byte aligned, the first one
     * 256-byte aligned. ERR_MEMORY says how much was asked for. A zeroed struct
     * arena may be destroyed. */
    enum err (*tensors_create)(size_t bytes, struct arena *out);
    void (*tensors_destroy)(struct arena *arena);
    /* Memory of the host from which and to which copies go without its help. */
    enum err (*host_create)(size_t bytes, struct arena *out);
    void (*host_destroy)(struct arena *arena);

    /* Enqueue a copy. `host` stays untouched until the copy is done; if it is
     * not of host_create() the call may wait, or not. */
    enum err (*upload)(void *stream, size_t bytes, const void *host,
                       void *tensor);
    enum err (*download)(void *stream, size_t bytes, const void *tensor,
                         void *host);
    /* Between tensors that do not overlap. */
    enum err (*copy)(void *stream, size_t bytes, const void *from, void *to);

    /* Until all that was enqueued is done; what failed in it shows here. */
    enum err (*wait)(void *stream);

    /* Graphs: ops and copies between tensors that the calling thread enqueues
     * on a stream between begin and end are not done but kept, to be enqueued
     * again and again with the same arguments, in their order. Nothing else may
     * be asked of the stream meanwhile, and the thread waits for nothing, asks
     * no event and takes no memory of the device; other threads do what they
     * like with other streams. An op of the same shape has been done before, so
     * that its library has made its plan and is loaded. All four are NULL where
     * there are no graphs (CPU). */
    enum err (*capture_begin)(void *stream);
    /* Also after a call in between has failed. After it the stream is as
     * before, also when it fails; *graph is NULL then. ERR_UNSUPPORTED:
     * something was asked for that cannot be kept. */
    enum err (*capture_end)(void *stream, void **graph);
    /* Enqueues it on any stream, one launch of a graph after the other. */
    enum err (*graph_launch)(void *graph, void *stream);
    /* The graph's launches are done; NULL is fine. */
    void (*graph_destroy)(void *graph);

    /* Events: a place in a stream. One that was never recorded is reached. */
    enum err (*event_create)(void **event); /* NULL on CPU */
    void (*event_destroy)(void *event);
    enum err (*event_record)(void *event, void *stream);
    /* What comes on the stream from now on waits for the event. */
    enum err (*event_await)(void *event, void *stream);
    /* The host waits for it. */
    enum err (*event_wait)(void *event);
    /* Whether it is reached, without waiting. */
    enum err (*event_done)(void *event, bool *done);
    /* Events that also keep when they were reached, by the device's clock, and
     * the time from one to another when both were: less than 0 where the second
     * was before. Both NULL: the device has no such clock, or there is none. */
    enum err (*event_create_timed)(void **event);
    enum err (*event_elapsed)(void *begin, void *end, double *us);
};

/* The memory of the CPU's tables. */
extern const struct kernel_memory kernel_memory_cpu;
