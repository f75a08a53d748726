/* The weights of a model that nobody changes, on the ranks that compute with them:
 * of evaluation and generation, where a replica would have gradients and moments.
 *
 *   node   all, on a host one copy that the ranks of a node share, on devices one
 *          each (frozen.h)
 *   ranks  each rank's shard of every block, read by it alone; a block is whole
 *          for as long as it is computed with, the next one comes meanwhile
 *          (gather.h)
 *
 * What is computed has the same bits either way, and on any number of ranks.
 * With `ranks` all make the same walks through the model, with rows or without. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "kernels/kernels.h"
#include "src/base/err.h"
#include "src/comm/comm.h"
#include "src/model/params.h"
#include "src/parallel/frozen.h"

enum spread_way {
    SPREAD_AUTO, /* node, where there is memory for it, and for one rank */
    SPREAD_NODE,
    SPREAD_RANKS
};
static const char *const spread_way_names[] = { "auto", "node", "ranks", NULL };

struct spread;

/* *way, where it is AUTO, becomes what it is on these ranks; with one of them NODE in
 * any case. fits: this rank's node, or its device, has memory for all weights. AUTO or
 * not is the same on all ranks. Collective. */
enum err spread_choose(struct comm *comm, bool fits, enum spread_way *way);

/* Reads the weights, fp32, from the source: each rank the part that is its own. All
 * but the source is borrowed; the stream of ctx is there. way: not AUTO. Collective;
 * fails on all ranks or on none. */
enum err spread_create(struct comm *comm, const struct kernels *kernels,
                       const struct kernel_ctx *ctx,
                       const struct params *params,
                       const struct replica_source *source, enum spread_way way,
                       struct spread **out);
/* Collective; left out after ERR_COMM. NULL is fine. */
void spread_destroy(struct spread *spread);

/* Bytes of a rank with RANKS, of the one that has most: its shards and the buffers
 * for whole blocks. There are buffers for a block ahead unless that makes it more
 * than 1.15 times the shards and the largest block. */
enum err spread_plan(const struct params *params, int ranks, size_t *bytes);

/* gather and release only. NODE: at any time, by this rank alone. RANKS: between
 * spread_begin() and spread_end(). Lent. */
const struct param_access *spread_access(struct spread *spread);
/* Whether all ranks must walk together. */
bool spread_together(const struct spread *spread);
/* Around one walk through the model, from its first block to the last, as
 * model_eval_leaf() and infer_forward() make them; `end` makes what is left of it,
 * all of it where this rank had nothing to compute or has failed, and is ERR_COMM
 * where it can't. Collective where ranks walk together, else they do nothing. */
void spread_begin(struct spread *spread);
enum err spread_end(struct spread *spread);
