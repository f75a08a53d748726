/* Makes a replica by its strategy: lays out weights, gradients and moments, and
 * opens the exchanges that the strategy needs. The model's calls are in
 * replica_access.c, the leaves of a batch in replica_batch.c, the optimizer's
 * update and checkpoint items in replica_state.c.
 *
 * The strategies are ZeRO's stages (Rajbhandari et al. 2020): spread moments,
 * then gradients, then weights over the ranks. Each is here a set of parts that
 * are there or not, and no rank is told which strategy it is: `reduce` or
 * `scatter` for gradients, `gather` where weights are spread, `shared` where a
 * node has one copy, `group` where ranks compute together. Memory is laid out
 * twice by one function, with an arena that counts and then with one that has
 * memory, so that a plan is what a replica takes. */
#include "src/parallel/replica.h"

#include <assert.h>
#include <stdlib.h>

#include "src/base/new.h"
#include "src/parallel/replica_impl.h"

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

static bool is_on_device(const struct replica *replica)
{
    return replica->kernels != NULL && replica->kernels->memory->device;
}

/* One copy of the weights per node. */
static bool is_shared(const struct replica *replica)
{
    return replica->options.strategy == REPLICA_ZERO1 && !is_on_device(replica);
}

static size_t item_bytes(const struct replica *replica)
{
    return dtype_bytes(replica->options.dtype);
}

void *replica_shard(const struct replica *replica, int block)
{
    return replica->weights +
           (size_t)replica->owner->blocks[block].shard_at * item_bytes(replica);
}

void *replica_partition(const struct replica *replica, int block)
{
    const struct owner_block *b = &replica->owner->blocks[block];
    return replica->weights +
           (size_t)(b->shard_at + b->begin - b->shard_begin) *
               item_bytes(replica);
}

static float *floats(struct arena *arena, int64_t count)
{
    return count > 0 ? arena_take(arena, (size_t)count * sizeof(float)) : NULL;
}

static size_t own_sums_bytes(const struct replica *replica)
{
    return (size_t)(replica->owner->own / KERNEL_CHUNK) * sizeof(double);
}

static void replica_layout(struct replica *replica, struct arena *arena,
                           struct replica_bytes *bytes)
{
    int64_t elements = replica->params->elements;
    int64_t updated = replica->options.strategy == REPLICA_DDP
                          ? elements
                          : replica->owner->own;
    size_t partition = (size_t)updated * sizeof(float);
    bytes->weights = (size_t)replica->owner->shard * item_bytes(replica);
    bytes->shared = is_shared(replica) ? bytes->weights : 0;
    if (!is_shared(replica))
        replica->weights = arena_take(arena, bytes->weights);
    size_t begin = arena->used;
    if (replica->options.dtype != DTYPE_F32)
        replica->master = arena_take(arena, partition);
    bytes->master = arena->used - begin;
    begin = arena->used;
    for (int i = 0; i < UPDATE_MOMENTS; i++)
        if (replica->spans->moments[i] > 0)
            replica->moments[i] = floats(arena, replica->spans->moments[i]);
    replica->states = floats(arena, replica->spans->states);
    replica->scratch = floats(arena, replica->spans->scratch);
    bytes->moments = arena->used - begin;
    begin = arena->used;
    for (int i = 0; i < replica_kept_count(&replica->options); i++)
        replica->kept[i] = arena_take(arena, partition);
    if (replica_kept_count(&replica->options) > 0)
        replica->swapped =
            arena_take(arena, (size_t)REPLICA_SWAP * sizeof(float));
    bytes->kept = arena->used - begin;
    begin = arena->used;
    if (is_on_device(replica))
        replica->own_sums = arena_take(arena, own_sums_bytes(replica));
    bytes->sums = arena->used - begin;
}

static void host_layout(struct replica *replica, struct arena *arena,
                        struct replica_bytes *bytes)
{
    size_t begin = arena->used;
    replica->chunk_sums = arena_take(arena, own_sums_bytes(replica));
    bytes->sums += arena->used - begin;
}

struct spans_input replica_spans_input(const struct replica *replica)
{
    const struct replica_options *options = &replica->options;
    return (struct spans_input){ .params = replica->params,
                                 .owner = replica->owner,
                                 .all = options->strategy == REPLICA_DDP,
                                 .rest = options->optimizer,
                                 .groups = options->groups,
                                 .group_count = options->group_count };
}

