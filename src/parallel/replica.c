#include "src/parallel/replica.h"

#include <assert.h>
#include <stdlib.h>

#include "src/parallel/replica_impl.h"
#include "src/parallel/shard.h"
#include "src/parallel/tree.h"

/* --- making ------------------------------------------------------------------
 */

static int shard_degree(const struct replica_options *options, int ranks)
{
    if (options->strategy != REPLICA_ZERO3)
        return 1;
    return options->shard_degree > 0 ? options->shard_degree : ranks;
}

/* Weights lie in shards that are gathered: with one rank per shard group all
 * are at rest here. */
static bool is_spread(const struct replica *replica)
{
    return replica->owner->degree > 1;
}

float *replica_shard(const struct replica *replica, int block)
{
    return replica->weights + replica->owner->blocks[block].shard_at;
}

float *replica_piece(const struct replica *replica, int block)
{
    const struct owner_block *b = &replica->owner->blocks[block];
    if (replica->weights == NULL)
        return NULL;
    return replica_shard(replica, block) + (b->begin - b->shard_begin);
}

static void replica_layout(struct replica *replica, struct arena *arena,
                           struct replica_bytes *bytes)
{
    int64_t elements = replica->params->elements;
    int64_t updated = replica->options.strategy == REPLICA_DDP
                          ? elements
                          : replica->owner->own;
    size_t chunks = (size_t)(elements / KERNEL_CHUNK);
    bytes->weights = (size_t)replica->owner->shard * sizeof(float);
    if (!replica_is_shared(&replica->options))
        replica->weights = arena_take(arena, bytes->weights);
    size_t begin = arena->used;
    replica->exp_avg = arena_take(arena, (size_t)updated * sizeof(float));
    replica->exp_avg_sq = arena_take(arena, (size_t)updated * sizeof(float));
    bytes->moments = arena->used - begin;
    begin = arena->used;
    replica->chunk_sums = arena_take(arena, chunks * sizeof(double));
    bytes->sums = arena->used - begin;
}

/* The part of `rank`, without memory for it. */
static enum err replica_open(const struct params *params, int rank, int ranks,
                             const struct replica_options *options,
                             struct replica **out)
{
    enum err rc = ERR_OK;
    struct replica *replica = NULL;
    TRY(replica_check(options, ranks));
    TRY(replica_check_model(options, params));
    replica = calloc(1, sizeof *replica);
    if (replica == NULL)
        return err_set(ERR_MEMORY, "replica: out of memory");
    replica->params = params;
    replica->options = replica_filled(options);
    assert(replica->options.leaves % replica->options.sequence_chunks == 0);
    TRY(owner_create(params, replica_by_block(options), rank, ranks,
                     shard_degree(options, ranks),
                     replica->options.expert_degree, &replica->owner));
    *out = replica;
    replica = NULL;
out:
    replica_destroy(replica);
    return rc;
}

/* Leaves of reduce's tree: where bits need not be the same on other ranks, a
 * rank's slots are one. */
static int reduce_slots(const struct replica *replica)
{
    return replica->options.exact ? replica->options.slots
                                  : replica->owner->ranks;
}

static struct scatter_options scatter_options_of(const struct replica *replica)
{
    const struct replica_options *options = &replica->options;
    if (options->exact)
        return (struct scatter_options){ .slots = options->slots,
                                         .leaves = options->leaves,
                                         .own_leaves = replica_part(options) };
    return (struct scatter_options){ .slots = 1,
                                     .leaves = options->slots * options->leaves,
                                     .own_leaves = replica_part(options),
                                     .bf16 = options->reduce_bf16 };
}

/* Leaves of a slot after the first, in ddp and zero1: block by block, too. */
static void leaf_layout(struct replica *replica, struct arena *arena)
{
    const struct replica_options *options = &replica->options;
    bool needed =
        !replica_by_block(options) && options->exact && options->leaves > 1;
    for (int i = 0; i < WALK_PLACES; i++) {
        int64_t elements = walk_place_elements(replica->params, i);
        replica->leaf_block[i] =
            needed ? arena_take(arena, (size_t)elements * sizeof(float)) : NULL;
    }
}

/* What depends on the number of leaves. */
static enum err make_sums(struct replica *replica)
{
    enum err rc = ERR_OK;
    const struct replica_options *options = &replica->options;
    struct arena plan = { 0 };
    size_t leaves = (size_t)options->slots * (size_t)options->leaves;
    struct scatter_options scatter = scatter_options_of(replica);
    arena_destroy(&replica->leaf_arena);
    scatter_destroy(replica->scatter);
    free(replica->leaf_values);
    replica->leaf_arena = (struct arena){ 0 };
    replica->scatter = NULL;
    replica->leaf_values =
        calloc(leaves + (size_t)options->slots, sizeof replica->leaf_values[0]);
    if (replica->leaf_values == NULL)
        return err_set(ERR_MEMORY, "replica: out of memory");
    if (replica_by_block(options))
        TRY(scatter_create(replica->comm, replica->kernels, replica->ctx,
                           replica->params, replica->owner, &scatter,
                           &replica->scatter));
    leaf_layout(replica, &plan);
    TRY(arena_create(plan.used, &replica->leaf_arena));
    leaf_layout(replica, &replica->leaf_arena);
out:
    return rc;
}

