/* The last part of the reduction: each owner gets, for its interval, the
 * subtrees that all ranks are left with, and adds them up in slot order. Under
 * ddp the total then goes to every rank.
 *
 * It is a reduce-scatter whose order of additions is ours, that of the tree. Of ranks
 * on the same node nothing travels, as their stacks are memory that this rank can
 * read; of others the partials come in rounds, of which one is received while the one
 * before is added. Between nodes of as many ranks each they are added first, on the
 * rank with the owner's place; else they travel as they are. Sums are written over the subtrees, which nobody else reads in
 * the owner's interval. */
#include <assert.h>
#include <string.h>

#include "src/parallel/adds.h"
#include "src/parallel/reduce_impl.h"
#include "src/parallel/shard.h"

/* A thread adds so many elements at once of a total that is stored several
 * times, so that they are still in a cache. */
#define SPREAD_ELEMENTS ((int64_t)4096)

/* Elements of a rank's interval that are exchanged in a round. */
static int64_t round_elements(const struct reduce *reduce, int rank,
                              int64_t round)
{
    int64_t left = reduce_interval(reduce, rank) - round * reduce->plan.span;
    left = left < 0 ? 0 : left;
    return left < reduce->plan.span ? left : reduce->plan.span;
}

static int64_t round_begin(const struct reduce *reduce, int rank, int64_t round)
{
    return reduce_interval_begin(reduce, rank) + round * reduce->plan.span;
}

/* Where the partial of a round is received. */
static size_t receive_offset(const struct reduce *reduce,
                             const struct partial *partial, int64_t round)
{
    size_t place = (size_t)(round % 2) * (size_t)reduce->plan.received +
                   (size_t)partial->place;
    return place * (size_t)reduce->plan.span;
}

/* Start the exchange of all ranks' partials `layer` with other nodes. */
static enum err start_layer(struct reduce *reduce, int64_t round, int layer,
                            struct comm_tensors_request **request)
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
        bool receives = partial < reduce->first_partial[r + 1];
        bool far = reduce_far(reduce, r);
        size_t bytes = (size_t)round_elements(reduce, r, round) * sizeof(float);
        send_bytes[r] = sends && far ? bytes : 0;
        send_offsets[r] =
            send_bytes[r] > 0
                ? (size_t)round_begin(reduce, r, round) * sizeof(float)
                : 0;
        recv_bytes[r] = receives && far ? own : 0;
        recv_offsets[r] =
            recv_bytes[r] > 0
                ? receive_offset(reduce, &reduce->partials[partial], round) *
                      sizeof(float)
                : 0;
    }
    return comm_tensors_start_all_to_all(
        reduce->tensors, sends ? reduce->left_stack[layer] : NULL, send_bytes,
        send_offsets, reduce->receive, recv_bytes, recv_offsets, request);
}

static struct comm_tensors_request **round_requests(const struct reduce *reduce,
                                                    int64_t round)
{
    return reduce->requests + (size_t)(round % 2) * (size_t)reduce->plan.layers;
}

static enum err start_round(struct reduce *reduce, int64_t round)
{
    struct comm_tensors_request **requests = round_requests(reduce, round);
    for (int i = 0; i < reduce->plan.layers; i++)
        TRY(start_layer(reduce, round, i, &requests[i]));
    return ERR_OK;
}