/* Under ddp every rank updates everything, however it is cut. */
static enum owner_cut cut_of(const struct replica *replica)
{
    const struct spans_input input = replica_spans_input(replica);
    if (replica_by_block(&replica->options))
        return OWNER_CUT_BLOCKS;
    if (replica_is_ddp(replica))
        return OWNER_CUT_FLAT;
    if (spans_whole(&input) != NULL)
        return OWNER_CUT_WHOLE;
    return replica_in_pieces(replica) ? OWNER_CUT_JOINED : OWNER_CUT_FLAT;
}

static enum err cut_pieces(struct replica *replica, int rank, int ranks)
{
    replica->pieces = replica->owner;
    if (!replica_is_ddp(replica) || !replica_in_pieces(replica))
        return ERR_OK;
    return owner_create(replica->params, OWNER_CUT_JOINED, rank, ranks, 1, 1,
                        &replica->pieces);
}

/* For a plan; the last node has the rest. Where nodes are not alike no more than their
 * number counts (topology_row()). */
static enum err describe_nodes(struct replica *replica, int ranks)
{
    const struct replica_options *options = &replica->options;
    bool uneven = options->uneven > 0 && options->uneven < ranks;
    int each = options->node_ranks > 0 ? options->node_ranks : ranks;
    each = uneven ? 1 : each;
    int nodes = uneven ? options->uneven : (ranks - 1) / each + 1;
    int *counts = NULL;
    TRY(new_zeroed(&counts, (size_t)nodes));
    for (int n = 0; n < nodes; n++)
        counts[n] = n + 1 < nodes ? each : ranks - n * each;
    enum err rc = topology_describe(counts, nodes, &replica->topology);
    free(counts);
    return rc;
}

/* Makes the replica of `rank` without its memory; comm NULL: for a plan. */
static enum err replica_open(const struct comm *comm,
                             const struct params *params, int rank, int ranks,
                             const struct replica_options *options,
                             struct replica **out)
{
    enum err rc = ERR_OK;
    TRY(replica_check(options, ranks));
    TRY(replica_check_model(options, params));
    struct replica *replica = NULL;
    TRY(new_zeroed(&replica, 1));
    replica->params = params;
    replica->options = replica_filled(options);
    assert(replica->options.leaves % replica->options.sequence_chunks == 0);
    assert(options->dtype == DTYPE_F32 || options->dtype == DTYPE_BF16);
    TRY_OUT(comm != NULL && !options->flat
                ? topology_create(comm, &replica->topology)
                : describe_nodes(replica, ranks));
    TRY_OUT(owner_create_rows(
        params, cut_of(replica), rank, ranks, shard_degree(options, ranks),
        replica->options.expert_degree, topology_row(replica->topology),
        &replica->owner));
    TRY_OUT(cut_pieces(replica, rank, ranks));
    const struct spans_input input = replica_spans_input(replica);
    TRY_OUT(spans_create(&input, &replica->spans));
out:
    return new_or_none(rc, replica, out, replica_destroy);
}

/* How many leaves the tree of the reduction has: where bits need not be the
 * same on other ranks, a rank's slots are one. */
static int reduce_slots(const struct replica *replica)
{
    return replica->options.exact ? replica->options.slots
                                  : replica->owner->ranks;
}

/* Leaves of a slot after the first, in ddp and zero1: block by block, too. A
 * layer's gradients are one sum each, which may go to the slot's at once; both
 * ends get theirs in parts. */
static void leaf_layout(struct replica *replica, struct arena *arena)
{
    const struct replica_options *options = &replica->options;
    bool apart =
        !replica_by_block(options) && options->exact && options->leaves > 1;
    for (int i = 0; i < TRACE_PLACES; i++) {
        int64_t elements = access_trace_place_elements(replica->params, i);
        bool needed = apart && (i < TRACE_LAYER || !options->adds_once);
        replica->leaf_block[i] =
            needed ? arena_take(arena, (size_t)elements * sizeof(float)) : NULL;
    }
}

/* Makes the sums, which depend on the number of leaves. */
static enum err make_sums(struct replica *replica)
{
    const struct replica_options *options = &replica->options;
    struct arena plan = { 0 };
    size_t leaves = (size_t)options->slots * (size_t)options->leaves;
    struct scatter_options scatter = replica_scatter_options(replica);
    /* the last update reads the sums */
    TRY(replica->kernels->memory->wait(replica->ctx->stream));
    replica->kernels->memory->tensors_destroy(&replica->leaf_arena);
    scatter_destroy(replica->scatter);
    free(replica->leaf_values);
    replica->leaf_arena = (struct arena){ 0 };
    replica->scatter = NULL;
    TRY(new_zeroed(&replica->leaf_values, leaves + (size_t)options->slots));
    if (replica_by_block(options))
        TRY(scatter_create(replica->tensors, replica->kernels, replica->ctx,
                           replica->params, replica->owner, &scatter,
                           &replica->scatter));
    leaf_layout(replica, &plan);
    TRY(replica->kernels->memory->tensors_create(plan.used,
                                                 &replica->leaf_arena));
    leaf_layout(replica, &replica->leaf_arena);
    replica->leaf_layouts++;
    return ERR_OK;
}

