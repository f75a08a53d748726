/* Which GPUs the ranks of a run have: one each, and none is left idle. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "kernels/kernel_memory.h"
#include "src/base/err.h"
#include "src/comm/comm.h"

/* Every rank uses its device already. Where two ranks of a host have the same
 * one, or a host's ranks see more GPUs than they are, that is ERR_USAGE with
 * the host, the ranks and what to do; if it is `allowed` the log says it
 * instead. text becomes "16 GPUs for 16 ranks", or empty where there are no
 * devices. Collective; the same on all ranks. */
enum err start_devices(struct comm *comm, const struct kernel_memory *memory,
                       bool allowed, char *text, size_t bytes);