/* The values of a partial; `at` counts from the begin of the round. */
static float *partial_values(const struct reduce *reduce,
                             const struct partial *partial, int64_t round,
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
static enum err add_block(struct reduce *reduce, int64_t round, int64_t at,
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
static enum err finish_round(struct reduce *reduce, int64_t round)
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
static enum err add_node(struct reduce *reduce, int rank)
{
    struct tree nodes = { 0 };
    struct adds adds = { .kernels = reduce->kernels,
                         .ctx = reduce->ctx,
                         .n = reduce_interval(reduce, rank) };
    int first = reduce->rank - reduce->rank % reduce->row;
    int64_t begin = reduce_interval_begin(reduce, rank);
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

/* What is sent to other nodes: the rank's own partials, or what its node has of the
 * intervals of ranks with its place. */
static enum err add_nodes(struct reduce *reduce)
{
    reduce->left = reduce->nodes.depth;
    for (int i = 0; i < reduce->left; i++)
        reduce->left_stack[i] = reduce->stack[i];
    if (reduce->row == 1)
        return ERR_OK;
    TRY(comm_barrier(reduce->comm));
    for (int r = 0; r < reduce->ranks; r++)
        if (reduce_far(reduce, r))
            TRY(add_node(reduce, r));
    return ERR_OK;
}

/* Waits until nobody reads or writes another's stack. A rank waits for those of
 * its own node first: ranks of others may still wait for messages of the one
 * that is missing here, and would be named with it. */
static enum err leave_stacks(struct reduce *reduce)
{
    struct comm_request *node, *all;
    bool far = reduce->plan.received > 0;
    if (reduce->window == NULL)
        return ERR_OK;
    TRY(comm_window_start_meet(reduce->window, &node));
    if (far)
        TRY(comm_start_barrier(reduce->comm, &all));
    TRY(comm_wait(node, 0.0));
    if (far)
        TRY(comm_wait(all, 0.0));
    return ERR_OK;
}

static enum err finish(struct reduce *reduce)
{
    int64_t rounds = reduce->plan.rounds;
    assert(!reduce->lent);
    assert(reduce->slot ==
           shard_slot_begin(reduce->rank + 1, reduce->ranks, reduce->slots));
    if (rounds == 0)
        return ERR_OK;
    TRY(add_nodes(reduce));
    TRY(start_round(reduce, 0));
    if (reduce->window != NULL && reduce->row == 1)
        TRY(comm_barrier(reduce->comm)); /* all stacks are complete */
    for (int64_t round = 0; round < rounds; round++) {
        if (round + 1 < rounds)
            TRY(start_round(reduce, round + 1));
        TRY(finish_round(reduce, round));
    }
    return leave_stacks(reduce);
}

enum err reduce_finish(struct reduce *reduce, float **own)
{
    *own = reduce->stack[0] + reduce_interval_begin(reduce, reduce->rank);
    reduce->everywhere = false;
    return finish(reduce);
}

/* Stores what has come from other nodes in the memory of the node's other ranks. */
static enum err spread_far(struct reduce *reduce)
{
    struct comm_request *node;
    if (reduce->row == 1)
        return ERR_OK;
    for (int r = 0; r < reduce->ranks; r++)
        if (reduce_far(reduce, r))
            spread(reduce, reduce->stack[0] + reduce_interval_begin(reduce, r),
                   reduce_interval(reduce, r));
    TRY(comm_window_start_meet(reduce->window, &node));
    return comm_wait(node, 0.0);
}

/* Exchanges intervals of the total with other nodes. */
static enum err exchange_far(struct reduce *reduce)
{
    struct comm *comm = comm_tensors_comm(reduce->tensors);
    struct comm_tensors_request *request;
    size_t *send_bytes = comm_sizes(comm, 0);
    size_t *send_offsets = comm_sizes(comm, 1);
    size_t *recv_bytes = comm_sizes(comm, 2);
    size_t *recv_offsets = comm_sizes(comm, 3);
    int64_t own = reduce_interval(reduce, reduce->rank);
    for (int r = 0; r < reduce->ranks; r++) {
        bool far = reduce_far(reduce, r);
        int64_t other = reduce_interval(reduce, r);
        send_bytes[r] = far ? (size_t)own * sizeof(float) : 0;
        send_offsets[r] =
            (size_t)reduce_interval_begin(reduce, reduce->rank) * sizeof(float);
        recv_bytes[r] = far ? (size_t)other * sizeof(float) : 0;
        recv_offsets[r] =
            (size_t)reduce_interval_begin(reduce, r) * sizeof(float);
    }
    TRY(comm_tensors_start_all_to_all(
        reduce->tensors, reduce->stack[0], send_bytes, send_offsets,
        reduce->stack[0], recv_bytes, recv_offsets, &request));
    TRY(comm_tensors_wait(request, 0.0));
    return spread_far(reduce);
}

enum err reduce_finish_all(struct reduce *reduce, float **total)
{
    *total = reduce->stack[0];
    reduce->everywhere = true;
    TRY(finish(reduce));
    if (reduce->plan.received > 0)
        TRY(exchange_far(reduce));
    return ERR_OK;
}
