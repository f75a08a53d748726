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

/* From now on spans are NVTX ranges, where a profiler has started the program. */
void cuda_nvtx_start(void);

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

/* The mean time of one of several run(argument), which enqueue on the stream;
 * waits for them. */
enum err cuda_device_time(void *stream, enum err (*run)(void *), void *argument,
                          double *us);

/* Its memory, streams, graphs and events (cuda_memory.c): streams are
 * cudaStream_t, events cudaEvent_t, graphs cudaGraphExec_t. */
extern const struct kernel_memory cuda_memory;
