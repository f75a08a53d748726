/* Which ranks there are, and where: what a communicator tells without a message. */
#include <assert.h>

#include "src/comm/comm_impl.h"

int comm_rank(const struct comm *comm)
{
    return comm->rank;
}

int comm_size(const struct comm *comm)
{
    return comm->size;
}

double comm_timeout_s(const struct comm *comm)
{
    return comm->timeout_s;
}

int comm_local_rank(const struct comm *comm)
{
    return comm->local_rank;
}

int comm_local_size(const struct comm *comm)
{
    return comm->local_size;
}

const char *comm_host(const struct comm *comm, int rank)
{
    assert(rank >= 0 && rank < comm->size);
    return comm->hosts[rank];
}

bool comm_same_host(const struct comm *comm, int a, int b)
{
    assert(a >= 0 && a < comm->size && b >= 0 && b < comm->size);
    return comm->nodes[a] == comm->nodes[b];
}

size_t *comm_sizes(struct comm *comm, int which)
{
    assert(which >= 0 && which < COMM_SIZES);
    return comm->sizes + (size_t)which * (size_t)comm->size;
}
