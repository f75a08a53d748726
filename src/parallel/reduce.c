/* Slots are leaves of one tree; ranks add what lies within their range, then
 * every owner finishes the tree for its interval from all ranks' pieces. */
#include "src/parallel/reduce.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/arena.h"
#include "src/comm/comm_window.h"
#include "src/parallel/shard.h"
#include "src/parallel/tree.h"

#define RECEIVE_BYTES_MAX ((int64_t)8 << 20)  /* of one piece */
#define RECEIVE_BYTES_ALL ((int64_t)64 << 20) /* aimed at for one round */
#define CHUNK_BYTES ((int64_t)KERNEL_CHUNK * (int64_t)sizeof(float))
/* Added up at once, so that what lies between stays in a cache. */
#define BLOCK_ELEMENTS ((int64_t)4 * KERNEL_CHUNK)

/* A subtree that some rank is left with. */
struct piece {
    struct tree_node node;
    int rank;
    int number; /* among the rank's pieces: the depth of its buffer there */
    int place;  /* among the pieces that are received; < 0: shared */
};

/* What follows from elements, ranks and slots alone. */
struct shape {
    int buffers;  /* gradient buffers of this rank's stack */
    int pieces;   /* of all ranks */
    int layers;   /* the most pieces that any rank is left with */
    int sums;     /* the most that wait while the pieces are added up */
    int64_t span; /* elements of an interval exchanged per round */
    int64_t rounds;
    int received;         /* pieces that come in messages */
    size_t receive_bytes; /* two rounds of them */
    size_t shared_bytes;  /* of other ranks' pieces, if all are shared */
};

struct reduce {
    struct comm *comm;
    const struct kernels *kernels;
    const struct kernel_ctx *ctx;
    int64_t elements;
    int rank, ranks, slots;
    struct shape plan;
    struct arena arena;
    struct comm_window *window;   /* the stacks of this node */
    float *stack[TREE_DEPTH_MAX]; /* [plan.buffers][elements] */
    struct tree nodes;
    int slot; /* next to be finished */
    bool lent;
    struct piece *pieces;           /* in slot order */
    int *first_piece;               /* [ranks + 1] */
    float *receive;                 /* [2][plan.received][span] */
    float *sums;                    /* [plan.sums][BLOCK_ELEMENTS] */
    struct comm_request **requests; /* [2][layers] */
};

/* What a rank is left with, and the deepest that its stack gets. */
static int range_nodes(int rank, int ranks, int slots, struct tree *nodes)
{
    int deepest = 0;
    int end = shard_slot_begin(rank + 1, ranks, slots);
    nodes->depth = 0;
    for (int slot = shard_slot_begin(rank, ranks, slots); slot < end; slot++) {
        tree_push(nodes, 0, slot);
        deepest = nodes->depth > deepest ? nodes->depth : deepest;
        while (tree_settle(nodes, slots))
            continue;
    }
    return deepest;
}

static int64_t interval_elements(int64_t elements, int rank, int ranks)
{
    return shard_begin(elements, rank + 1, ranks) -
           shard_begin(elements, rank, ranks);
}

static void make_plan(int64_t elements, int rank, int ranks, int slots,
                      struct shape *plan)
{
    int64_t longest = 0;
    int fewest = TREE_DEPTH_MAX;
    memset(plan, 0, sizeof *plan);
    for (int r = 0; r < ranks; r++) {
        struct tree nodes;
        int deepest = range_nodes(r, ranks, slots, &nodes);
        int64_t own = interval_elements(elements, r, ranks);
        if ((r == rank || rank == REDUCE_ANY_RANK) && deepest > plan->buffers)
            plan->buffers = deepest;
        plan->pieces += nodes.depth;
        plan->layers = nodes.depth > plan->layers ? nodes.depth : plan->layers;
        if (r == rank || (rank == REDUCE_ANY_RANK && nodes.depth < fewest))
            fewest = nodes.depth;
        longest = own > longest ? own : longest;
    }
    if (ranks == 1)
        return;
    /* What precedes a slot is at most one subtree per level. */
    for (plan->sums = 2; slots >> (plan->sums - 1) > 0;)
        plan->sums++;
    int64_t bytes = RECEIVE_BYTES_ALL / plan->pieces;
    bytes = bytes > RECEIVE_BYTES_MAX ? RECEIVE_BYTES_MAX : bytes;
    bytes = bytes < CHUNK_BYTES ? CHUNK_BYTES : bytes;
    plan->span = bytes / CHUNK_BYTES * KERNEL_CHUNK;
    plan->span = plan->span > longest ? longest : plan->span;
    plan->rounds = (longest + plan->span - 1) / plan->span;
    plan->received = plan->pieces - fewest;
    plan->shared_bytes =
        (size_t)plan->received * (size_t)longest * sizeof(float);
}

