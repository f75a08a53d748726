/* The last part of the reduction: each owner gets, for its interval, the
 * subtrees that all ranks are left with, and adds them up in slot order. Under
 * ddp the total then goes to every rank.
 *
 * It is a reduce-scatter whose order of additions is ours, that of the tree. Of ranks
 * on the same node nothing travels, as their stacks are memory that this rank can
 * read; of others the partials come in rounds, of which one is received while the one
 * before is added. Between nodes of as many ranks each they are added first, on the
 * rank with the owner's place; else they travel as they are. Sums are written over the subtrees, which nobody else reads in
 * the owner's interval.
 *
 * Several pieces follow each other, as blocks do in scatter_levels.c: when one is done
 * here, the one before it, which by then is done by all of the node, goes to other
 * nodes, and the one before that is added up. All ranks so start the same operations in
 * the same order, wherever the others are in their backward. */
#include <assert.h>
#include <string.h>

#include "src/parallel/adds.h"
#include "src/parallel/reduce_impl.h"
#include "src/parallel/shard.h"

/* A thread adds so many elements at once of a total that is stored several
 * times, so that they are still in a cache. */
#define SPREAD_ELEMENTS ((int64_t)4096)

/* A part of a piece that is exchanged at once. */
struct round {
    int piece;
    int64_t number;
};

static int64_t rounds_of(const struct reduce *reduce, int piece)
{
    int64_t span = reduce->plan.span;
    return reduce->pieces == 1
               ? reduce->plan.rounds
               : (owner_longest(reduce->owner, piece) + span - 1) / span;
}

/* Elements of a rank's interval that are exchanged in a round. */
static int64_t round_elements(const struct reduce *reduce, int rank,
                              struct round round)
{
    int64_t left = reduce_interval(reduce, round.piece, rank) -
                   round.number * reduce->plan.span;
    left = left < 0 ? 0 : left;
    return left < reduce->plan.span ? left : reduce->plan.span;
}

static int64_t round_begin(const struct reduce *reduce, int rank,
                           struct round round)
{
    return reduce_interval_begin(reduce, round.piece, rank) +
           round.number * reduce->plan.span;
}

/* Where the partial of a round is received. */
static size_t receive_offset(const struct reduce *reduce,
                             const struct partial *partial, struct round round)
{
    size_t place = (size_t)(round.number % 2) * (size_t)reduce->plan.received +
                   (size_t)partial->place;
    return place * (size_t)reduce->plan.span;
}

/* Start the exchange of all ranks' partials `layer` with other nodes. */
static enum err start_layer(struct reduce *reduce, struct round round,
                            int layer, struct comm_tensors_request **request)
{
    struct comm *comm = comm_tensors_comm(reduce->tensors);
    size_t *send_bytes = comm_sizes(comm, 0);
    size_t *send_offsets = comm_sizes(comm, 1);
    size_t *recv_bytes = comm_sizes(comm, 2);
    size_t *recv_offsets = comm_sizes(comm, 3);
    size_t own =
        (size_t)round_elements(reduce, reduce->rank, round) * sizeof(float);
    bool sends = layer < reduce->left;
    for (int r = 0; r < reduce->ranks; r++) {
        int partial = reduce->first_partial[r] + layer;
        send_bytes[r] = send_offsets[r] = recv_bytes[r] = recv_offsets[r] = 0;
        if (!reduce_far(reduce, r))
            continue;
        size_t bytes = (size_t)round_elements(reduce, r, round) * sizeof(float);
        if (sends && bytes > 0) {
            send_bytes[r] = bytes;
            send_offsets[r] =
                (size_t)round_begin(reduce, r, round) * sizeof(float);
        }
        if (partial < reduce->first_partial[r + 1] && own > 0) {
            recv_bytes[r] = own;
            recv_offsets[r] =
                receive_offset(reduce, &reduce->partials[partial], round) *
                sizeof(float);
        }
    }
    return comm_tensors_start_all_to_all(
        reduce->tensors, sends ? reduce->left_stack[layer] : NULL, send_bytes,
        send_offsets, reduce->receive, recv_bytes, recv_offsets, request);
}

static struct comm_tensors_request **round_requests(const struct reduce *reduce,
                                                    struct round round)
{
    return reduce->requests +
           (size_t)(round.number % 2) * (size_t)reduce->plan.layers;
}

