/* Deals the leaves of a batch to the ranks, and does what comes before and
 * after each leaf. The leaf itself is computed by src/model.
 *
 * Numbers of leaves (losses) are summed as gradients are: gathered from all,
 * added leaf by leaf within a slot, and slots by the tree. So a loss that is
 * printed has the bits of one rank alone, too. */
#include <string.h>

#include "src/parallel/replica_impl.h"
#include "src/parallel/shard.h"
#include "src/parallel/tree.h"

/* Ranks of a shard group, which may have a range of leaves: where groups are
 * whole nodes of several that are alike, and no sequence is in two of them. */
static int range_group(const struct replica *replica)
{
    const struct replica_options *options = &replica->options;
    const struct topology *t = replica->topology;
    int degree = replica->owner->degree;
    bool whole = t->nodes > 1 && t->least == t->most && degree % t->most == 0 &&
                 degree % options->sequence_degree == 0;
    return options->once && owner_columns(replica->owner) && whole ? degree : 0;
}

struct scatter_options replica_scatter_options(const struct replica *replica)
{
    const struct replica_options *options = &replica->options;
    if (options->exact)
        return (struct scatter_options){ .slots = options->slots,
                                         .leaves = options->leaves,
                                         .own_leaves = replica_part(options),
                                         .topology = replica->topology,
                                         .group = range_group(replica) };
    return (struct scatter_options){ .slots = 1,
                                     .leaves = options->slots * options->leaves,
                                     .own_leaves = replica_part(options),
                                     .bf16 = options->reduce_bf16,
                                     .topology = replica->topology };
}

/* The rank's first leaf under ddp and zero1, where ranks have ranges of
 * slots. */
static int first_leaf(const struct replica *replica, int rank)
{
    return shard_slot_begin(rank, replica->owner->ranks,
                            replica->options.slots) *
           replica->options.leaves;
}

int replica_microsteps(const struct replica *replica)
{
    int rank = replica->owner->rank;
    if (replica->scatter != NULL)
        return scatter_microsteps(replica->scatter);
    return first_leaf(replica, rank + 1) - first_leaf(replica, rank);
}

int replica_microsteps_least(const struct replica *replica)
{
    if (replica->scatter != NULL)
        return scatter_microsteps(replica->scatter);
    return replica->options.slots / replica->owner->ranks *
           replica->options.leaves;
}

int replica_leaf(const struct replica *replica, int microstep)
{
    if (replica->scatter != NULL)
        return scatter_leaf(replica->scatter, replica->owner->rank, microstep);
    return first_leaf(replica, replica->owner->rank) + microstep;
}

int replica_own_leaves(const struct replica *replica)
{
    return replica_part(&replica->options);
}

const struct group_access *replica_experts(const struct replica *replica)
{
    return replica->options.expert_degree > 1 ? group_access(replica->group)
                                              : NULL;
}

const struct group_access *replica_sequence(const struct replica *replica)
{
    return replica->options.sequence_degree > 1 ? group_access(replica->group)
                                                : NULL;
}

bool replica_shares(const struct replica *replica)
{
    return replica->group != NULL;
}

bool replica_serves(const struct replica *replica)
{
    int first = replica->owner->rank;
    if (replica->group == NULL)
        return false;
    first -= group_access(replica->group)->rank;
    return scatter_leaf(replica->scatter, first, replica->microstep) >= 0;
}

void replica_begin_batch(struct replica *replica)
{
    replica->gradient = NULL;
    replica->given_up = false;
    if (replica->scatter != NULL)
        scatter_begin(replica->scatter);
    else
        reduce_begin(replica->reduce, replica_is_ddp(replica));
}

void replica_give_up(struct replica *replica)
{
    replica->given_up = true;
}

bool replica_begins_slot(const struct replica *replica, int microstep)
{
    if (!replica->options.exact)
        return microstep == 0;
    return replica_leaf(replica, microstep) % replica->options.leaves == 0;
}

enum err replica_begin_leaf(struct replica *replica, int microstep)
{
    replica->microstep = microstep;
    replica->begun = -1;
    memset(replica->once, 0, sizeof replica->once);
    if (replica->scatter != NULL) {
        scatter_microstep(replica->scatter, microstep);
        access_trace_begin(replica->trace, true);
        return ERR_OK;
    }
    replica->sends = microstep + 1 == replica_microsteps(replica);
    if (replica_begins_slot(replica, microstep) && !replica->given_up)
        replica->slot_gradient = reduce_slot(replica->reduce);
    return ERR_OK;
}

