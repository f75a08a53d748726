/* How far the clocks of ranks on other nodes are off. */
#pragma once

#include <stdint.h>

#include "src/base/err.h"
#include "src/comm/comm.h"

/* offset_ns: what is to be added to CLOCK_MONOTONIC of this rank to have rank
 * 0's; error_ns: by how much that may be wrong at most, now; both 0 on rank 0's
 * node, where the clock is the same. Rank 0 answers the lowest rank of each
 * other node some times, and the shortest exchange counts: an answer is as if
 * given in its middle, so the error is at most half of it (Cristian 1989). Later
 * the clocks of two nodes part by what their oscillators differ, usually below
 * 1e-5 of the time passed. Collective. */
enum err comm_offset(struct comm *comm, int64_t *offset_ns, int64_t *error_ns);
