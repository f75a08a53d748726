/* The GPU as programs see it: which one a rank uses, its memory, streams,
 * events, copies and peers, on CUDA's runtime. Every call says in one line what
 * failed and what to do; without a driver or a GPU that is ERR_UNSUPPORTED.
 * Out-arguments are NULL or 0 after a failure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "kernels/kernel_memory.h"
#include "src/base/arena.h"
#include "src/base/err.h"

/* `code` of CUDA's runtime as an error of ours; ERR_OK for 0. The text is "what
 * was tried: CUDA's name and text; what to do". ERR_UNSUPPORTED: no GPU that
 * can be used; ERR_MEMORY: it does not fit; ERR_IO: the GPU or its node is ill
 * or taken, and another attempt may have another one; otherwise ERR_INTERNAL.
 */
enum err cuda_device_error(int code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ERR_UNSUPPORTED says why device 0 cannot run the kernels. */
enum err cuda_device_check(void);

/* GPUs that this process sees. ERR_UNSUPPORTED if there are none. */
enum err cuda_device_count(int *count);

/* Makes the calling thread use the GPU of this rank and tells its number: where
 * one GPU is visible that one, otherwise the one numbered as the rank on its
 * node. ERR_USAGE if there are several, but fewer than ranks. Whether the one
 * is another rank's as well can't be seen from here: start_devices() asks. */
enum err cuda_device_use(int local_rank, int *device);

/* The rule of cuda_device_use, for `count` visible GPUs. */
enum err cuda_device_choose(int local_rank, int count, int *device);

struct cuda_device_info {
    char name[64];
    char bus[24]; /* PCI address, "0000:0f:00.0" */
    int major, minor;
    int multiprocessors;
    double clock_hz;     /* the highest */
    int driver, runtime; /* 13000: version 13.0 */
    size_t bytes_total, bytes_free;
};

/* What the device is that the thread uses. */
enum err cuda_device_info(struct cuda_device_info *info);

/* "NVIDIA H200, 9.0, 132 SMs, driver 13.0, runtime 13.0", what decides bits. */
void cuda_device_describe(const struct cuda_device_info *info, char *text,
                          size_t bytes);

/* FLOP/s of dense products, by the maker's sheet where the GPU is one of those
 * that it names, so much of it as there are multiprocessors (MIG); otherwise by
 * compute capability and clock. fp32 is without TF32, anything else bf16, or
 * with fp8 8 bits. 0: not known. *source: "table" or "clock". */
double cuda_device_peak_flops(const struct cuda_device_info *info, bool fp32,
                              bool fp8, const char **source);

/* A cudaStream_t that waits for no other; work on an urgent one goes first. */
enum err cuda_device_stream_create(bool urgent, void **stream);
void cuda_device_stream_destroy(void *stream);

/* Until all work on the stream is done; errors of its kernels show here. */
enum err cuda_device_stream_wait(void *stream);

/* A cudaEvent_t. Only timed ones have a time. */
enum err cuda_device_event_create(bool timed, void **event);
void cuda_device_event_destroy(void *event);
enum err cuda_device_event_record(void *event, void *stream);

/* What comes on the stream from now on waits for the event. */
enum err cuda_device_event_await(void *event, void *stream);

/* Waits for `end`, then tells the time since `begin` was reached. */
enum err cuda_device_event_elapsed(void *begin, void *end, double *us);

/* The mean time of one of several run(argument), which enqueue on the stream;
 * waits for them. */
enum err cuda_device_time(void *stream, enum err (*run)(void *), void *argument,
                          double *us);

/* What the thread enqueues on a stream, as a cudaGraphExec_t
 * (kernel_memory.h). capture_end comes after capture_begin in any case. */
enum err cuda_device_capture_begin(void *stream);
enum err cuda_device_capture_end(void *stream, void **graph);
enum err cuda_device_graph_launch(void *graph, void *stream);
void cuda_device_graph_destroy(void *graph);

/* Until the event is reached; whether it is, without waiting. */
enum err cuda_device_event_wait(void *event);
enum err cuda_device_event_done(void *event, bool *done);

/* Device memory, zeroed, and host memory that copies reach without the CPU
 * (pinned); 256-byte aligned. ERR_MEMORY names the bytes asked for. */
enum err cuda_device_tensors_create(size_t bytes, struct arena *out);
void cuda_device_tensors_destroy(struct arena *arena);
enum err cuda_device_host_create(size_t bytes, struct arena *out);
void cuda_device_host_destroy(struct arena *arena);

/* Enqueue copies: to the device, from it, and within it. Host memory must be
 * pinned, or the call may wait. It stays untouched until the copy is done. */
enum err cuda_device_upload(void *stream, size_t bytes, const void *host,
                            void *tensor);
enum err cuda_device_download(void *stream, size_t bytes, const void *tensor,
                              void *host);
enum err cuda_device_copy(void *stream, size_t bytes, const void *from,
                          void *to);

/* All that as the table of a kernel set (cuda_memory.c). */
extern const struct kernel_memory cuda_memory;