static enum err start_round(struct reduce *reduce, struct round round)
{
    struct comm_tensors_request **requests = round_requests(reduce, round);
    for (int i = 0; i < reduce->plan.layers; i++)
        TRY(start_layer(reduce, round, i, &requests[i]));
    return ERR_OK;
}

/* The values of a partial; `at` counts from the begin of the round. */
static float *partial_values(const struct reduce *reduce,
                             const struct partial *partial, struct round round,
                             int64_t at)
{
    if (partial->place >= 0)
        return reduce->receive + receive_offset(reduce, partial, round) + at;
    float *stack = reduce_stack(reduce, partial->rank);
    return stack + partial->number * reduce->elements +
           round_begin(reduce, reduce->rank, round) + at;
}

/* The total goes to all of the node. */
static bool spreads(const struct reduce *reduce)
{
    return reduce->everywhere && reduce->window != NULL;
}

/* Copies the interval's sum to the same place in the memory of the node's other
 * ranks. What they had there only this rank reads, and has read. */
static void spread(const struct reduce *reduce, const float *own, int64_t count)
{
    int first = reduce->rank; /* of the node, whose ranks are neighbours */
    while (first > 0 && reduce_stack(reduce, first - 1) != NULL)
        first--;
    for (int r = first; r < reduce->ranks; r++) {
        float *stack = reduce_stack(reduce, r);
        if (stack == NULL)
            break;
        if (r != reduce->rank)
            memcpy(stack + (own - reduce->stack[0]), own,
                   (size_t)count * sizeof *own);
    }
}

/* Finish the tree for the next block. Partials, which only this rank reads in
 * its interval, may be overwritten by sums; the last sum goes to the first
 * buffer of the own stack. */
static enum err add_block(struct reduce *reduce, struct round round, int64_t at,
                          int64_t count)
{
    struct tree nodes = { 0 };
    struct adds adds = { .kernels = reduce->kernels,
                         .ctx = reduce->ctx,
                         .n = count };
    float *own =
        reduce->stack[0] + round_begin(reduce, reduce->rank, round) + at;
    for (int i = 0; i < reduce->plan.partials; i++) {
        const struct partial *partial = &reduce->partials[i];
        adds_put(&adds, nodes.depth, partial_values(reduce, partial, round, at),
                 NULL);
        tree_push(&nodes, partial->node.level, partial->node.index);
        while (tree_settle(&nodes, reduce->slots))
            TRY(adds_join(&adds, nodes.depth - 1));
    }
    assert(nodes.depth == 1);
    TRY(adds_write(&adds, 0, own));
    if (spreads(reduce))
        spread(reduce, own, count);
    return ERR_OK;
}

/* All partials of the round are here. */
static enum err finish_round(struct reduce *reduce, struct round round)
{
    struct comm_tensors_request **requests = round_requests(reduce, round);
    int64_t count = round_elements(reduce, reduce->rank, round);
    int64_t most = spreads(reduce) ? SPREAD_ELEMENTS * reduce->ctx->threads
                                   : reduce->plan.span;
    for (int i = 0; i < reduce->plan.layers; i++)
        TRY(comm_tensors_wait(requests[i], 0.0));
    for (int64_t at = 0; at < count; at += most)
        TRY(add_block(reduce, round, at,
                      count - at < most ? count - at : most));
    return ERR_OK;
}

/* The node's partials of one rank's interval become as few as they can be, each in the
 * place of its first: nobody else of the node reads or writes them there. */
static enum err add_node(struct reduce *reduce, int piece, int rank)
{
    struct tree nodes = { 0 };
    struct adds adds = { .kernels = reduce->kernels,
                         .ctx = reduce->ctx,
                         .n = reduce_interval(reduce, piece, rank) };
    int first = reduce->rank - reduce->rank % reduce->row;
    int64_t begin = reduce_interval_begin(reduce, piece, rank);
    for (int i = reduce->first_partial[first];
         i < reduce->first_partial[first + reduce->row]; i++) {
        const struct partial *p = &reduce->partials[i];
        float *stack =
            reduce_stack(reduce, p->rank) + p->number * reduce->elements;
        reduce->left_stack[nodes.depth] = stack;
        adds_put(&adds, nodes.depth, stack + begin, NULL);
        tree_push(&nodes, p->node.level, p->node.index);
        while (tree_settle(&nodes, reduce->slots))
            TRY(adds_join(&adds, nodes.depth - 1));
    }
    reduce->left = nodes.depth;
    for (int i = 0; i < nodes.depth && adds.n > 0; i++)
        TRY(adds_write(&adds, i, adds.sums[i].place));
    return ERR_OK;
}

