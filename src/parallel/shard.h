/* Who owns what: slots of a batch and intervals of the flat parameter space.
 * Pure functions; every rank computes them for every other. */
#ifndef TESSERA_PARALLEL_SHARD_H
#define TESSERA_PARALLEL_SHARD_H

#include <stdint.h>

/* First slot of `rank`: rank * slots / ranks. The rank owns
 * [begin(rank), begin(rank + 1)). 1 <= ranks <= slots. */
int shard_slot_begin(int rank, int ranks, int slots);

/* First element of rank's interval of a flat arena of `elements` (a multiple of
 * KERNEL_CHUNK); intervals are cut at chunk boundaries, some may be empty.
 * The rank owns [begin(rank), begin(rank + 1)); no interval is longer than the
 * last one's. */
int64_t shard_begin(int64_t elements, int rank, int ranks);

#endif
