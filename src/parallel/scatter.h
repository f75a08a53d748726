/* Gradients that no rank has whole: each block's goes to its owners as soon as
 * backward has it, and is added there in the one order.
 *
 * The leaves of a batch are dealt to the ranks in turn, K = own_leaves at a
 * time: rank r computes K leaves from (microstep * ranks + r) * K on, so that
 * the leaves of a microstep are neighbours and an owner can add them in order.
 * Or each group of ranks has an equal range of the batch's leaves, dealt in turn to
 * its ranks: then only these exchange in each microstep, each has the sums of its shard
 * (owner.h), and groups exchange one sum each, block by block in the last microstep. That is
 * done where a range is a whole subtree, of more than a microstep.
 * A block's gradient buffer has K gradients, one after the other. Leaves of a
 * slot are added one after the other, slots by the tree (tree.h), for the
 * owner's partitions only. When a block's gradient is done, its exchange starts,
 * and is finished when the next block's is done: it travels while backward goes
 * on. What waits to be added at the end of a microstep is all that is kept: a
 * tree's stack is as deep as the finished slots have bits set, so one buffer
 * where the ranks divide the slots into powers of two.
 *
 * Experts that are apart (owner.h) are computed where they lie: rank r has, for
 * its experts, a gradient of each leaf of its group of D = expert_degree ranks,
 * one after the other in the order of these ranks, with K = 1. They are
 * exchanged among the ranks with the same experts, one of each group.
 *
 * A rank adds what it has of neighbouring leaves before it sends, and on several nodes of
 * as many ranks each a block goes in levels, within the node first (scatter_levels.c),
 * where that leaves fewer values than there are leaves; not so bf16. Experts that are
 * apart have levels of their own, of the ranks with the same ones.
 *
 * Memory: the stack, of this rank's partitions, of groups with ranges of its shards,
 * and the total beside it; gradient buffers of two transformer
 * blocks and of the ends, K times; what is received, a transformer block at
 * most, so that larger blocks and those of which a rank sends several values are exchanged
 * in several rounds; in levels what each level receives and leaves, of two levels up to
 * 1.5 such blocks where a node is left with one value, and of experts that are apart beside
 * the others a block divided by D, and by the nodes' ranks. */
#pragma once

#include <stdbool.h>

#include "kernels/kernels.h"
#include "src/base/err.h"
#include "src/comm/comm_tensors.h"
#include "src/comm/topology.h"
#include "src/model/params.h"
#include "src/parallel/owner.h"
#include "src/parallel/reduce.h"

struct scatter;

struct scatter_options {
    int slots;
    int leaves;     /* of a slot */
    int own_leaves; /* of a rank in a microstep; with experts apart 1 */
    bool bf16;      /* round gradients to bf16 for their way to another rank */
    /* borrowed; NULL: one node */
    const struct topology *topology;
    int radix; /* of its route */
    int group; /* ranks of a shard group, on whole nodes, that may have a range of
                * leaves of its own; 0: none has */
};

/* Whether groups have ranges. */
bool scatter_ranges(const struct scatter *scatter);

/* Without creating one; of ranks in levels on the one that needs most. *ranges: whether
 * groups would have them; or NULL. */
enum err scatter_plan(const struct params *params, const struct owner *owner,
                      const struct scatter_options *options,
                      struct reduce_bytes *out, bool *ranges);

/* All arguments but the options are borrowed. */
enum err scatter_create(struct comm_tensors *tensors,
                        const struct kernels *kernels,
                        const struct kernel_ctx *ctx,
                        const struct params *params, const struct owner *owner,
                        const struct scatter_options *options,
                        struct scatter **out);
void scatter_destroy(struct scatter *scatter);

/* How often all ranks compute leaves at the same time; which is a rank's first,
 * -1: none; and whose a leaf is. */
int scatter_microsteps(const struct scatter *scatter);
int scatter_leaf(const struct scatter *scatter, int rank, int microstep);
int scatter_leaf_rank(const struct scatter *scatter, int leaf);

/* A batch is begin, and all microsteps in order, also when it is to be given
 * up. The end of the last microstep is collective. */
void scatter_begin(struct scatter *scatter);
void scatter_microstep(struct scatter *scatter, int microstep);
enum err scatter_microstep_end(struct scatter *scatter);
/* Where the block's gradients are accumulated: zeroed at the first call of a
 * microstep, but with `begun` for what products begin. */
enum err scatter_gradient(struct scatter *scatter, int block, bool begun,
                          float **gradient);
/* Every block once in a microstep, in the same order on all ranks, with or
 * without a leaf. Collective. */
enum err scatter_done(struct scatter *scatter, int block);
/* After all microsteps: the total of this rank's partitions, packed; lent, valid
 * until the next batch. */
float *scatter_total(const struct scatter *scatter);
