/* Measures the offset of nodes' clocks by messages to another node and back (Cristian
 * 1989).
 *
 * Who is asked answers with its time. The asker knows only that the answer was given
 * between its sending and its receiving, so it takes the middle, and errs by
 * half of the round trip at most, whatever the two ways took. Of some rounds
 * the shortest is the best: others have waited somewhere. Ranks of one node
 * have the same CLOCK_MONOTONIC, so the lowest of them asks.
 *
 * Nodes are a tree: number i asks the one whose number is i without its lowest bit, so
 * none has more than log2 of their number to answer, and the offset to rank 0 is the sum
 * along the way there, of as many terms at most. */
#include "src/comm/comm.h"

#include <stdlib.h>

#include "src/base/new.h"
#include "src/base/timeline.h"
#include "src/comm/comm_impl.h"

#define ROUNDS 16
#define TAG 32000

/* Nodes by number, in the order of their lowest ranks. */
struct offset_nodes {
    int *lowest; /* rank of each node */
    int count;
    int own; /* this rank's node */
};

/* The caller frees out->lowest. */
static enum err find_nodes(const struct comm *comm, struct offset_nodes *out)
{
    TRY(new_zeroed(&out->lowest, (size_t)comm->size));
    for (int rank = 0; rank < comm->size; rank++) {
        if (comm->nodes[rank] != rank)
            continue;
        if (rank == comm->nodes[comm->rank])
            out->own = out->count;
        out->lowest[out->count++] = rank;
    }
    return ERR_OK;
}

static enum err send_one(struct comm *comm, int to, const int64_t *value)
{
    struct comm_request *request;
    TRY(comm_start_send(comm, value, sizeof *value, to, TAG, &request));
    return comm_wait(request, 0.0);
}

static enum err receive_one(struct comm *comm, int from, int64_t *value)
{
    struct comm_request *request;
    TRY(comm_start_recv(comm, value, sizeof *value, from, TAG, &request));
    return comm_wait(request, 0.0);
}

static enum err answer(struct comm *comm, int rank)
{
    int64_t now = 0;
    for (int i = 0; i < ROUNDS; i++) {
        TRY(receive_one(comm, rank, &now));
        now = timeline_now();
        TRY(send_one(comm, rank, &now));
    }
    return ERR_OK;
}

static enum err ask(struct comm *comm, int rank, int64_t found[2])
{
    found[1] = INT64_MAX;
    for (int i = 0; i < ROUNDS; i++) {
        int64_t theirs = 0;
        int64_t before = timeline_now();
        TRY(send_one(comm, rank, &before));
        TRY(receive_one(comm, rank, &theirs));
        int64_t half = (timeline_now() - before) / 2;
        if (half >= found[1])
            continue;
        found[0] = theirs - (before + half);
        found[1] = half;
    }
    return ERR_OK;
}

/* Asks the node above, then answers those below, the one with the most of its own
 * first. */
static enum err meet(struct comm *comm, const struct offset_nodes *nodes,
                     int64_t found[2])
{
    int own = nodes->own, step = own & -own;
    if (own > 0)
        TRY(ask(comm, nodes->lowest[own - step], found));
    else
        for (step = 1; step < nodes->count;)
            step *= 2;
    while ((step /= 2) > 0)
        if (own + step < nodes->count)
            TRY(answer(comm, nodes->lowest[own + step]));
    return ERR_OK;
}

enum err comm_offset(struct comm *comm, int64_t *offset_ns, int64_t *error_ns)
{
    enum err rc = ERR_OK;
    int rank = comm_rank(comm), size = comm_size(comm);
    struct offset_nodes nodes = { 0 };
    int64_t(*found)[2] = NULL;
    *offset_ns = *error_ns = 0;
    TRY_OUT(comm_agree(comm, new_zeroed(&found, (size_t)size)));
    TRY_OUT(comm_agree(comm, find_nodes(comm, &nodes)));
    if (nodes.lowest[nodes.own] == rank)
        TRY_OUT(meet(comm, &nodes, found[rank]));
    TRY_OUT(comm_gather_rows(comm, found, sizeof *found));
    for (int node = nodes.own; node > 0; node &= node - 1) {
        *offset_ns += found[nodes.lowest[node]][0];
        *error_ns += found[nodes.lowest[node]][1];
    }
out:
    free(nodes.lowest);
    free(found);
    return rc;
}
