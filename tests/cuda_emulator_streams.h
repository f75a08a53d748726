/* Streams, events and graphs of the device of cuda_emulator_memory.h, for that
 * file alone. Tasks are done when somebody waits; those of a stream whose work
 * is kept go to its graph. */
#pragma once

#include "tests/cuda_emulator_memory.h"

/* One thread at a time gets on; nested. */
void cuda_emulator_streams_lock(void);
void cuda_emulator_streams_unlock(void);

/* What the emulator calls, if the program has this file: run(what) at its time.
 * `what` is freed when it cannot be run again. */
void cuda_emulator_defer(void *stream, void (*run)(void *), void *what);

/* Everything that is enqueued anywhere. */
void cuda_emulator_streams_finish(void);

/* ERR_UNSUPPORTED, and nothing is kept in the end: for calls on a stream whose
 * work is kept, and for those of a thread that keeps any stream's. */
enum err cuda_emulator_streams_kept_by(void *stream, const char *what);
enum err cuda_emulator_streams_kept_here(const char *what);

/* Of the table (kernel_memory.h). */
enum err cuda_emulator_streams_create(bool urgent, void **stream);
void cuda_emulator_streams_destroy(void *stream);
enum err cuda_emulator_streams_wait(void *stream);
enum err cuda_emulator_streams_capture_begin(void *stream);
enum err cuda_emulator_streams_capture_end(void *stream, void **graph);
enum err cuda_emulator_streams_graph_launch(void *graph, void *stream);
void cuda_emulator_streams_graph_destroy(void *graph);
enum err cuda_emulator_streams_event_create(void **event);
enum err cuda_emulator_streams_event_create_timed(void **event);
void cuda_emulator_streams_event_destroy(void *event);
enum err cuda_emulator_streams_event_elapsed(void *begin, void *end,
                                             double *us);
enum err cuda_emulator_streams_event_record(void *event, void *stream);
enum err cuda_emulator_streams_event_await(void *event, void *stream);
enum err cuda_emulator_streams_event_wait(void *event);
enum err cuda_emulator_streams_event_done(void *event, bool *done);