static size_t whole_bytes(const struct reduce *reduce)
{
    return (size_t)reduce->elements * sizeof(float);
}

/* What is not in the window. */
static void layout(struct reduce *reduce, struct arena *arena)
{
    struct shape *plan = &reduce->plan;
    plan->receive_bytes =
        2 * (size_t)plan->received * (size_t)plan->span * sizeof(float);
    reduce->pieces =
        arena_take(arena, (size_t)plan->pieces * sizeof *reduce->pieces);
    reduce->first_piece = arena_take(arena, (size_t)(reduce->ranks + 1) *
                                                sizeof *reduce->first_piece);
    reduce->requests =
        arena_take(arena, 2 * (size_t)plan->layers * sizeof *reduce->requests);
    reduce->sums = arena_take(arena, (size_t)(plan->sums * BLOCK_ELEMENTS) *
                                         sizeof *reduce->sums);
    reduce->receive = arena_take(arena, plan->receive_bytes);
}

void reduce_plan(int64_t elements, int rank, int ranks, int slots,
                 struct reduce_bytes *out)
{
    struct arena plan = { 0 };
    struct reduce reduce = { .elements = elements, .ranks = ranks };
    make_plan(elements, rank, ranks, slots, &reduce.plan);
    layout(&reduce, &plan);
    size_t messages = reduce.plan.receive_bytes;
    size_t most = reduce.plan.shared_bytes;
    most = most > messages ? most : messages;
    out->gradients = whole_bytes(&reduce);
    out->partial_sums = out->gradients * (size_t)(reduce.plan.buffers - 1);
    out->exchange = plan.used - messages + most;
    out->total = out->gradients + out->partial_sums + out->exchange;
}

static void list_pieces(struct reduce *reduce)
{
    int count = 0;
    int received = 0;
    for (int r = 0; r < reduce->ranks; r++) {
        struct tree nodes;
        bool far = comm_window_part(reduce->window, r) == NULL;
        range_nodes(r, reduce->ranks, reduce->slots, &nodes);
        reduce->first_piece[r] = count;
        for (int i = 0; i < nodes.depth; i++)
            reduce->pieces[count++] =
                (struct piece){ nodes.node[i], r, i, far ? received++ : -1 };
    }
    reduce->first_piece[reduce->ranks] = count;
    assert(count == reduce->plan.pieces);
    assert(received == reduce->plan.received);
}

/* Its stack is where the node's other ranks can read it. Collective. */
static enum err open_window(struct reduce *reduce)
{
    enum err rc = ERR_OK;
    struct shape *plan = &reduce->plan;
    TRY(comm_window_create(reduce->comm, COMM_WINDOW_EACH,
                           (size_t)plan->buffers * whole_bytes(reduce),
                           &reduce->window));
    float *base = comm_window_part(reduce->window, reduce->rank);
    for (int i = 0; i < plan->buffers; i++)
        reduce->stack[i] = base + i * reduce->elements;
    plan->received = 0;
    for (int r = 0; r < reduce->ranks; r++) {
        struct tree nodes;
        range_nodes(r, reduce->ranks, reduce->slots, &nodes);
        if (comm_window_part(reduce->window, r) == NULL)
            plan->received += nodes.depth;
    }
out:
    return rc;
}

enum err reduce_create(struct comm *comm, const struct kernels *kernels,
                       const struct kernel_ctx *ctx, int64_t elements,
                       int slots, struct reduce **out)
{
    assert(elements > 0 && elements % KERNEL_CHUNK == 0);
    enum err rc = ERR_OK;
    struct arena plan = { 0 };
    *out = NULL;
    if (comm_size(comm) > slots)
        return err_set(ERR_USAGE,
                       "%d ranks for %d slots; start at most %d ranks or train "
                       "with more slots",
                       comm_size(comm), slots, slots);
    struct reduce *reduce = calloc(1, sizeof *reduce);
    if (reduce == NULL)
        rc = err_set(ERR_MEMORY, "gradient reduction: out of memory");
    TRY(comm_agree(comm, rc));
    reduce->comm = comm;
    reduce->kernels = kernels;
    reduce->ctx = ctx;
    reduce->elements = elements;
    reduce->rank = comm_rank(comm);
    reduce->ranks = comm_size(comm);
    reduce->slots = slots;
    make_plan(elements, reduce->rank, reduce->ranks, slots, &reduce->plan);
    TRY(open_window(reduce));
    layout(reduce, &plan);
    TRY(comm_agree(comm, arena_create(plan.used, &reduce->arena)));
    layout(reduce, &reduce->arena);
    list_pieces(reduce);
    reduce_begin(reduce);
    *out = reduce;
    reduce = NULL;
out:
    reduce_destroy(reduce);
    return rc;
}

