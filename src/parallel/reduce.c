/* Adds the gradients of whole slots under ddp and zero1: each rank adds what
 * lies within its range of slots, by the tree of tree.h. The exchange between
 * ranks that ends it is in reduce_finish.c, the sums under zero2 and zero3 are
 * in scatter.c.
 *
 * An all-reduce of each rank's sum would add N sums in an order of its own, and
 * with other ranks it would be other sums. The tree over slots is there whatever
 * the ranks are: with 8 slots on 2 ranks,
 *
 *     rank 0: ((0+1)+(2+3))    rank 1: ((4+5)+(6+7))    then one + the other
 *
 * and on 3 ranks, whose ranges are 0 1, 2 3 4 and 5 6 7, the second is left with
 * (2+3) and 4, the third with 5 and (6+7), which can be added only when all have
 * met. A rank keeps as many gradients as its list of complete subtrees gets
 * long, which is the price of the order: a logarithm. */
#include "src/parallel/reduce.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/parallel/adds.h"
#include "src/parallel/reduce_impl.h"
#include "src/parallel/shard.h"

#define RECEIVE_BYTES_MAX ((int64_t)8 << 20)  /* of one partial */
#define RECEIVE_BYTES_ALL ((int64_t)64 << 20) /* aimed at for one round */
#define PAGE_BYTES ((size_t)2 << 20) /* of a shared stack, as it is mapped */
#define CHUNK_BYTES ((int64_t)KERNEL_CHUNK * (int64_t)sizeof(float))

/* What `count` ranks are left with, and the deepest that one's stack gets. */
static int range_nodes(int rank, int count, int ranks, int slots,
                       struct tree *nodes)
{
    int deepest = 0;
    int end = shard_slot_begin(rank + count, ranks, slots);
    nodes->depth = 0;
    for (int slot = shard_slot_begin(rank, ranks, slots); slot < end; slot++) {
        tree_push(nodes, 0, slot);
        deepest = nodes->depth > deepest ? nodes->depth : deepest;
        while (tree_settle(nodes, slots))
            continue;
    }
    return deepest;
}

int64_t reduce_interval_begin(const struct reduce *reduce, int piece, int rank)
{
    const struct owner *owner = reduce->owner;
    if (owner == NULL)
        return shard_begin(reduce->elements, rank, reduce->ranks);
    return owner_begin(owner, piece, owner_place(owner, piece, rank));
}

int64_t reduce_interval(const struct reduce *reduce, int piece, int rank)
{
    const struct owner *owner = reduce->owner;
    int64_t begin = reduce_interval_begin(reduce, piece, rank);
    if (owner == NULL)
        return shard_begin(reduce->elements, rank + 1, reduce->ranks) - begin;
    return owner_begin(owner, piece, owner_place(owner, piece, rank) + 1) -
           begin;
}

/* The longest interval of a piece, and what a rank has of all at most. */
static void measure_pieces(const struct reduce *reduce, int64_t *longest,
                           int64_t *own)
{
    *longest = *own = 0;
    for (int p = 0; p < reduce->pieces; p++) {
        int64_t most = 0;
        for (int r = 0; r < reduce->ranks && reduce->pieces == 1; r++)
            if (reduce_interval(reduce, p, r) > most)
                most = reduce_interval(reduce, p, r);
        if (reduce->pieces > 1)
            most = owner_longest(reduce->owner, p);
        *longest = most > *longest ? most : *longest;
        *own += most;
    }
    if (reduce->pieces > 1)
        *own = reduce->owner->own;
}

static int pieces_of(const struct owner *owner, int ranks)
{
    return owner != NULL && ranks > 1 ? owner->block_count : 1;
}

/* Only elements, owner, pieces and ranks of `reduce` are there. */
/* What each kind of memory must hold follows from how long every rank's list of
 * subtrees gets, which all can compute of all. What is received goes in rounds:
 * a partial of each subtree at a time, small enough for some tens of MiB and large
 * enough for a message to be worth it. */
