/* The weights: a flat array of which every rank updates its interval (shard.h)
 * and reads all. The ranks of a node share one copy (src/comm/comm_window.h),
 * so this is for memory of the host only.
 *
 * So a rank may write its interval only while no other rank of the node reads
 * the weights: between a call that all ranks enter when they are done reading
 * (reduce_finish()) and shared_weights_exchange(), after which all may read. */
#pragma once

#include <stdint.h>

#include "src/base/dtype.h"
#include "src/base/err.h"
#include "src/comm/comm.h"

struct shared_weights;

/* elements: a multiple of KERNEL_CHUNK. Zeroed. comm is borrowed, and cut, the
 * ranks' intervals (shard_cut_begin(); NULL: even ones). Collective; fails on
 * all ranks or on none. */
enum err shared_weights_create(struct comm *comm, int64_t elements,
                               const int64_t *cut, enum dtype dtype,
                               struct shared_weights **out);
void shared_weights_destroy(struct shared_weights *weights);

/* [elements]; lent. */
void *shared_weights_data(const struct shared_weights *weights);

/* Make every rank's interval visible to all ranks. Collective. */
enum err shared_weights_exchange(struct shared_weights *weights);
