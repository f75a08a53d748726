/* The memory of the device that tests/cuda_emulator.h plays: out of the host's
 * reach, and as late as it may be. Tensors are mapped without any access but
 * while a kernel or a copy runs, so a host that touches one dies with a signal.
 * What is enqueued on a stream, launches too, is done when somebody waits for
 * it: a download that was not waited for has brought nothing, and an upload
 * takes what its memory holds by then. Without a stream (NULL) all is done at
 * once. Any thread may call; one at a time gets on. */
#ifndef TESSERA_TESTS_CUDA_EMULATOR_MEMORY_H
#define TESSERA_TESTS_CUDA_EMULATOR_MEMORY_H

#include <stdint.h>

#include "kernels/kernel_memory.h"

extern const struct kernel_memory cuda_emulator_memory;

/* How often the host has had to wait so far. */
int64_t cuda_emulator_memory_waits(void);

#endif
