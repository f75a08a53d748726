/* The memory of the device that tests/cuda_emulator.h plays: out of the host's
 * reach, and as late as it may be. Tensors are mapped without any access but
 * while a kernel or a copy runs, so a host that touches one dies with a signal.
 * What is enqueued on a stream, launches too, is done when somebody waits for
 * it: a download that was not waited for has brought nothing, and an upload
 * takes what its memory holds by then. Without a stream (NULL) all is done at
 * once. Any thread may call; one at a time gets on.
 *
 * While a stream's work is kept for a graph, everything but ops and copies
 * between tensors on it spoils that, and so do waits, questions to events and
 * requests for memory of the thread that keeps it. What CUDA leaves undefined
 * (a graph that is destroyed before it is done) ends the program with a
 * message. */
#pragma once

#include <stdint.h>

#include "kernels/kernel_memory.h"

extern const struct kernel_memory cuda_emulator_memory;

/* How often so far. */
struct cuda_emulator_memory_counts {
    int64_t waits;    /* the host has had to wait */
    int64_t enqueued; /* it has put something on a stream: an op's launches,
                         copies, fills, graphs */
    int64_t captures; /* a graph was made */
    int64_t launches; /* a graph was launched */
};

struct cuda_emulator_memory_counts cuda_emulator_memory_counts(void);

/* The first of these. */
int64_t cuda_emulator_memory_waits(void);

/* From now on no capture ends with a graph, or each one may. */
void cuda_emulator_memory_refuse_graphs(bool refuse);