/* Sends to other nodes the rank's own partials of a piece, or what its node has of the
 * intervals of ranks with its place, whose stacks are complete in the piece. */
static enum err send_piece(struct reduce *reduce, int piece)
{
    const int *first = &reduce->first_partial[reduce->rank];
    reduce->left = first[1] - first[0];
    for (int i = 0; i < reduce->left; i++)
        reduce->left_stack[i] = reduce->stack[i];
    for (int r = 0; r < reduce->ranks && reduce->row > 1; r++)
        if (reduce_far(reduce, r))
            TRY(add_node(reduce, piece, r));
    return start_round(reduce, (struct round){ piece, 0 });
}

/* Adds up the rank's interval of a piece whose first round is on its way. */
static enum err add_piece(struct reduce *reduce, int piece)
{
    int64_t rounds = rounds_of(reduce, piece);
    for (int64_t i = 0; i < rounds; i++) {
        if (i + 1 < rounds)
            TRY(start_round(reduce, (struct round){ piece, i + 1 }));
        TRY(finish_round(reduce, (struct round){ piece, i }));
    }
    return ERR_OK;
}

/* Waits until nobody reads or writes another's stack. A rank waits for those of
 * its own node first: ranks of others may still wait for messages of the one
 * that is missing here, and would be named with it. */
static enum err leave_stacks(struct reduce *reduce)
{
    struct comm_request *node, *all;
    bool far = reduce->plan.received > 0;
    if (reduce->alone)
        return ERR_OK;
    TRY(comm_window_start_meet(reduce->window, &node));
    if (far)
        TRY(comm_start_barrier(reduce->comm, &all));
    TRY(comm_wait(node, 0.0));
    if (far)
        TRY(comm_wait(all, 0.0));
    return ERR_OK;
}

/* The total of a piece goes to all nodes. */
static bool goes_back(const struct reduce *reduce)
{
    return reduce->everywhere && reduce->plan.received > 0;
}

/* Starts to exchange intervals of the total with other nodes. */
static enum err start_return(struct reduce *reduce, int piece)
{
    struct comm *comm = comm_tensors_comm(reduce->tensors);
    size_t *send_bytes = comm_sizes(comm, 0);
    size_t *send_offsets = comm_sizes(comm, 1);
    size_t *recv_bytes = comm_sizes(comm, 2);
    size_t *recv_offsets = comm_sizes(comm, 3);
    int64_t own = reduce_interval(reduce, piece, reduce->rank);
    int64_t begin = reduce_interval_begin(reduce, piece, reduce->rank);
    for (int r = 0; r < reduce->ranks; r++) {
        send_bytes[r] = send_offsets[r] = recv_bytes[r] = recv_offsets[r] = 0;
        if (!reduce_far(reduce, r))
            continue;
        send_bytes[r] = (size_t)own * sizeof(float);
        send_offsets[r] = (size_t)begin * sizeof(float);
        recv_bytes[r] =
            (size_t)reduce_interval(reduce, piece, r) * sizeof(float);
        recv_offsets[r] =
            (size_t)reduce_interval_begin(reduce, piece, r) * sizeof(float);
    }
    return comm_tensors_start_all_to_all(
        reduce->tensors, reduce->stack[0], send_bytes, send_offsets,
        reduce->stack[0], recv_bytes, recv_offsets, &reduce->coming_back);
}

/* Stores what has come in the memory of the node's other ranks, where each has come to
 * one. They may read it when all leave the stacks. */
static enum err end_return(struct reduce *reduce, int piece)
{
    TRY(comm_tensors_wait(reduce->coming_back, 0.0));
    for (int r = 0; r < reduce->ranks && reduce->row > 1; r++)
        if (reduce_far(reduce, r))
            spread(reduce,
                   reduce->stack[0] + reduce_interval_begin(reduce, piece, r),
                   reduce_interval(reduce, piece, r));
    return ERR_OK;
}

