/* Who owns what: slots of a batch and intervals of the flat parameter space.
 * Pure functions; every rank computes them for every other. */
#pragma once

#include <stdint.h>

#include "src/model/params.h"

/* First slot of `rank`: rank * slots / ranks. The rank owns
 * [begin(rank), begin(rank + 1)). 1 <= ranks <= slots. */
int shard_slot_begin(int rank, int ranks, int slots);

/* First element of rank's interval of a flat arena of `elements` (a multiple of
 * KERNEL_CHUNK); intervals are cut at chunk boundaries, some may be empty.
 * The rank owns [begin(rank), begin(rank + 1)); no interval is longer than the
 * last one's. */
int64_t shard_begin(int64_t elements, int rank, int ranks);

/* The same for a cut of its own, cut[ranks + 1]; NULL: shard_begin()'s. */
int64_t shard_cut_begin(const int64_t *cut, int64_t elements, int rank,
                        int ranks);

/* Cuts the flat space so that every tensor is one rank's: at multiples of
 * KERNEL_CHUNK within none of them. Of all such cuts it is one
 * whose longest interval is the shortest; some intervals may be empty. As
 * tensors of a block follow each other without regard to chunks, that is mostly
 * between blocks. */
void shard_cut_whole(const struct params *params, int ranks, int64_t *cut);
