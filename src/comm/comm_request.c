/* The requests of a communicator: a fixed pool of sets of transfers, and the
 * rounds of an integer reduction.
 *
 * Nothing is allocated while training: requests and their transfers are made
 * with the communicator, as many as may be in flight. A request is point to
 * point, with one transfer, or a collective, with two for each rank.
 *
 * Two kinds of operations are not over when what is in flight has arrived: a
 * message of more than COMM_FRAGMENT_BYTES goes in fragments, and more integers than
 * COMM_FOLD_COUNT go in rounds. These are "staged": somebody has to start what
 * comes next, also while this rank waits for something else, because a peer may
 * wait for it. So every wait polls all staged requests of the communicator and
 * of its duplicates (comm_request_progress()), and counts of them keep that
 * cheap. */
#include "src/comm/comm_impl.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/new.h"

#define REQUESTS (COMM_POINT_REQUESTS + COMM_COLLECTIVE_REQUESTS)
#define NAMED_MAX 4

enum err comm_request_pool_create(struct comm *comm)
{
    size_t size = (size_t)comm->size;
    size_t each = 2 * size; /* of a collective: to and from everybody */
    size_t transfers = COMM_POINT_REQUESTS + COMM_COLLECTIVE_REQUESTS * each;
    size_t fold = size * COMM_FOLD_COUNT;
    size_t handle_bytes = comm->transport->handle_bytes;
    TRY(new_zeroed(&comm->requests, REQUESTS));
    TRY(new_zeroed(&comm->transfers, transfers));
    TRY(new_zeroed(&comm->handles, transfers * handle_bytes + 1));
    TRY(new_zeroed(&comm->fold_scratch, COMM_COLLECTIVE_REQUESTS * fold));
    TRY(new_zeroed(&comm->sizes, COMM_SIZES * size));
    size_t next = 0;
    for (size_t i = 0; i < REQUESTS; i++) {
        struct comm_request *request = &comm->requests[i];
        request->comm = comm;
        request->collective = i >= COMM_POINT_REQUESTS;
        request->transfer_max = request->collective ? (int)each : 1;
        request->transfers = comm->transfers + next;
        request->handles = comm->handles + next * handle_bytes;
        next += (size_t)request->transfer_max;
        if (request->collective)
            request->fold_scratch =
                comm->fold_scratch + (i - COMM_POINT_REQUESTS) * fold;
    }
    return ERR_OK;
}

void comm_request_pool_destroy(struct comm *comm)
{
    for (int i = 0; comm->requests != NULL && i < REQUESTS; i++)
        assert(comm->broken || !comm->requests[i].busy);
    free(comm->sizes);
    free(comm->fold_scratch);
    free(comm->handles);
    free(comm->transfers);
    free(comm->requests);
}

static void set_staged(struct comm_request *request, bool staged)
{
    if (request->staged != staged)
        request->comm->staged_count += staged ? 1 : -1;
    request->staged = staged;
}

enum err comm_request_take(struct comm *comm, bool collective, const char *what,
                           struct comm_request **out)
{
    *out = NULL;
    if (comm->broken)
        return err_set(ERR_COMM, "%s: %s", what, comm->failure);
    int first = collective ? COMM_POINT_REQUESTS : 0;
    int end = collective ? REQUESTS : COMM_POINT_REQUESTS;
    int i = first;
    while (i < end && comm->requests[i].busy)
        i++;
    if (i == end)
        return err_set(ERR_INTERNAL,
                       "%s: %d operations are in flight already; wait for some "
                       "before starting more",
                       what, end - first);
    struct comm_request *request = &comm->requests[i];
    request->what = what;
    request->busy = true;
    request->staged = false;
    request->done = false;
    request->rc = ERR_OK;
    request->transfer_count = 0;
    request->pending = 0;
    request->fold.active = false;
    if (collective) {
        request->tag = comm->sequence;
        comm->sequence = (comm->sequence + 1) % (COMM_TAG_MAX + 1);
    }
    *out = request;
    return ERR_OK;
}

void comm_request_fail(struct comm_request *request)
{
    comm_request_break(request->comm);
    request->comm->transport->cancel(request);
}

void comm_request_break(struct comm *comm)
{
    if (!comm->broken)
        snprintf(comm->failure, sizeof comm->failure, "%s", err_text());
    comm->broken = true;
}

void comm_request_release(struct comm_request *request)
{
    assert(request->busy);
    /* nobody would wait for what is still in flight */
    assert(request->pending == 0 || request->comm->broken);
    set_staged(request, false);
    request->busy = false;
}

size_t comm_request_fragment_bytes(const struct comm_transfer *transfer)
{
    size_t left = transfer->bytes - transfer->done;
    return left < COMM_FRAGMENT_BYTES ? left : COMM_FRAGMENT_BYTES;
}

enum err comm_request_add(struct comm_request *request, bool receive,
                          void *data, size_t bytes, int peer, int tag)
{
    assert(request->transfer_count < request->transfer_max);
    assert(peer >= 0 && peer < request->comm->size);
    assert(peer != request->comm->rank);
    assert(tag >= 0 && tag <= COMM_TAG_MAX);
    int index = request->transfer_count++;
    request->transfers[index] = (struct comm_transfer){
        .data = data,
        .bytes = bytes,
        .peer = peer,
        .tag = tag,
        .receive = receive,
    };
    request->pending++;
    if (bytes > COMM_FRAGMENT_BYTES)
        set_staged(request, true);
    return request->comm->transport->start(request, index);
}