/* --- several pieces --- */

static int taken(int *place)
{
    int piece = *place;
    *place = NO_PIECE;
    return piece;
}

/* What is on its way goes one further, and the piece `begins`. */
static enum err move_on(struct reduce *reduce, int begins)
{
    int piece = taken(&reduce->back);
    if (piece != NO_PIECE)
        TRY(end_return(reduce, piece));
    piece = taken(&reduce->travels);
    if (piece != NO_PIECE) {
        TRY(add_piece(reduce, piece));
        if (goes_back(reduce)) {
            TRY(start_return(reduce, piece));
            reduce->back = piece;
        }
    }
    piece = reduce->alone ? begins : taken(&reduce->meets);
    if (piece != NO_PIECE && !reduce->alone)
        TRY(comm_wait(reduce->meeting, 0.0));
    if (begins != NO_PIECE && !reduce->alone) {
        TRY(comm_window_start_meet(reduce->window, &reduce->meeting));
        reduce->meets = begins;
    }
    if (piece != NO_PIECE) {
        TRY(send_piece(reduce, piece));
        reduce->travels = piece;
    }
    return ERR_OK;
}

/* Pieces that are complete, and all behind them. */
static enum err begin_pieces(struct reduce *reduce)
{
    struct tree nodes;
    for (; reduce->next >= 0; reduce->next--) {
        const struct owner_block *b = &reduce->owner->blocks[reduce->next];
        if (b->elements == 0) /* nothing of it trains */
            continue;
        if (reduce->missing[reduce->next] > 0)
            break;
        TRY(reduce_combine(reduce, b->offset, b->elements, &nodes));
        TRY(move_on(reduce, reduce->next));
    }
    return ERR_OK;
}

enum err reduce_piece_done(struct reduce *reduce, int piece)
{
    assert(reduce->lent);
    assert(reduce->slot + 1 ==
           shard_slot_begin(reduce->rank + 1, reduce->ranks, reduce->slots));
    if (reduce->pieces == 1)
        return ERR_OK;
    assert(reduce->missing[piece] > 0);
    return --reduce->missing[piece] > 0 ? ERR_OK : begin_pieces(reduce);
}

enum err reduce_end_pieces(struct reduce *reduce)
{
    memset(reduce->missing, 0,
           (size_t)reduce->pieces * sizeof *reduce->missing);
    TRY(begin_pieces(reduce));
    while (reduce->meets != NO_PIECE || reduce->travels != NO_PIECE ||
           reduce->back != NO_PIECE)
        TRY(move_on(reduce, NO_PIECE));
    return leave_stacks(reduce);
}

void reduce_test(const struct reduce *reduce)
{
    struct comm_tensors_request **requests =
        round_requests(reduce, (struct round){ 0 });
    if (reduce->meets != NO_PIECE)
        comm_test(reduce->meeting);
    if (reduce->back != NO_PIECE)
        comm_tensors_test(reduce->coming_back);
    for (int i = 0; i < reduce->plan.layers && reduce->travels != NO_PIECE; i++)
        comm_tensors_test(requests[i]);
}

/* --- one piece --- */

static enum err exchange_whole(struct reduce *reduce)
{
    if (reduce->row > 1)
        TRY(comm_barrier(reduce->comm));
    TRY(send_piece(reduce, 0));
    if (reduce->window != NULL && reduce->row == 1)
        TRY(comm_barrier(reduce->comm)); /* all stacks are complete */
    TRY(add_piece(reduce, 0));
    if (goes_back(reduce)) {
        TRY(start_return(reduce, 0));
        TRY(end_return(reduce, 0));
    }
    return leave_stacks(reduce);
}

enum err reduce_finish(struct reduce *reduce, float **total)
{
    *total = reduce->stack[0];
    assert(!reduce->lent && reduce->meets == NO_PIECE);
    assert(reduce->slot ==
           shard_slot_begin(reduce->rank + 1, reduce->ranks, reduce->slots));
    return reduce->pieces == 1 && reduce->ranks > 1 ? exchange_whole(reduce)
                                                    : ERR_OK;
}
