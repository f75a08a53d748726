/* One rank, no MPI. Collectives have no transfers here; messages to oneself are
 * matched by tag, oldest first, when their second half is started.
 *
 * A half that finds no counterpart is left in its request with a number that
 * rises, which is all that a queue would have to know: the pool is searched for
 * the lowest number with the same tag and the other direction. When both are
 * there the bytes are copied, and both requests are done. */
#include "src/comm/comm_impl.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/new.h"

/* A started half of a message; 0 in `order` when not in use. */
struct self_handle {
    uint64_t order;
};

struct self_state {
    uint64_t order;
};

static struct self_handle *handle_of(const struct comm_request *request)
{
    return request->handles;
}

/* The oldest started half that fits this one. */
static struct comm_request *find_counterpart(struct comm_request *request)
{
    const struct comm_transfer *mine = &request->transfers[0];
    struct comm_request *best = NULL;
    for (int i = 0; i < COMM_POINT_REQUESTS; i++) {
        struct comm_request *other = &request->comm->requests[i];
        const struct comm_transfer *transfer = &other->transfers[0];
        if (other == request || !other->busy || handle_of(other)->order == 0 ||
            transfer->tag != mine->tag || transfer->receive == mine->receive)
            continue;
        if (best == NULL || handle_of(other)->order < handle_of(best)->order)
            best = other;
    }
    return best;
}

static enum err self_start(struct comm_request *request, int index)
{
    assert(index == 0 && !request->collective);
    struct self_state *state = request->comm->state;
    struct comm_transfer *mine = &request->transfers[0];
    struct comm_request *other = find_counterpart(request);
    if (other == NULL) {
        handle_of(request)->order = ++state->order;
        return ERR_OK;
    }
    struct comm_transfer *theirs = &other->transfers[0];
    struct comm_transfer *from = mine->receive ? theirs : mine;
    struct comm_transfer *to = mine->receive ? mine : theirs;
    handle_of(other)->order = 0;
    if (from->bytes != to->bytes)
        return err_set(ERR_COMM,
                       "message to itself, tag %d: %zu bytes sent where %zu "
                       "were expected",
                       mine->tag, from->bytes, to->bytes);
    if (from->bytes > 0)
        memcpy(to->data, from->data, from->bytes);
    mine->done = theirs->done = mine->bytes;
    mine->complete = theirs->complete = true;
    request->pending = other->pending = 0;
    return ERR_OK;
}

static enum err self_poll(struct comm_request *request)
{
    (void)request;
    return ERR_OK;
}

static void self_cancel(struct comm_request *request)
{
    handle_of(request)->order = 0;
}

static enum err state_create(struct comm *comm)
{
    comm->state = calloc(1, sizeof(struct self_state));
    return comm->state != NULL
               ? ERR_OK
               : err_set(ERR_MEMORY, "communicator: out of memory");
}

static enum err self_duplicate(struct comm *comm, struct comm *copy)
{
    (void)comm;
    return state_create(copy);
}

static void self_close(struct comm *comm)
{
    free(comm->state);
}

static void self_abort(struct comm *comm, int exit_code)
{
    (void)comm;
    _Exit(exit_code);
}

static const struct comm_transport self_transport = {
    .kind = "self",
    .handle_bytes = sizeof(struct self_handle),
    .start = self_start,
    .poll = self_poll,
    .cancel = self_cancel,
    .duplicate = self_duplicate,
    .close = self_close,
    .abort = self_abort,
};

enum err comm_self_open(struct comm *comm)
{
    comm->transport = &self_transport;
    comm->rank = 0;
    comm->size = 1;
    comm->local_rank = 0;
    comm->local_size = 1;
    TRY(state_create(comm));
    TRY(new_zeroed(&comm->hosts, 1));
    if (gethostname(comm->hosts[0], COMM_HOST_BYTES - 1) != 0)
        snprintf(comm->hosts[0], COMM_HOST_BYTES, "localhost");
    return ERR_OK;
}