static void make_plan(const struct reduce *reduce, int rank, int slots,
                      struct shape *plan)
{
    int ranks = reduce->ranks;
    int64_t longest, seen;
    int fewest = TREE_DEPTH_MAX;
    memset(plan, 0, sizeof *plan);
    for (int r = 0; r < ranks; r++) {
        struct tree nodes;
        int deepest = range_nodes(r, 1, ranks, slots, &nodes);
        if ((r == rank || rank == REDUCE_ANY_RANK) && deepest > plan->buffers)
            plan->buffers = deepest;
        plan->partials += nodes.depth;
        plan->layers = nodes.depth > plan->layers ? nodes.depth : plan->layers;
        if (r == rank || (rank == REDUCE_ANY_RANK && nodes.depth < fewest))
            fewest = nodes.depth;
    }
    if (ranks == 1)
        return;
    measure_pieces(reduce, &longest, &seen);
    int64_t bytes = RECEIVE_BYTES_ALL / plan->partials;
    bytes = bytes > RECEIVE_BYTES_MAX ? RECEIVE_BYTES_MAX : bytes;
    bytes = bytes < CHUNK_BYTES ? CHUNK_BYTES : bytes;
    plan->span = bytes / CHUNK_BYTES * KERNEL_CHUNK;
    plan->span = plan->span > longest ? longest : plan->span;
    plan->rounds = (longest + plan->span - 1) / plan->span;
    plan->received = plan->partials - fewest;
    plan->shared_bytes = (size_t)plan->received * (size_t)seen * sizeof(float);
    size_t pages = ((size_t)seen * sizeof(float) - 1) / PAGE_BYTES + 2;
    plan->near_bytes = (size_t)plan->received * pages * PAGE_BYTES;
}

static size_t whole_bytes(const struct reduce *reduce)
{
    return (size_t)reduce->elements * sizeof(float);
}

/* Lays out the tables, which are not in the stacks' memory. */
static void layout_tables(struct reduce *reduce, struct arena *arena)
{
    struct shape *plan = &reduce->plan;
    reduce->partials =
        arena_take(arena, (size_t)plan->partials * sizeof *reduce->partials);
    reduce->first_partial = arena_take(
        arena, (size_t)(reduce->ranks + 1) * sizeof *reduce->first_partial);
    reduce->requests =
        arena_take(arena, 2 * (size_t)plan->layers * sizeof *reduce->requests);
    reduce->missing =
        arena_take(arena, (size_t)reduce->pieces * sizeof *reduce->missing);
}

static void layout(struct reduce *reduce, struct arena *arena)
{
    struct shape *plan = &reduce->plan;
    plan->receive_bytes =
        2 * (size_t)plan->received * (size_t)plan->span * sizeof(float);
    reduce->receive = arena_take(arena, plan->receive_bytes);
}

void reduce_plan(int64_t elements, const struct owner *owner, int rank,
                 int ranks, int slots, struct reduce_bytes *out)
{
    struct arena plan = { 0 };
    struct reduce reduce = { .elements = elements,
                             .owner = owner,
                             .pieces = pieces_of(owner, ranks),
                             .ranks = ranks };
    make_plan(&reduce, rank, slots, &reduce.plan);
    layout_tables(&reduce, &plan);
    layout(&reduce, &plan);
    size_t messages = reduce.plan.receive_bytes;
    size_t most = reduce.plan.shared_bytes;
    most = most > messages ? most : messages;
    out->gradients = whole_bytes(&reduce);
    out->partial_sums = out->gradients * (size_t)(reduce.plan.buffers - 1);
    out->exchange = plan.used - messages + most;
    out->near = plan.used - messages + reduce.plan.near_bytes;
    out->total = out->gradients + out->partial_sums + out->exchange;
}

float *reduce_stack(const struct reduce *reduce, int rank)
{
    if (reduce->window != NULL)
        return comm_window_part(reduce->window, rank);
    return rank == reduce->rank ? reduce->stack[0] : NULL;
}

bool reduce_far(const struct reduce *reduce, int rank)
{
    return reduce_stack(reduce, rank) == NULL &&
           rank % reduce->row == reduce->rank % reduce->row;
}

/* What other nodes have, each together, comes from the rank with this one's place there. They
 * are only counted where there is no table yet. */
