/* Weights that are resident in shards only: whole blocks for a short time.
 *
 * A block is gathered from the ranks of the shard group into a room, ahead of
 * its use as far as there are rooms, and gives the room up when another block
 * needs it; until then gathering it again costs nothing. So the blocks at the
 * turn from forward to backward travel once. There are rooms for `prefetch` + 1
 * transformer blocks, and one for each of the ends, which a head that is not
 * tied shares with the embedding. The choice of rooms follows from the order of
 * calls (walk.h), never from what has arrived, so that all ranks start the same
 * exchanges in the same order. */
#ifndef TESSERA_PARALLEL_GATHER_H
#define TESSERA_PARALLEL_GATHER_H

#include <stddef.h>

#include "src/base/err.h"
#include "src/comm/comm.h"
#include "src/model/params.h"
#include "src/parallel/owner.h"
#include "src/parallel/walk.h"

struct gather;

/* Bytes of the rooms. */
size_t gather_plan(const struct params *params, const struct owner *owner,
                   int prefetch);

/* All arguments are borrowed. shard: this rank's shards, packed. */
enum err gather_create(struct comm *comm, const struct params *params,
                       const struct owner *owner, const struct walk *walk,
                       int prefetch, const float *shard, struct gather **out);
void gather_destroy(struct gather *gather);

/* The whole block, which is not apart, until its release; the walk has just
 * passed this call.
 * Collective. */
enum err gather_block(struct gather *gather, int block, const void **weights);
void gather_release(struct gather *gather, int block);

/* The shards have changed. No block is in use. */
void gather_forget(struct gather *gather);

#endif