/* What goes with blocks; the caller agrees. */
static enum err make_blocks(struct replica *replica)
{
    enum err rc = ERR_OK;
    if (replica_by_block(&replica->options))
        TRY(walk_create(replica->params, &replica->walk));
    if (is_spread(replica))
        TRY(gather_create(replica->comm, replica->params, replica->owner,
                          replica->walk, replica->options.prefetch,
                          replica->weights, &replica->gather));
    TRY(make_sums(replica));
    TRY(replica_list_items(replica));
out:
    return rc;
}

/* Experts and sequences are not shared together. */
static int group_degree(const struct replica *replica)
{
    const struct replica_options *options = &replica->options;
    return options->expert_degree > 1 ? options->expert_degree
                                      : options->sequence_degree;
}

enum err replica_create(struct comm *comm, const struct kernels *kernels,
                        const struct kernel_ctx *ctx,
                        const struct params *params,
                        const struct replica_options *options,
                        struct replica **out)
{
    enum err rc = ERR_OK;
    struct arena plan = { 0 };
    struct replica_bytes bytes;
    struct replica *replica = NULL;
    TRY(comm_agree(comm, replica_open(params, comm_rank(comm), comm_size(comm),
                                      options, &replica)));
    replica->comm = comm;
    replica->kernels = kernels;
    replica->ctx = ctx;
    replica->access = replica_access_table(replica);
    replica_layout(replica, &plan, &bytes);
    TRY(comm_agree(comm, arena_create(plan.used, &replica->arena)));
    replica_layout(replica, &replica->arena, &bytes);
    if (replica_is_shared(options)) {
        TRY(weights_create(comm, params->elements, &replica->shared));
        replica->weights = weights_data(replica->shared);
    }
    if (!replica_by_block(options))
        TRY(reduce_create(comm, kernels, ctx, params->elements,
                          reduce_slots(replica), &replica->reduce));
    TRY(comm_agree(comm, make_blocks(replica)));
    if (group_degree(replica) > 1)
        TRY(group_create(comm, group_degree(replica), &replica->group));
    *out = replica;
    replica = NULL;
out:
    replica_destroy(replica);
    return rc;
}

enum err replica_set_leaves(struct replica *replica, int leaves)
{
    assert(leaves % replica->options.sequence_chunks == 0);
    if (replica->options.leaves == leaves)
        return ERR_OK;
    replica->options.leaves = leaves;
    return make_sums(replica);
}

static void plan_exchange(struct replica *replica, struct replica_bytes *out)
{
    const struct replica_options *options = &replica->options;
    const struct params *params = replica->params;
    struct scatter_options scatter = scatter_options_of(replica);
    struct reduce_bytes whole;
    struct scatter_bytes block;
    struct arena leaf = { 0 };
    if (replica_by_block(options)) {
        scatter_plan(params, replica->owner, &scatter, &block);
        out->gradients = block.gradients;
        out->partial_sums = block.partial_sums;
        out->exchange = block.exchange;
    } else {
        reduce_plan(params->elements, REDUCE_ANY_RANK, replica->owner->ranks,
                    reduce_slots(replica), &whole);
        out->gradients = whole.gradients;
        out->partial_sums = whole.partial_sums;
        out->exchange = whole.exchange;
    }
    leaf_layout(replica, &leaf);
    out->gradients += leaf.used;
    if (is_spread(replica))
        out->weights += gather_plan(params, replica->owner, options->prefetch);
}

enum err replica_plan(const struct params *params, int ranks,
                      const struct replica_options *options,
                      struct replica_bytes *out)
{
    enum err rc = ERR_OK;
    struct arena plan = { 0 };
    struct replica *replica = NULL;
    /* the last rank's pieces are the longest */
    TRY(replica_open(params, ranks - 1, ranks, options, &replica));
    replica_layout(replica, &plan, out);
    TRY(replica_list_items(replica));
    plan_exchange(replica, out);
    out->items = (size_t)replica->item_count * sizeof replica->items[0];
    out->staging = ckpt_saver_stage_bytes(replica->items, replica->item_count);
    out->total = out->weights + out->moments + out->sums + out->items +
                 out->gradients + out->partial_sums + out->exchange;
out:
    replica_destroy(replica);
    return rc;
}