static void list_partials(struct reduce *reduce)
{
    struct shape *plan = &reduce->plan;
    int row = reduce->row;
    plan->partials = plan->received = 0;
    for (int r = 0; r < reduce->ranks; r++) {
        struct tree nodes = { 0 };
        bool near = reduce_stack(reduce, r) != NULL;
        bool far = reduce_far(reduce, r);
        if (near || far)
            range_nodes(near ? r : r - r % row, near ? 1 : row, reduce->ranks,
                        reduce->slots, &nodes);
        if (reduce->partials != NULL)
            reduce->first_partial[r] = plan->partials;
        for (int i = 0; i < nodes.depth; i++, plan->partials++) {
            int place = far ? plan->received++ : -1;
            if (reduce->partials != NULL)
                reduce->partials[plan->partials] =
                    (struct partial){ nodes.node[i], r, i, place };
        }
        range_nodes(r - r % row, row, reduce->ranks, reduce->slots, &nodes);
        plan->layers = nodes.depth > plan->layers ? nodes.depth : plan->layers;
    }
    if (reduce->partials != NULL)
        reduce->first_partial[reduce->ranks] = plan->partials;
}

/* Ranks of every node, where all of them see each other's stacks; else 1. */
static int row_of(const struct reduce *reduce)
{
    int row = 1;
    while (row < reduce->ranks && comm_window_node(reduce->window, row) == 0)
        row++;
    for (int r = 0; r < reduce->ranks; r++)
        if (comm_window_node(reduce->window, r) != r - r % row)
            return 1;
    return reduce->ranks % row == 0 && row < reduce->ranks ? row : 1;
}

/* Opens the memory of the stacks where the node's other ranks can read it, if
 * that can be. Collective. */
static enum err open_stacks(struct reduce *reduce)
{
    struct shape *plan = &reduce->plan;
    const struct kernel_memory *memory = reduce->kernels->memory;
    size_t bytes = (size_t)plan->buffers * whole_bytes(reduce);
    float *base;
    if (memory->device) {
        TRY(comm_agree(reduce->comm,
                       memory->tensors_create(bytes, &reduce->stacks)));
        base = arena_take(&reduce->stacks, bytes);
    } else {
        TRY(comm_window_create(reduce->comm, COMM_WINDOW_EACH, bytes,
                               &reduce->window));
        base = comm_window_part(reduce->window, reduce->rank);
    }
    for (int i = 0; i < plan->buffers; i++)
        reduce->stack[i] = base + i * reduce->elements;
    reduce->row = reduce->window != NULL ? row_of(reduce) : 1;
    reduce->alone = true;
    for (int r = 0; r < reduce->ranks && reduce->window != NULL; r++)
        reduce->alone &= comm_window_node(reduce->window, r) == r;
    list_partials(reduce);
    return ERR_OK;
}

/* Opens the memory of the tables and of what is received. */
static enum err open_rest(struct reduce *reduce)
{
    struct arena tables = { 0 };
    struct arena rest = { 0 };
    layout_tables(reduce, &tables);
    layout(reduce, &rest);
    TRY(arena_create(tables.used, &reduce->tables));
    TRY(reduce->kernels->memory->tensors_create(rest.used, &reduce->arena));
    layout_tables(reduce, &reduce->tables);
    layout(reduce, &reduce->arena);
    return ERR_OK;
}

enum err reduce_create(struct comm *comm, struct comm_tensors *tensors,
                       const struct kernels *kernels,
                       const struct kernel_ctx *ctx, int64_t elements,
                       const struct owner *owner, int slots,
                       struct reduce **out)
{
    assert(elements > 0 && elements % KERNEL_CHUNK == 0);
    enum err rc = ERR_OK;
    *out = NULL;
    if (comm_size(comm) > slots)
        return err_set(ERR_USAGE,
                       "%d ranks for %d slots; start at most %d ranks or train "
                       "with more slots",
                       comm_size(comm), slots, slots);
    struct reduce *reduce = NULL;
    rc = new_zeroed(&reduce, 1);
    if (rc == ERR_OK)
        reduce->kernels = kernels;
    TRY_OUT(comm_agree(comm, rc));
    reduce->comm = comm;
    reduce->tensors = tensors;
    reduce->ctx = ctx;
    reduce->elements = elements;
    reduce->owner = owner;
    reduce->rank = comm_rank(comm);
    reduce->ranks = comm_size(comm);
    reduce->pieces = pieces_of(owner, reduce->ranks);
    reduce->meets = reduce->travels = reduce->back = NO_PIECE;
    reduce->slots = slots;
    make_plan(reduce, reduce->rank, slots, &reduce->plan);
    TRY_OUT(open_stacks(reduce));
    TRY_OUT(comm_agree(comm, open_rest(reduce)));
    list_partials(reduce);
    reduce_begin(reduce, false);
out:
    return new_or_none(rc, reduce, out, reduce_destroy);
}