/* Takes memory for weights, masters and moments. It may fail on one rank alone;
 * the caller agrees. */
static enum err make_state(struct replica *replica)
{
    const struct kernel_memory *memory = replica->kernels->memory;
    struct arena tensors = { 0 };
    struct arena host = { 0 };
    struct replica_bytes bytes;
    replica_layout(replica, &tensors, &bytes);
    host_layout(replica, &host, &bytes);
    TRY(memory->tensors_create(tensors.used, &replica->arena));
    TRY(memory->host_create(host.used, &replica->host));
    replica_layout(replica, &replica->arena, &bytes);
    host_layout(replica, &replica->host, &bytes);
    return ERR_OK;
}

/* Makes what goes by blocks, the sums and the list of checkpoint items. It may
 * fail on one rank alone; the caller agrees. */
static enum err make_blocks(struct replica *replica)
{
    const struct replica_options *options = &replica->options;
    struct gather_place place = { .tensors = replica->tensors,
                                  .memory = replica->kernels->memory,
                                  .ctx = replica->ctx,
                                  .params = replica->params,
                                  .owner = replica->owner };
    if (replica_by_block(options))
        TRY(access_trace_create(replica->params, &replica->trace));
    place.trace = replica->trace;
    if (is_spread(replica))
        TRY(gather_create(&place, options->prefetch, options->dtype,
                          replica->weights, &replica->gather));
    TRY(make_sums(replica));
    return replica_list_items(replica);
}

/* The size of a group; experts and sequences are not shared together. */
static int group_degree(const struct replica *replica)
{
    const struct replica_options *options = &replica->options;
    return options->expert_degree > 1 ? options->expert_degree
                                      : options->sequence_degree;
}

static enum err check_device(const struct kernels *kernels,
                             const struct params *params,
                             const struct replica_options *options)
{
    const struct replica_options filled = replica_filled(options);
    const char *name = replica_whole(&filled, params);
    if (name == NULL || !kernels->memory->device)
        return ERR_OK;
    return err_set(ERR_USAGE,
                   "optimizer %s works on whole tensors in the host's memory: "
                   "use hardware.backend=cpu, or another optimizer",
                   name);
}

enum err replica_create(struct comm *comm, const struct kernels *kernels,
                        const struct kernel_ctx *ctx,
                        const struct params *params,
                        const struct replica_options *options,
                        struct replica **out)
{
    enum err rc = ERR_OK;
    struct replica *replica = NULL;
    enum err opened = check_device(kernels, params, options);
    if (opened == ERR_OK)
        opened = replica_open(comm, params, comm_rank(comm), comm_size(comm),
                              options, &replica);
    TRY_OUT(comm_agree(comm, opened));
    replica->comm = comm;
    replica->kernels = kernels;
    replica->options.adds_once = kernels->adds_once;
    replica->ctx = ctx;
    replica->access = replica_access_table(replica);
    TRY_OUT(comm_tensors_create(comm, kernels->memory, ctx->stream,
                                replica->options.exchange, &replica->tensors));
    TRY_OUT(comm_agree(comm, make_state(replica)));
    if (params->frozen != NULL)
        TRY_OUT(frozen_create(replica->tensors, kernels, ctx, params->frozen,
                              options->dtype, &replica->frozen));
    if (is_shared(replica)) {
        TRY_OUT(shared_weights_create(comm, params->elements, replica->owner,
                                      options->dtype, &replica->shared));
        replica->weights = shared_weights_data(replica->shared);
    }
    if (!replica_by_block(options))
        TRY_OUT(reduce_create(comm, replica->tensors, kernels, ctx,
                              params->elements, replica->pieces,
                              reduce_slots(replica), &replica->reduce));
    TRY_OUT(comm_agree(comm, make_blocks(replica)));
    if (group_degree(replica) > 1)
        TRY_OUT(group_create(comm, replica->tensors, group_degree(replica),
                             &replica->group));
out:
    return new_or_none(rc, replica, out, replica_destroy);
}

void replica_exchange(const struct replica *replica, char *text, size_t bytes)
{
    comm_tensors_label(replica->tensors, text, bytes);
}

void replica_exchange_why(const struct replica *replica, char *text,
                          size_t bytes)
{
    comm_tensors_why(replica->tensors, text, bytes);
}