enum err replica_end_leaf(struct replica *replica)
{
    int microstep = replica->microstep;
    if (replica->scatter != NULL) {
        TRY(replica_finish_trace(replica));
        return replica->broken ? ERR_OK
                               : scatter_microstep_end(replica->scatter);
    }
    bool last = microstep + 1 == replica_microsteps(replica);
    if (replica->given_up || replica->broken ||
        (!last && !replica_begins_slot(replica, microstep + 1)))
        return ERR_OK;
    replica->slot_gradient = NULL;
    enum err rc = reduce_slot_done(replica->reduce);
    return last && replica->pieces->block_count > 1 ? replica_sent(replica, rc)
                                                    : rc;
}

enum err replica_finish_batch(struct replica *replica)
{
    if (replica->scatter == NULL)
        return reduce_finish(replica->reduce, &replica->gradient);
    replica->gradient = scatter_total(replica->scatter);
    return ERR_OK;
}

void replica_begin_eval(struct replica *replica)
{
    if (replica->trace != NULL)
        access_trace_begin(replica->trace, false);
}

enum err replica_end_eval(struct replica *replica)
{
    return replica->trace != NULL ? replica_finish_trace(replica) : ERR_OK;
}

/* The rank that computes a leaf; `rank` is where the search begins. */
static int leaf_rank(const struct replica *replica, int leaf, int rank)
{
    if (replica->scatter != NULL)
        return scatter_leaf_rank(replica->scatter, leaf);
    while (leaf >= first_leaf(replica, rank + 1))
        rank++;
    return rank;
}

/* Leaves of a batch are listed rank by rank for their exchange: at[r] is the
 * first of rank r. */
static void leaf_places(const struct replica *replica, size_t *at)
{
    int total = replica->options.slots * replica->options.leaves;
    int ranks = replica->owner->ranks;
    size_t sum = (size_t)total;
    for (int r = 0; r < ranks; r++)
        at[r] = 0;
    for (int leaf = 0, r = 0; leaf < total; leaf++) {
        r = leaf_rank(replica, leaf, r);
        at[r]++;
    }
    for (int r = ranks - 1; r >= 0; r--) {
        sum -= at[r];
        at[r] = sum;
    }
}

static enum err gather_leaves(struct replica *replica, const double *values)
{
    double *all = replica->leaf_values;
    int total = replica->options.slots * replica->options.leaves;
    int ranks = replica->owner->ranks;
    size_t *bytes = comm_sizes(replica->comm, 0);
    size_t *offsets = comm_sizes(replica->comm, 1);
    leaf_places(replica, offsets);
    double *own = all + offsets[replica->owner->rank];
    for (int r = 0; r < ranks; r++) {
        size_t end = r + 1 < ranks ? offsets[r + 1] : (size_t)total;
        bytes[r] = (end - offsets[r]) * sizeof *all;
    }
    for (int r = 0; r < ranks; r++)
        offsets[r] *= sizeof *all;
    for (int leaf = 0, r = 0; leaf < total; leaf++) {
        r = leaf_rank(replica, leaf, r);
        if (r == replica->owner->rank)
            *own++ = values[leaf];
    }
    return comm_all_gather(replica->comm, all, bytes, offsets);
}

enum err replica_leaf_sum(struct replica *replica, const double *values,
                          double *sum)
{
    int leaves = replica->options.leaves;
    int slots = replica->options.slots;
    double *all = replica->leaf_values;
    double *sums = all + slots * leaves;
    size_t *next = comm_sizes(replica->comm, 2);
    TRY(gather_leaves(replica, values));
    leaf_places(replica, next);
    for (int leaf = 0, r = 0; leaf < slots * leaves; leaf++) {
        double *slot = &sums[leaf / leaves];
        r = leaf_rank(replica, leaf, r);
        double value = all[next[r]++];
        *slot = leaf % leaves == 0 ? value : *slot + value;
    }
    *sum = tree_sum(sums, slots);
    return ERR_OK;
}
