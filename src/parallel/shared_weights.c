/* Brings every rank's updated intervals of the weights to all ranks, where the
 * ranks of a node share one copy in memory.
 *
 * Within a node a barrier is all that is needed. From other nodes each interval
 * comes once per node, to one rank of it: the ranks are dealt out. Block follows
 * block. */
#include "src/parallel/shared_weights.h"

#include <assert.h>
#include <stdlib.h>

#include "src/comm/comm_window.h"
#include "src/base/new.h"
#include "src/parallel/shard.h"

#define IN_FLIGHT 4 /* blocks */

struct shared_weights {
    struct comm *comm;
    int64_t elements;
    const struct owner *owner; /* NULL: even intervals of one block */
    struct comm_window *window;
    size_t item; /* bytes of an element */
    void *data;
    int *receivers; /* [size]: of each rank's node, who takes my interval */
    bool *taken;    /* [size]: whose interval comes to me */
    bool far;       /* there are several nodes */
};

/* The rank of `node` that takes the interval of `from`. */
static int receiver(const struct comm_window *window, int size, int node,
                    int from)
{
    int members = 0;
    for (int r = 0; r < size; r++)
        members += comm_window_node(window, r) == node;
    assert(members > 0);
    int skip = from % members;
    int r = node;
    while (skip > 0 || comm_window_node(window, r) != node)
        skip -= comm_window_node(window, r++) == node;
    return r;
}

static void deal(struct shared_weights *weights)
{
    const struct comm_window *window = weights->window;
    int size = comm_size(weights->comm);
    int me = comm_rank(weights->comm);
    int here = comm_window_node(window, me);
    for (int r = 0; r < size; r++) {
        int there = comm_window_node(window, r);
        bool far = there != here;
        weights->far |= far;
        weights->receivers[r] = far ? receiver(window, size, there, me) : -1;
        weights->taken[r] = far && receiver(window, size, here, r) == me;
    }
}

enum err shared_weights_create(struct comm *comm, int64_t elements,
                               const struct owner *owner, enum dtype dtype,
                               struct shared_weights **out)
{
    enum err rc = ERR_OK;
    size_t size = (size_t)comm_size(comm);
    struct shared_weights *weights = NULL;
    *out = NULL;
    rc = new_zeroed(&weights, 1);
    if (rc == ERR_OK)
        rc = new_zeroed(&weights->receivers, size);
    if (rc == ERR_OK)
        rc = new_zeroed(&weights->taken, size);
    TRY_OUT(comm_agree(comm, rc));
    weights->comm = comm;
    weights->elements = elements;
    weights->owner = owner;
    weights->item = dtype_bytes(dtype);
    TRY_OUT(comm_window_create(comm, COMM_WINDOW_NODE,
                               (size_t)elements * weights->item,
                               &weights->window));
    weights->data = comm_window_part(weights->window, comm_rank(comm));
    deal(weights);
out:
    return new_or_none(rc, weights, out, shared_weights_destroy);
}

void shared_weights_destroy(struct shared_weights *weights)
{
    if (weights == NULL)
        return;
    comm_window_destroy(weights->window);
    free(weights->receivers);
    free(weights->taken);
    free(weights);
}

void *shared_weights_data(const struct shared_weights *weights)
{
    return weights->data;
}

/* Bytes of a rank's interval of a block, from *offset on. */
static size_t interval(const struct shared_weights *weights, int block,
                       int rank, size_t *offset)
{
    const struct owner *owner = weights->owner;
    int size = comm_size(weights->comm);
    int place = owner != NULL ? owner_place(owner, block, rank) : rank;
    int64_t at[2];
    for (int i = 0; i < 2; i++)
        at[i] = owner != NULL ? owner_begin(owner, block, place + i)
                              : shard_begin(weights->elements, place + i, size);
    *offset = (size_t)at[0] * weights->item;
    return (size_t)(at[1] - at[0]) * weights->item;
}

static enum err start_block(struct shared_weights *weights, int block,
                            struct comm_request **request)
{
    struct comm *comm = weights->comm;
    int size = comm_size(comm);
    size_t *send_bytes = comm_sizes(comm, 0);
    size_t *send_offsets = comm_sizes(comm, 1);
    size_t *recv_bytes = comm_sizes(comm, 2);
    size_t *recv_offsets = comm_sizes(comm, 3);
    size_t begin, own = interval(weights, block, comm_rank(comm), &begin);
    for (int r = 0; r < size; r++) {
        send_bytes[r] = weights->receivers[r] == r ? own : 0;
        send_offsets[r] = begin;
        recv_bytes[r] = recv_offsets[r] = 0;
        if (weights->taken[r])
            recv_bytes[r] = interval(weights, block, r, &recv_offsets[r]);
    }
    return comm_start_all_to_all(comm, weights->data, send_bytes, send_offsets,
                                 weights->data, recv_bytes, recv_offsets,
                                 request);
}

/* The first barrier names a rank that never came, on all ranks: those that wait
 * for an interval that another rank of their node is to receive would otherwise
 * blame that one. */
enum err shared_weights_exchange(struct shared_weights *weights)
{
    struct comm_request *messages[IN_FLIGHT];
    int count = weights->owner != NULL ? weights->owner->block_count : 1;
    for (int b = 0; b < count && b < IN_FLIGHT && weights->far; b++)
        TRY(start_block(weights, b, &messages[b]));
    TRY(comm_barrier(weights->comm));
    if (!weights->far)
        return ERR_OK;
    for (int b = 0; b < count; b++) {
        TRY(comm_wait(messages[b % IN_FLIGHT], 0.0));
        if (b + IN_FLIGHT < count)
            TRY(start_block(weights, b + IN_FLIGHT, &messages[b % IN_FLIGHT]));
    }
    return comm_barrier(weights->comm);
}