void reduce_destroy(struct reduce *reduce)
{
    if (reduce == NULL)
        return;
    comm_window_destroy(reduce->window);
    reduce->kernels->memory->tensors_destroy(&reduce->stacks);
    reduce->kernels->memory->tensors_destroy(&reduce->arena);
    arena_destroy(&reduce->tables);
    free(reduce);
}

void reduce_begin(struct reduce *reduce, bool everywhere)
{
    assert(reduce->meets == NO_PIECE && reduce->travels == NO_PIECE &&
           reduce->back == NO_PIECE);
    reduce->everywhere = everywhere;
    reduce->next = reduce->pieces - 1;
    for (int p = 0; p < reduce->pieces && reduce->pieces > 1; p++)
        reduce->missing[p] = reduce->owner->blocks[p].parts;
    reduce->nodes.depth = 0;
    reduce->slot = shard_slot_begin(reduce->rank, reduce->ranks, reduce->slots);
    reduce->lent = false;
}

float *reduce_slot(struct reduce *reduce)
{
    assert(!reduce->lent);
    assert(reduce->slot <
           shard_slot_begin(reduce->rank + 1, reduce->ranks, reduce->slots));
    reduce->lent = true;
    return reduce->stack[reduce->nodes.depth];
}

int reduce_lent(const struct reduce *reduce)
{
    assert(reduce->lent);
    return reduce->nodes.depth;
}

enum err reduce_combine(const struct reduce *reduce, int64_t begin, int64_t n,
                        struct tree *nodes)
{
    struct adds adds = { .kernels = reduce->kernels,
                         .ctx = reduce->ctx,
                         .n = n };
    *nodes = reduce->nodes;
    tree_push(nodes, 0, reduce->slot);
    for (int i = 0; i < nodes->depth; i++)
        adds_put(&adds, i, reduce->stack[i] + begin, NULL);
    while (tree_settle(nodes, reduce->slots))
        TRY(adds_join(&adds, nodes->depth - 1));
    return adds_write(&adds, nodes->depth - 1,
                      reduce->stack[nodes->depth - 1] + begin);
}

enum err reduce_slot_done(struct reduce *reduce)
{
    struct tree nodes = { 0 };
    assert(reduce->lent);
    int end = shard_slot_begin(reduce->rank + 1, reduce->ranks, reduce->slots);
    if (reduce->pieces > 1 && reduce->slot + 1 == end)
        TRY(reduce_end_pieces(reduce));
    else
        TRY(reduce_combine(reduce, 0, reduce->elements, &nodes));
    reduce->nodes = nodes;
    reduce->lent = false;
    reduce->slot++;
    return ERR_OK;
}

enum err reduce_gather(struct comm_tensors *tensors, int64_t elements,
                       const int64_t *cut, enum dtype dtype, void *arena)
{
    struct comm *comm = comm_tensors_comm(tensors);
    struct comm_tensors_request *request;
    int ranks = comm_size(comm);
    size_t *bytes = comm_sizes(comm, 0);
    size_t *offsets = comm_sizes(comm, 1);
    for (int r = 0; r < ranks; r++) {
        int64_t begin = shard_cut_begin(cut, elements, r, ranks);
        int64_t end = shard_cut_begin(cut, elements, r + 1, ranks);
        offsets[r] = (size_t)begin * dtype_bytes(dtype);
        bytes[r] = (size_t)(end - begin) * dtype_bytes(dtype);
    }
    TRY(comm_tensors_start_all_gather(tensors, arena, bytes, offsets,
                                      &request));
    return comm_tensors_wait(request, 0.0);
}
