/* The weights: a flat array of which every rank updates its intervals and reads
 * all. The ranks of a node share one copy (src/comm/comm_window.h),
 * so this is for memory of the host only.
 *
 * So a rank may write its intervals only while no other rank of the node reads
 * the weights: between a call that all ranks enter when they are done reading
 * (reduce_finish()) and shared_weights_exchange(), after which all may read. */
#pragma once

#include <stdint.h>

#include "src/base/dtype.h"
#include "src/base/err.h"
#include "src/comm/comm.h"
#include "src/parallel/owner.h"

struct shared_weights;

/* elements: a multiple of KERNEL_CHUNK. Zeroed. comm is borrowed, and owner, the
 * ranks' partitions of each block (NULL: even intervals of all). Collective; fails on
 * all ranks or on none. */
enum err shared_weights_create(struct comm *comm, int64_t elements,
                               const struct owner *owner, enum dtype dtype,
                               struct shared_weights **out);
void shared_weights_destroy(struct shared_weights *weights);

/* [elements]; lent. */
void *shared_weights_data(const struct shared_weights *weights);

/* Make every rank's intervals visible to all ranks. Collective. */
enum err shared_weights_exchange(struct shared_weights *weights);
