/* Slots are leaves of one tree; ranks add what lies within their range, then
 * every owner finishes the tree for its interval from all ranks' pieces. */
#include "src/parallel/reduce.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/arena.h"
#include "src/parallel/shard.h"
#include "src/parallel/tree.h"

#define RECEIVE_BYTES_MAX ((int64_t)8 << 20)  /* of one piece */
#define RECEIVE_BYTES_ALL ((int64_t)64 << 20) /* aimed at for one round */
#define CHUNK_BYTES ((int64_t)KERNEL_CHUNK * (int64_t)sizeof(float))

/* A subtree that some rank is left with. */
struct piece {
    struct tree_node node;
    int rank;
    int number; /* among the rank's pieces: the depth of its buffer there */
};

/* What follows from elements, ranks and slots alone. */
struct shape {
    int buffers;  /* gradient buffers of this rank's stack */
    int pieces;   /* of all ranks */
    int layers;   /* the most pieces that any rank is left with */
    int64_t span; /* elements of an interval exchanged per round */
    int64_t rounds;
    size_t receive_bytes; /* two rounds */
};

struct reduce {
    struct comm *comm;
    const struct kernels *kernels;
    const struct kernel_ctx *ctx;
    int64_t elements;
    int rank, ranks, slots;
    struct shape plan;
    struct arena arena;
    float *stack[TREE_DEPTH_MAX]; /* [plan.buffers][elements] */
    struct tree nodes;
    int slot; /* next to be finished */
    bool lent;
    struct piece *pieces;           /* in slot order */
    int *first_piece;               /* [ranks + 1] */
    float *receive;                 /* [2][pieces][span] */
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
    memset(plan, 0, sizeof *plan);
    for (int r = 0; r < ranks; r++) {
        struct tree nodes;
        int deepest = range_nodes(r, ranks, slots, &nodes);
        int64_t own = interval_elements(elements, r, ranks);
        if ((r == rank || rank == REDUCE_ANY_RANK) && deepest > plan->buffers)
            plan->buffers = deepest;
        plan->pieces += nodes.depth;
        plan->layers = nodes.depth > plan->layers ? nodes.depth : plan->layers;
        longest = own > longest ? own : longest;
    }
    if (ranks == 1)
        return;
    int64_t bytes = RECEIVE_BYTES_ALL / plan->pieces;
    bytes = bytes > RECEIVE_BYTES_MAX ? RECEIVE_BYTES_MAX : bytes;
    bytes = bytes < CHUNK_BYTES ? CHUNK_BYTES : bytes;
    plan->span = bytes / CHUNK_BYTES * KERNEL_CHUNK;
    plan->span = plan->span > longest ? longest : plan->span;
    plan->rounds = (longest + plan->span - 1) / plan->span;
    plan->receive_bytes =
        2 * (size_t)plan->pieces * (size_t)plan->span * sizeof(float);
}

static void layout(struct reduce *reduce, struct arena *arena,
                   struct reduce_bytes *bytes)
{
    const struct shape *plan = &reduce->plan;
    size_t whole = (size_t)reduce->elements * sizeof(float);
    for (int i = 0; i < plan->buffers; i++) {
        reduce->stack[i] = arena_take(arena, whole);
        if (i == 0)
            bytes->gradients = arena->used;
    }
    bytes->partial_sums = arena->used - bytes->gradients;
    reduce->pieces =
        arena_take(arena, (size_t)plan->pieces * sizeof *reduce->pieces);
    reduce->first_piece = arena_take(arena, (size_t)(reduce->ranks + 1) *
                                                sizeof *reduce->first_piece);
    reduce->requests =
        arena_take(arena, 2 * (size_t)plan->layers * sizeof *reduce->requests);
    reduce->receive = arena_take(arena, plan->receive_bytes);
    bytes->total = arena->used;
    bytes->exchange = bytes->total - bytes->gradients - bytes->partial_sums;
}

void reduce_plan(int64_t elements, int rank, int ranks, int slots,
                 struct reduce_bytes *out)
{
    struct arena plan = { 0 };
    struct reduce reduce = { .elements = elements, .ranks = ranks };
    make_plan(elements, rank, ranks, slots, &reduce.plan);
    layout(&reduce, &plan, out);
}

static void list_pieces(struct reduce *reduce)
{
    int count = 0;
    for (int r = 0; r < reduce->ranks; r++) {
        struct tree nodes;
        range_nodes(r, reduce->ranks, reduce->slots, &nodes);
        reduce->first_piece[r] = count;
        for (int i = 0; i < nodes.depth; i++)
            reduce->pieces[count++] = (struct piece){ nodes.node[i], r, i };
    }
    reduce->first_piece[reduce->ranks] = count;
    assert(count == reduce->plan.pieces);
}

