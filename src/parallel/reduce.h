/* Gradient reduction in one fixed order, whatever the number of ranks.
 *
 * Slots are added by the tree of tree.h. Each rank owns a contiguous range of
 * slots, adds what is complete within its range as slots finish, and is left
 * with at most 2 log2(slots) complete subtrees; the owner of each interval of
 * the arena takes the partials of all ranks for its interval and finishes the tree
 * in slot order. Partials of ranks on its node it reads where they lie
 * (src/comm/comm_window.h); those of other nodes come in messages, added there as far
 * as the tree allows. fp32 adds by
 * kernels->accumulate and add, so that the sum has the same bits for 1 rank or
 * `slots` ranks.
 *
 * The arena may have several pieces, blocks of a model or some of them together, each
 * cut for all ranks: then a piece is exchanged while backward goes on with those before
 * it, in the rank's last leaf. The pieces go from the last one to the first. Of a leaf
 * that fails the sum is garbage, and the exchange is the same.
 *
 * Memory: as many gradient buffers of the whole arena as the stack of this rank
 * ever gets deep (1 + log2(slots) for one rank, at most twice that for a range
 * that begins and ends anywhere); these are shared with the node. Besides,
 * receive buffers for two rounds of the exchange with other nodes: at most 8
 * MiB per partial, and about 64 MiB a round where that leaves a partial at least
 * one KERNEL_CHUNK. All is planned.
 *
 * Memory of a device is not shared: there all ranks are on nodes of their own.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "src/base/dtype.h"
#include "src/base/err.h"
#include "src/comm/comm_tensors.h"
#include "src/parallel/owner.h"

struct reduce;

/* comm, tensors (of the same ranks), kernels and ctx are borrowed for the life
 * of the object, and so is owner, whose blocks are the pieces and whose partitions the
 * ranks' intervals of each (NULL: one piece, cut evenly). elements: of the arena, a
 * multiple of KERNEL_CHUNK. Collective; fails on all ranks or on none. */
enum err reduce_create(struct comm *comm, struct comm_tensors *tensors,
                       const struct kernels *kernels,
                       const struct kernel_ctx *ctx, int64_t elements,
                       const struct owner *owner, int slots,
                       struct reduce **out);
void reduce_destroy(struct reduce *reduce);

/* What reduce_create() takes, by kind. */
struct reduce_bytes {
    size_t gradients;    /* of the slot at work */
    size_t partial_sums; /* the rest of the stack */
    size_t exchange;     /* received, or of the node's other ranks and seen
                            here, whichever is more; and small tables */
    size_t near;         /* the same where all ranks are on one node */
    size_t total;
};

#define REDUCE_ANY_RANK (-1) /* the one that needs most */

/* Without creating one. */
void reduce_plan(int64_t elements, const struct owner *owner, int rank,
                 int ranks, int slots, struct reduce_bytes *out);

/* Begin a batch: forget all partial sums. everywhere: each rank is to have the whole
 * total, not its intervals only. */
void reduce_begin(struct reduce *reduce, bool everywhere);
/* The arena [elements] into which the next slot's gradient is to be
 * accumulated; lent until reduce_slot_done(). It holds anything: the caller
 * zeroes it, or begins sums. */
float *reduce_slot(struct reduce *reduce);
/* Which of the rank's arenas it is, while it is lent. */
int reduce_lent(const struct reduce *reduce);
/* In the rank's last slot: nothing more is added to one of the model's blocks in this
 * piece of it, which goes on its way when that is said of all of them and as soon as the
 * pieces behind it have. Of several pieces it is collective, in the
 * order of pieces; who leaves some out begins them in reduce_slot_done(). */
enum err reduce_piece_done(struct reduce *reduce, int piece);
/* Lets what is on its way go on; after the call of a piece. */
void reduce_test(const struct reduce *reduce);
/* The slot's gradient is complete: combine what can be combined. Slots finish
 * in order, each of this rank's range exactly once. With several pieces the last one's
 * ends their exchange, and is collective. */
enum err reduce_slot_done(struct reduce *reduce);
/* Finish, and of one piece exchange: *total [elements] has the total at this
 * rank's intervals, and everywhere if that was asked for; its rest the caller may
 * fill by reduce_gather(). Valid until the next reduce_begin(). Collective. */
enum err reduce_finish(struct reduce *reduce, float **total);

/* Give every rank the whole arena, elements of `dtype` in its own memory: rank
 * r's interval is current on rank r. Collective. (shared_weights.h: one for a
 * node.) */
enum err reduce_gather(struct comm_tensors *tensors, int64_t elements,
                       const int64_t *cut, enum dtype dtype, void *arena);
