/* The weights: a flat array of which every rank updates its interval (shard.h)
 * and reads all. The ranks of a node share one copy (src/comm/comm_window.h),
 * so this is for memory of the host only.
 *
 * So a rank may write its interval only while no other rank of the node reads
 * the weights: between a call that all ranks enter when they are done reading
 * (reduce_finish()) and weights_exchange(), after which all may read. */
#ifndef TESSERA_PARALLEL_WEIGHTS_H
#define TESSERA_PARALLEL_WEIGHTS_H

#include <stddef.h>
#include <stdint.h>

#include "src/base/dtype.h"
#include "src/base/err.h"
#include "src/comm/comm.h"

struct weights;

/* elements: a multiple of KERNEL_CHUNK. Zeroed. comm is borrowed, and cut, the
 * ranks' intervals (shard_cut_begin(); NULL: even ones). Collective; fails on
 * all ranks or on none. */
enum err weights_create(struct comm *comm, int64_t elements, const int64_t *cut,
                        enum dtype dtype, struct weights **out);
void weights_destroy(struct weights *weights);

/* [elements]; lent. */
void *weights_data(const struct weights *weights);

/* Make every rank's interval visible to all ranks. Collective. */
enum err weights_exchange(struct weights *weights);

#endif