void reduce_destroy(struct reduce *reduce)
{
    if (reduce == NULL)
        return;
    comm_window_destroy(reduce->window);
    arena_destroy(&reduce->arena);
    free(reduce);
}

void reduce_begin(struct reduce *reduce)
{
    reduce->nodes.depth = 0;
    reduce->slot = shard_slot_begin(reduce->rank, reduce->ranks, reduce->slots);
    reduce->lent = false;
}

enum err reduce_slot(struct reduce *reduce, float **gradient)
{
    assert(!reduce->lent);
    assert(reduce->slot <
           shard_slot_begin(reduce->rank + 1, reduce->ranks, reduce->slots));
    reduce->lent = true;
    *gradient = reduce->stack[reduce->nodes.depth];
    return reduce->kernels->zero(reduce->ctx, DTYPE_F32, reduce->elements,
                                 *gradient);
}

enum err reduce_slot_done(struct reduce *reduce)
{
    assert(reduce->lent);
    enum err rc = ERR_OK;
    struct tree *nodes = &reduce->nodes;
    reduce->lent = false;
    tree_push(nodes, 0, reduce->slot++);
    while (tree_settle(nodes, reduce->slots))
        TRY(reduce->kernels->accumulate(
            reduce->ctx, DTYPE_F32, reduce->elements,
            reduce->stack[nodes->depth], reduce->stack[nodes->depth - 1]));
out:
    return rc;
}

/* Elements of a rank's interval that are exchanged in a round. */
static int64_t round_elements(const struct reduce *reduce, int rank,
                              int64_t round)
{
    int64_t left = interval_elements(reduce->elements, rank, reduce->ranks) -
                   round * reduce->plan.span;
    left = left < 0 ? 0 : left;
    return left < reduce->plan.span ? left : reduce->plan.span;
}

static int64_t round_begin(const struct reduce *reduce, int rank, int64_t round)
{
    return shard_begin(reduce->elements, rank, reduce->ranks) +
           round * reduce->plan.span;
}

/* Where the piece of a round is received. */
static size_t receive_offset(const struct reduce *reduce,
                             const struct piece *piece, int64_t round)
{
    size_t place = (size_t)(round % 2) * (size_t)reduce->plan.received +
                   (size_t)piece->place;
    return place * (size_t)reduce->plan.span;
}

/* Start the exchange of all ranks' pieces `layer` with other nodes. */
static enum err start_layer(struct reduce *reduce, int64_t round, int layer,
                            struct comm_request **request)
{
    struct comm *comm = reduce->comm;
    size_t *send_bytes = comm_sizes(comm, 0);
    size_t *send_offsets = comm_sizes(comm, 1);
    size_t *recv_bytes = comm_sizes(comm, 2);
    size_t *recv_offsets = comm_sizes(comm, 3);
    size_t own =
        (size_t)round_elements(reduce, reduce->rank, round) * sizeof(float);
    bool sends = layer < reduce->nodes.depth;
    for (int r = 0; r < reduce->ranks; r++) {
        int piece = reduce->first_piece[r] + layer;
        bool receives = piece < reduce->first_piece[r + 1];
        bool far = comm_window_part(reduce->window, r) == NULL;
        size_t bytes = (size_t)round_elements(reduce, r, round) * sizeof(float);
        send_bytes[r] = sends && far ? bytes : 0;
        send_offsets[r] =
            send_bytes[r] > 0
                ? (size_t)round_begin(reduce, r, round) * sizeof(float)
                : 0;
        recv_bytes[r] = receives && far ? own : 0;
        recv_offsets[r] =
            recv_bytes[r] > 0
                ? receive_offset(reduce, &reduce->pieces[piece], round) *
                      sizeof(float)
                : 0;
    }
    return comm_start_all_to_all(comm, sends ? reduce->stack[layer] : NULL,
                                 send_bytes, send_offsets, reduce->receive,
                                 recv_bytes, recv_offsets, request);
}

