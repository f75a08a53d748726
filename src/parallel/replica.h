/* One rank's part of a data-parallel model: all weights, the gradient of its
 * slots, and the optimizer state of its own interval.
 *
 * Each rank updates the interval of the flat parameter space that it owns
 * (shard.h) and the ranks then exchange their intervals, so no element is
 * updated or written twice; the ranks of a node share one copy (weights.h).
 * Gradients are summed over slots in tree order (reduce.h). The object
 * implements the model's param_access; with weights resident everywhere, gather
 * and release cost nothing. */
#ifndef TESSERA_PARALLEL_REPLICA_H
#define TESSERA_PARALLEL_REPLICA_H

#include <stddef.h>
#include <stdint.h>

#include "checkpoint/ckpt.h"
#include "kernels/kernels.h"
#include "src/base/err.h"
#include "src/comm/comm.h"
#include "src/model/params.h"
#include "src/parallel/reduce.h"

struct replica;

/* All arguments are borrowed. slots: leaves of the summation tree, >= the
 * number of ranks. Collective; fails on all ranks or on none. */
enum err replica_create(struct comm *comm, const struct kernels *kernels,
                        const struct kernel_ctx *ctx,
                        const struct params *params, int slots,
                        struct replica **out);
void replica_destroy(struct replica *replica);

/* Bytes of a replica, by kind, on the rank that needs most. */
struct replica_bytes {
    size_t weights;
    size_t moments; /* of the own interval */
    size_t sums;    /* of chunks, for the gradient's norm */
    size_t items;   /* the table for checkpoints */
    struct reduce_bytes reduce;
    size_t staging; /* what a checkpoint saver copies; not part of ... */
    size_t total;   /* ... what replica_create() allocates */
};

/* Without creating one. */
enum err replica_plan(const struct params *params, int ranks, int slots,
                      struct replica_bytes *out);

/* Fresh weights, a function of the seed; moments zero. Collective. */
enum err replica_init(struct replica *replica, uint64_t seed);

/* For the model; valid between replica_begin_slot() and replica_end_slot() for
 * training, at any time for evaluation. */
const struct param_access *replica_access(struct replica *replica);

/* One batch: begin, then for each of this rank's slots begin_slot, leaves,
 * end_slot; then finish, which leaves the summed gradient of the own interval
 * in place. finish is collective. */
void replica_begin_batch(struct replica *replica);
enum err replica_begin_slot(struct replica *replica);
enum err replica_end_slot(struct replica *replica);
enum err replica_finish_batch(struct replica *replica);

/* L2 norm of the whole summed gradient, the same bits on every rank.
 * Collective, after replica_finish_batch(). */
enum err replica_gradient_norm(struct replica *replica, double *norm);

/* Update the own interval and exchange weights. Collective. */
enum err replica_update(struct replica *replica, const struct adamw *step);

/* All weights; lent. */
const float *replica_weights(const struct replica *replica);

/* Checkpoint items: every tensor's weights and moments ("optimizer/exp_avg/",
 * "optimizer/exp_avg_sq/" before the name), this rank's interval of each. Lent,
 * for saving and for loading; after loading call replica_loaded(). */
const struct ckpt_item *replica_items(const struct replica *replica,
                                      int *count);
/* Exchange weights after a load. Collective. */
enum err replica_loaded(struct replica *replica);

#endif