void replica_destroy(struct replica *replica)
{
    if (replica == NULL)
        return;
    reduce_destroy(replica->reduce);
    group_destroy(replica->group);
    weights_destroy(replica->shared);
    scatter_destroy(replica->scatter);
    gather_destroy(replica->gather);
    walk_destroy(replica->walk);
    owner_destroy(replica->owner);
    arena_destroy(&replica->leaf_arena);
    arena_destroy(&replica->arena);
    free(replica->leaf_values);
    free(replica->items);
    free(replica);
}

const struct param_access *replica_access(struct replica *replica)
{
    return &replica->access;
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

enum err replica_roll_call(struct replica *replica, enum err rc)
{
    return replica->group != NULL ? group_roll_call(replica->group, rc) : rc;
}

/* --- a batch -----------------------------------------------------------------
 */

/* Of ddp and zero1. */
static int first_leaf(const struct replica *replica, int rank)
{
    return shard_slot_begin(rank, replica->owner->ranks,
                            replica->options.slots) *
           replica->options.leaves;
}

int replica_turns(const struct replica *replica)
{
    int rank = replica->owner->rank;
    if (replica->scatter != NULL)
        return scatter_turns(replica->scatter);
    return first_leaf(replica, rank + 1) - first_leaf(replica, rank);
}

int replica_leaf(const struct replica *replica, int turn)
{
    if (replica->scatter != NULL)
        return scatter_leaf(replica->scatter, turn);
    return first_leaf(replica, replica->owner->rank) + turn;
}

int replica_own_leaves(const struct replica *replica)
{
    return replica_part(&replica->options);
}

bool replica_shares(const struct replica *replica)
{
    return replica->group != NULL;
}

bool replica_serves(const struct replica *replica)
{
    const struct replica_options *options = &replica->options;
    int64_t turn = (int64_t)replica->turn * replica->owner->ranks;
    int first = replica->owner->rank;
    if (replica->group == NULL)
        return false;
    first -= group_access(replica->group)->rank;
    return (turn + first) * replica_part(options) <
           (int64_t)options->slots * options->leaves;
}

void replica_begin_batch(struct replica *replica)
{
    replica->gradient = NULL;
    if (replica->scatter != NULL)
        scatter_begin(replica->scatter);
    else
        reduce_begin(replica->reduce);
}

/* The leaf begins a slot of the sum, which may hold all that the rank has. */
static bool begins_slot(const struct replica *replica, int turn)
{
    if (!replica->options.exact)
        return turn == 0;
    return replica_leaf(replica, turn) % replica->options.leaves == 0;
}

enum err replica_begin_leaf(struct replica *replica, int turn)
{
    replica->turn = turn;
    if (replica->scatter != NULL) {
        scatter_turn(replica->scatter, turn);
        walk_begin(replica->walk, true);
        return ERR_OK;
    }
    replica->leaf_opened = false;
    if (begins_slot(replica, turn))
        return reduce_slot(replica->reduce, &replica->slot_gradient);
    return ERR_OK;
}

enum err replica_end_leaf(struct replica *replica)
{
    enum err rc = ERR_OK;
    int turn = replica->turn;
    if (replica->scatter != NULL) {
        TRY(replica_walk_on(replica));
        return replica->broken ? ERR_OK : scatter_turn_end(replica->scatter);
    }
    if (turn + 1 < replica_turns(replica) && !begins_slot(replica, turn + 1))
        return ERR_OK;
    replica->slot_gradient = NULL;
    TRY(reduce_slot_done(replica->reduce));
out:
    return rc;
}

enum err replica_finish_batch(struct replica *replica)
{
    enum err rc = ERR_OK;
    float *total;
    if (replica->scatter != NULL) {
        replica->gradient = scatter_total(replica->scatter);
        return ERR_OK;
    }
    if (replica->options.strategy != REPLICA_DDP)
        return reduce_finish(replica->reduce, &replica->gradient);
    TRY(reduce_finish_all(replica->reduce, &total));
    replica->gradient = total + replica->owner->blocks[0].begin;
out:
    return rc;
}

void replica_begin_eval(struct replica *replica)
{
    if (replica->walk != NULL)
        walk_begin(replica->walk, false);
}

enum err replica_end_eval(struct replica *replica)
{
    return replica->walk != NULL ? replica_walk_on(replica) : ERR_OK;
}

/* Who computes a leaf, where it comes after `rank`'s. */
static int leaf_rank(const struct replica *replica, int leaf, int rank)
{
    int ranks = replica->owner->ranks;
    if (replica->scatter != NULL)
        return leaf / replica_part(&replica->options) % ranks;
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
    enum err rc = ERR_OK;
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
out:
    return rc;
}