enum err replica_set_leaves(struct replica *replica, int leaves, bool once)
{
    assert(leaves % replica->options.sequence_chunks == 0);
    if (replica->options.leaves == leaves && replica->options.once == once)
        return ERR_OK;
    replica->options.leaves = leaves;
    replica->options.once = once;
    return make_sums(replica);
}

static enum err plan_exchange(struct replica *replica,
                              struct replica_bytes *out)
{
    const struct replica_options *options = &replica->options;
    const struct params *params = replica->params;
    struct scatter_options scatter = replica_scatter_options(replica);
    struct reduce_bytes sums;
    struct arena leaf = { 0 };
    if (replica_by_block(options))
        TRY(scatter_plan(params, replica->owner, &scatter, &sums, &out->once));
    else
        reduce_plan(params->elements, replica->pieces, REDUCE_ANY_RANK,
                    replica->owner->ranks, reduce_slots(replica), &sums);
    out->gradients = sums.gradients;
    out->partial_sums = sums.partial_sums;
    bool near = options->near && !replica_by_block(options);
    out->exchange = near ? sums.near : sums.exchange;
    leaf_layout(replica, &leaf);
    out->gradients += leaf.used;
    if (is_spread(replica))
        out->weights += gather_plan(params, replica->owner, options->prefetch,
                                    options->dtype);
    return ERR_OK;
}

/* What a rank saves, where it is more than what others do. */
static enum err plan_save(struct replica *replica, struct replica_bytes *out)
{
    size_t small;
    TRY(replica_list_items(replica));
    size_t staging =
        ckpt_saver_stage_bytes(replica->items, replica->item_count, &small);
    out->items = (size_t)replica->item_count * sizeof replica->items[0];
    out->by_block = replica->owner->block_count > 1;
    out->small = small > out->small ? small : out->small;
    out->staging = staging > out->staging ? staging : out->staging;
    return ERR_OK;
}

enum err replica_plan(const struct params *params, int ranks,
                      const struct replica_options *options,
                      struct replica_bytes *out)
{
    enum err rc = ERR_OK;
    struct arena plan = { 0 };
    struct replica *replica = NULL, *other = NULL;
    *out = (struct replica_bytes){ 0 };
    TRY_OUT(
        replica_open(NULL, params, OWNER_LARGEST, ranks, options, &replica));
    replica_layout(replica, &plan, out);
    host_layout(replica, &plan, out);
    TRY_OUT(plan_save(replica, out));
    /* behind a block's tensors the largest has what nobody saves */
    if (ranks > 1) {
        int rank = owner_rank_at(replica->owner, 0, ranks - 2);
        TRY_OUT(replica_open(NULL, params, rank, ranks, options, &other));
        TRY_OUT(plan_save(other, out));
    }
    TRY_OUT(plan_exchange(replica, out));
    out->frozen = params->frozen != NULL
                      ? frozen_plan(params->frozen, options->dtype)
                      : 0;
    out->total = out->weights + out->master + out->moments + out->kept +
                 out->frozen + out->sums + out->items + out->gradients +
                 out->partial_sums + out->exchange;
out:
    replica_destroy(other);
    replica_destroy(replica);
    return rc;
}

void replica_destroy(struct replica *replica)
{
    if (replica == NULL)
        return;
    if (replica->kernels != NULL) /* the last update may not be done yet */
        replica->kernels->memory->wait(replica->ctx->stream);
    reduce_destroy(replica->reduce);
    group_destroy(replica->group);
    shared_weights_destroy(replica->shared);
    frozen_destroy(replica->frozen);
    scatter_destroy(replica->scatter);
    gather_destroy(replica->gather);
    access_trace_destroy(replica->trace);
    spans_destroy(replica->spans);
    if (replica->pieces != replica->owner)
        owner_destroy(replica->pieces);
    owner_destroy(replica->owner);
    topology_destroy(replica->topology);
    comm_tensors_destroy(replica->tensors);
    if (replica->kernels != NULL) {
        replica->kernels->memory->tensors_destroy(&replica->leaf_arena);
        replica->kernels->memory->tensors_destroy(&replica->arena);
        replica->kernels->memory->host_destroy(&replica->host);
    }
    free(replica->leaf_values);
    free(replica->items);
    free(replica->began);
    free(replica->kept_items);
    free(replica);
}

const struct param_access *replica_access(struct replica *replica)
{
    return &replica->access;
}

enum err replica_roll_call(struct replica *replica, enum err rc)
{
    return replica->group != NULL ? group_roll_call(replica->group, rc) : rc;
}