enum err comm_request_fragment_done(struct comm_request *request, int index,
                                    size_t bytes)
{
    assert(index >= 0 && index < request->transfer_count);
    struct comm_transfer *transfer = &request->transfers[index];
    const struct comm *comm = request->comm;
    size_t want = comm_request_fragment_bytes(transfer);
    assert(!transfer->complete);
    if (bytes != want)
        return err_set(ERR_COMM,
                       "%s: rank %d (%s) sent %zu bytes where %zu were "
                       "expected",
                       request->what, transfer->peer,
                       comm->hosts[transfer->peer], bytes, want);
    transfer->done += bytes;
    if (transfer->done < transfer->bytes)
        return comm->transport->start(request, index);
    transfer->complete = true;
    request->pending--;
    return ERR_OK;
}

static int64_t combine(enum comm_op op, int64_t a, int64_t b)
{
    switch (op) {
    case COMM_MAX:
        return a > b ? a : b;
    case COMM_MIN:
        return a < b ? a : b;
    case COMM_SUM:
    default:
        /* Unsigned, so that an overflow wraps and is not undefined. */
        return (int64_t)((uint64_t)a + (uint64_t)b);
    }
}

static size_t fold_round_count(const struct comm_fold *fold)
{
    size_t left = fold->count - fold->done;
    return left < COMM_FOLD_COUNT ? left : COMM_FOLD_COUNT;
}

/* Exchange the next integers with everybody. */
static enum err fold_round_start(struct comm_request *request)
{
    const struct comm *comm = request->comm;
    struct comm_fold *fold = &request->fold;
    size_t bytes = fold_round_count(fold) * sizeof(int64_t);
    assert(request->pending == 0 && fold->done < fold->count);
    request->transfer_count = 0;
    for (int i = 1; i < comm->size; i++) {
        int from = comm_peer(comm, -i);
        TRY(comm_request_add(request, true,
                             request->fold_scratch + from * COMM_FOLD_COUNT,
                             bytes, from, request->tag));
    }
    for (int i = 1; i < comm->size; i++) {
        int to = comm_peer(comm, i);
        TRY(comm_request_add(request, false, fold->values + fold->done, bytes,
                             to, request->tag));
    }
    return ERR_OK;
}

/* Everybody's integers of this round are here. */
static void fold_round_end(struct comm_request *request)
{
    const struct comm *comm = request->comm;
    struct comm_fold *fold = &request->fold;
    size_t count = fold_round_count(fold);
    int64_t *values = fold->values + fold->done;
    for (size_t i = 0; i < count; i++) {
        int64_t value = values[i];
        for (int r = 0; r < comm->size; r++) {
            if (r != comm->rank)
                value = combine(
                    fold->op, value,
                    request->fold_scratch[r * COMM_FOLD_COUNT + (int)i]);
        }
        values[i] = value;
    }
    fold->done += count;
}

enum err comm_request_fold(struct comm_request *request)
{
    assert(request->collective && request->transfer_count == 0);
    request->fold.active = true;
    request->fold.done = 0;
    set_staged(request, request->fold.count > COMM_FOLD_COUNT);
    return request->fold.count == 0 ? ERR_OK : fold_round_start(request);
}

/* Starts what comes next as long as nothing is in flight. */
static enum err advance(struct comm_request *request)
{
    struct comm_fold *fold = &request->fold;
    while (request->pending == 0 && !request->done) {
        if (fold->active && fold->done < fold->count) {
            fold_round_end(request);
            if (fold->done < fold->count)
                TRY(fold_round_start(request));
        } else {
            request->done = true;
        }
    }
    return ERR_OK;
}

enum err comm_request_started(enum err rc, struct comm_request *request,
                              struct comm_request **out)
{
    *out = NULL;
    if (rc == ERR_OK) {
        /* With one rank all rounds of a fold happen here, and none can fail. */
        (void)advance(request);
        *out = request;
    } else if (request != NULL) {
        comm_request_fail(request);
        comm_request_release(request);
    }
    return rc;
}

bool comm_request_poll(struct comm_request *request)
{
    if (request->done)
        return true;
    struct comm *comm = request->comm;
    enum err rc = comm->transport->poll(request);
    if (rc == ERR_OK)
        rc = advance(request);
    if (rc != ERR_OK) {
        comm_request_fail(request);
        request->rc = rc;
        request->done = true;
    }
    if (request->done)
        set_staged(request, false);
    return request->done;
}

void comm_request_progress(struct comm *comm)
{
    struct comm *member = comm;
    do {
        int left = member->broken ? 0 : member->staged_count;
        for (int i = 0; i < REQUESTS && left > 0; i++) {
            if (member->requests[i].staged) {
                left--;
                comm_request_poll(&member->requests[i]);
            }
        }
        member = member->next;
    } while (member != comm);
}

void comm_request_missing(const struct comm_request *request, char *text,
                          size_t bytes)
{
    /* A send ends only when its receiver takes part; it is the better witness
     * only where nothing is to be received. */
    bool receive = false;
    for (int i = 0; i < request->transfer_count; i++)
        receive |=
            request->transfers[i].receive && !request->transfers[i].complete;
    int missing = 0;
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < request->transfer_count; i++) {
        const struct comm_transfer *transfer = &request->transfers[i];
        if (transfer->complete || transfer->receive != receive)
            continue;
        missing++;
        if (missing > NAMED_MAX || used >= bytes)
            continue;
        used += (size_t)snprintf(text + used, bytes - used, "%srank %d (%s)",
                                 missing > 1 ? ", " : "", transfer->peer,
                                 request->comm->hosts[transfer->peer]);
    }
    if (missing > NAMED_MAX && used < bytes)
        snprintf(text + used, bytes - used, " and %d more",
                 missing - NAMED_MAX);
}