enum err reduce_create(struct comm *comm, const struct kernels *kernels,
                       const struct kernel_ctx *ctx, int64_t elements,
                       int slots, struct reduce **out)
{
    assert(elements > 0 && elements % KERNEL_CHUNK == 0);
    enum err rc = ERR_OK;
    struct arena plan = { 0 };
    struct reduce_bytes bytes;
    *out = NULL;
    if (comm_size(comm) > slots)
        return err_set(ERR_USAGE,
                       "%d ranks for %d slots; start at most %d ranks or train "
                       "with more slots",
                       comm_size(comm), slots, slots);
    struct reduce *reduce = calloc(1, sizeof *reduce);
    if (reduce == NULL)
        return err_set(ERR_MEMORY, "gradient reduction: out of memory");
    reduce->comm = comm;
    reduce->kernels = kernels;
    reduce->ctx = ctx;
    reduce->elements = elements;
    reduce->rank = comm_rank(comm);
    reduce->ranks = comm_size(comm);
    reduce->slots = slots;
    make_plan(elements, reduce->rank, reduce->ranks, slots, &reduce->plan);
    layout(reduce, &plan, &bytes);
    TRY(arena_create(plan.used, &reduce->arena));
    layout(reduce, &reduce->arena, &bytes);
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
static size_t receive_offset(const struct reduce *reduce, int piece,
                             int64_t round)
{
    size_t place =
        (size_t)(round % 2) * (size_t)reduce->plan.pieces + (size_t)piece;
    return place * (size_t)reduce->plan.span;
}

/* Start the exchange of every rank's piece `layer`. */
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
        bool other = r != reduce->rank;
        size_t bytes = (size_t)round_elements(reduce, r, round) * sizeof(float);
        send_bytes[r] = sends && other ? bytes : 0;
        send_offsets[r] =
            send_bytes[r] > 0
                ? (size_t)round_begin(reduce, r, round) * sizeof(float)
                : 0;
        recv_bytes[r] = receives && other ? own : 0;
        recv_offsets[r] =
            recv_bytes[r] > 0
                ? receive_offset(reduce, piece, round) * sizeof(float)
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

/* All pieces of the round are here: finish the tree. The sum ends in the first
 * buffer of the stack, whose part of this interval nobody else reads. */
static enum err finish_round(struct reduce *reduce, int64_t round)
{
    enum err rc = ERR_OK;
    struct comm_request **requests = round_requests(reduce, round);
    int64_t count = round_elements(reduce, reduce->rank, round);
    int64_t begin = round_begin(reduce, reduce->rank, round);
    struct tree nodes = { 0 };
    float *values[TREE_DEPTH_MAX];
    for (int i = 0; i < reduce->plan.layers; i++)
        TRY(comm_wait(requests[i], 0.0));
    if (count == 0)
        return ERR_OK;
    for (int i = 0; i < reduce->plan.pieces; i++) {
        const struct piece *piece = &reduce->pieces[i];
        values[nodes.depth] =
            piece->rank == reduce->rank
                ? reduce->stack[piece->number] + begin
                : reduce->receive + receive_offset(reduce, i, round);
        tree_push(&nodes, piece->node.level, piece->node.index);
        while (tree_settle(&nodes, reduce->slots))
            TRY(reduce->kernels->accumulate(reduce->ctx, DTYPE_F32, count,
                                            values[nodes.depth],
                                            values[nodes.depth - 1]));
    }
    assert(nodes.depth == 1);
    if (values[0] != reduce->stack[0] + begin)
        memcpy(reduce->stack[0] + begin, values[0],
               (size_t)count * sizeof(float));
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
    if (rounds > 0)
        TRY(start_round(reduce, 0));
    for (int64_t round = 0; round < rounds; round++) {
        if (round + 1 < rounds)
            TRY(start_round(reduce, round + 1));
        TRY(finish_round(reduce, round));
    }
out:
    return rc;
}

enum err reduce_slot_sums(struct comm *comm, int slots, double *values,
                          double *sum)
{
    enum err rc = ERR_OK;
    int ranks = comm_size(comm);
    size_t *bytes = comm_sizes(comm, 0);
    size_t *offsets = comm_sizes(comm, 1);
    for (int r = 0; r < ranks; r++) {
        int begin = shard_slot_begin(r, ranks, slots);
        int end = shard_slot_begin(r + 1, ranks, slots);
        offsets[r] = (size_t)begin * sizeof *values;
        bytes[r] = (size_t)(end - begin) * sizeof *values;
    }
    TRY(comm_all_gather(comm, values, bytes, offsets));
    *sum = tree_sum(values, slots);
out:
    return rc;
}

/* All-gather of the intervals, `item_bytes` for every `item_elements`. */
static enum err gather_intervals(struct comm *comm, int64_t elements,
                                 int64_t item_elements, size_t item_bytes,
                                 void *data)
{
    int ranks = comm_size(comm);
    size_t *bytes = comm_sizes(comm, 0);
    size_t *offsets = comm_sizes(comm, 1);
    for (int r = 0; r < ranks; r++) {
        int64_t begin = shard_begin(elements, r, ranks) / item_elements;
        int64_t end = shard_begin(elements, r + 1, ranks) / item_elements;
        offsets[r] = (size_t)begin * item_bytes;
        bytes[r] = (size_t)(end - begin) * item_bytes;
    }
    return comm_all_gather(comm, data, bytes, offsets);
}

enum err reduce_gather(struct comm *comm, int64_t elements, float *arena)
{
    return gather_intervals(comm, elements, 1, sizeof *arena, arena);
}

enum err reduce_chunk_sums(struct comm *comm, int64_t elements, double *values,
                           double *sum)
{
    enum err rc = ERR_OK;
    TRY(gather_intervals(comm, elements, KERNEL_CHUNK, sizeof *values, values));
    double total = 0.0;
    for (int64_t i = 0; i < elements / KERNEL_CHUNK; i++)
        total += values[i];
    *sum = total;
out:
    return rc;
}