static struct comm_request **round_requests(const struct reduce *reduce,
                                            int64_t round)
{
    return reduce->requests + (size_t)(round % 2) * (size_t)reduce->plan.layers;
}

static enum err start_round(struct reduce *reduce, int64_t round)
{
    enum err rc = ERR_OK;
    struct comm_request **requests = round_requests(reduce, round);
    for (int i = 0; i < reduce->plan.layers; i++)
        TRY(start_layer(reduce, round, i, &requests[i]));
out:
    return rc;
}

/* `at`: from the begin of the round. */
static const float *piece_values(const struct reduce *reduce,
                                 const struct piece *piece, int64_t round,
                                 int64_t at)
{
    if (piece->place >= 0)
        return reduce->receive + receive_offset(reduce, piece, round) + at;
    const float *stack = comm_window_part(reduce->window, piece->rank);
    return stack + piece->number * reduce->elements +
           round_begin(reduce, reduce->rank, round) + at;
}

/* Finish the tree for the next block of what is left. The sum ends in the first
 * buffer of the stack, whose part of this interval nobody else reads; it is
 * written last, when its own piece has been used. */
static enum err add_block(struct reduce *reduce, int64_t round, int64_t at,
                          int64_t left_elements)
{
    enum err rc = ERR_OK;
    struct tree nodes = { 0 };
    int64_t count =
        left_elements < BLOCK_ELEMENTS ? left_elements : BLOCK_ELEMENTS;
    const float *values[TREE_DEPTH_MAX] = { NULL };
    float *own =
        reduce->stack[0] + round_begin(reduce, reduce->rank, round) + at;
    for (int i = 0; i < reduce->plan.pieces; i++) {
        const struct piece *piece = &reduce->pieces[i];
        values[nodes.depth] = piece_values(reduce, piece, round, at);
        tree_push(&nodes, piece->node.level, piece->node.index);
        while (tree_settle(&nodes, reduce->slots)) {
            int left = nodes.depth - 1;
            assert(left < reduce->plan.sums);
            bool all = left == 0 && i + 1 == reduce->plan.pieces;
            float *out = all ? own : reduce->sums + left * BLOCK_ELEMENTS;
            TRY(reduce->kernels->add(reduce->ctx, DTYPE_F32, count,
                                     values[left], 1.0f, values[left + 1],
                                     out));
            values[left] = out;
        }
    }
    assert(nodes.depth == 1 && values[0] == own);
out:
    return rc;
}

/* All pieces of the round are here. */
static enum err finish_round(struct reduce *reduce, int64_t round)
{
    enum err rc = ERR_OK;
    struct comm_request **requests = round_requests(reduce, round);
    int64_t count = round_elements(reduce, reduce->rank, round);
    for (int i = 0; i < reduce->plan.layers; i++)
        TRY(comm_wait(requests[i], 0.0));
    for (int64_t at = 0; at < count; at += BLOCK_ELEMENTS)
        TRY(add_block(reduce, round, at, count - at));
out:
    return rc;
}

/* Until nobody reads another's stack. Of its own node a rank waits first: ranks
 * of others may still wait for messages of the one that is missing here, and
 * would be named with it. */
static enum err leave_stacks(struct reduce *reduce)
{
    enum err rc = ERR_OK;
    struct comm_request *node, *all;
    TRY(comm_window_start_meet(reduce->window, &node));
    TRY(comm_start_barrier(reduce->comm, &all));
    TRY(comm_wait(node, 0.0));
    TRY(comm_wait(all, 0.0));
out:
    return rc;
}

enum err reduce_finish(struct reduce *reduce, float **own)
{
    enum err rc = ERR_OK;
    int64_t rounds = reduce->plan.rounds;
    assert(!reduce->lent);
    assert(reduce->slot ==
           shard_slot_begin(reduce->rank + 1, reduce->ranks, reduce->slots));
    *own = reduce->stack[0] +
           shard_begin(reduce->elements, reduce->rank, reduce->ranks);
    if (rounds == 0)
        return ERR_OK;
    TRY(start_round(reduce, 0));
    TRY(comm_barrier(reduce->comm)); /* all stacks are complete */
    for (int64_t round = 0; round < rounds; round++) {
        if (round + 1 < rounds)
            TRY(start_round(reduce, round + 1));
        TRY(finish_round(reduce, round));
    }
    TRY(leave_stacks(reduce));
out:
    return rc;
}
