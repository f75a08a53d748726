/* The requests of a communicator: a fixed pool of sets of transfers, and the
 * rounds in which they are started.
 *
 * Nothing is allocated while training: requests and their transfers are made
 * with the communicator, as many as may be in flight. A request is point to
 * point, with one transfer, or a collective, with two for each rank at most.
 *
 * Two kinds of operations are not over when what is in flight has arrived: a
 * message of more than COMM_FRAGMENT_BYTES goes in fragments, and trees go in
 * rounds. These are "staged": somebody has to start what comes next, also while
 * this rank waits for something else, because a peer may wait for it. So every
 * wait polls all staged requests of the communicator and of its duplicates
 * (comm_request_progress()), and counts of them keep that cheap. */
#include "src/comm/comm_impl.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/map.h"
#include "src/base/clock.h"
#include "src/base/new.h"

#define REQUESTS (COMM_POINT_REQUESTS + COMM_COLLECTIVE_REQUESTS)
/* Words are looked for at every so many polls, or after such a time. */
#define LOOK_EVERY 16
#define LOOK_S 2e-3

enum err comm_request_nodes(struct comm *comm)
{
    enum err rc = ERR_OK;
    struct map map = { 0 };
    free(comm->nodes);
    TRY(new_zeroed(&comm->nodes, (size_t)comm->size));
    for (int rank = 0; rank < comm->size; rank++) {
        const char *host = comm->hosts[rank];
        uint32_t hash = map_hash_bytes(host, strlen(host));
        comm->nodes[rank] = rank;
        for (size_t at = 0, i; map_next(&map, hash, &at, &i);)
            if (strcmp(comm->hosts[i], host) == 0)
                comm->nodes[rank] = (int)i;
        if (comm->nodes[rank] == rank)
            TRY_OUT(map_add(&map, hash, (size_t)rank));
    }
out:
    map_free(&map);
    return rc;
}

enum err comm_request_pool_create(struct comm *comm)
{
    size_t size = (size_t)comm->size;
    size_t each = 2 * size; /* of a collective: to and from everybody */
    size_t transfers = COMM_POINT_REQUESTS + COMM_COLLECTIVE_REQUESTS * each;
    size_t fold = size > 1 ? COMM_FOLD_COUNT : 0;
    size_t handle_bytes = comm->transport->handle_bytes;
    TRY(new_zeroed(&comm->requests, REQUESTS));
    TRY(new_zeroed(&comm->transfers, transfers));
    TRY(new_zeroed(&comm->handles, transfers * handle_bytes + 1));
    TRY(new_zeroed(&comm->fold_scratch, COMM_COLLECTIVE_REQUESTS * fold));
    TRY(new_zeroed(&comm->sizes, COMM_SIZES * size));
    TRY(new_zeroed(&comm->roll, size));
    if (comm->parent == NULL && comm->nodes == NULL)
        TRY(comm_request_nodes(comm));
    size_t next = 0;
    for (size_t i = 0; i < REQUESTS; i++) {
        struct comm_request *request = &comm->requests[i];
        request->comm = comm;
        request->collective = i < COMM_COLLECTIVE_REQUESTS;
        request->transfer_max = request->collective ? (int)each : 1;
        request->transfers = comm->transfers + next;
        request->handles = comm->handles + next * handle_bytes;
        next += (size_t)request->transfer_max;
        if (request->collective)
            request->fold_scratch = comm->fold_scratch + i * fold;
    }
    return ERR_OK;
}

void comm_request_pool_destroy(struct comm *comm)
{
    for (int i = 0; comm->requests != NULL && i < REQUESTS; i++)
        assert(comm->broken || !comm->requests[i].busy);
    free(comm->roll);
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
    if (comm_told(comm) || comm->broken)
        return err_set(ERR_COMM, "%s: %s", what, comm->failure);
    int first = collective ? 0 : COMM_COLLECTIVE_REQUESTS;
    int end = collective ? COMM_COLLECTIVE_REQUESTS : REQUESTS;
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
    request->done = request->differs = false;
    request->rc = ERR_OK;
    request->transfer_count = request->round = 0;
    request->started = request->ended = request->pending = 0;
    request->tree = false;
    request->members = NULL;
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
    if (request->collective || request->comm->beat != NULL)
        comm_roll_tell(request->comm);
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

static enum err start(struct comm_request *request)
{
    request->pending++;
    return request->comm->transport->start(request, request->started++);
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
        .round = request->round,
        .receive = receive,
    };
    if (bytes > COMM_FRAGMENT_BYTES || request->round > 0 ||
        (request->fold.active && request->fold.count > COMM_FOLD_COUNT))
        set_staged(request, true);
    return request->round == 0 ? start(request) : ERR_OK;
}

enum err comm_request_fragment_done(struct comm_request *request, int index,
                                    size_t bytes)
{
    assert(index >= 0 && index < request->started);
    struct comm_transfer *transfer = &request->transfers[index];
    const struct comm *comm = request->comm;
    size_t want = comm_request_fragment_bytes(transfer);
    assert(!transfer->complete);
    request->differs = bytes != want;
    if (request->differs)
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

/* What came with the transfers that are over. */
static void combine_round(struct comm_request *request)
{
    const struct comm_fold *fold = &request->fold;
    int64_t *values = fold->values + fold->done;
    for (; request->ended < request->started; request->ended++) {
        const struct comm_transfer *t = &request->transfers[request->ended];
        if (!fold->active || t->data != (char *)request->fold_scratch)
            continue;
        for (size_t i = 0; i < t->bytes / sizeof(int64_t); i++)
            values[i] = combine(fold->op, values[i], request->fold_scratch[i]);
    }
}

static enum err start_round(struct comm_request *request)
{
    int round = request->transfers[request->started].round;
    while (request->started < request->transfer_count &&
           request->transfers[request->started].round == round)
        TRY(start(request));
    return ERR_OK;
}

/* Starts what comes next as long as nothing is in flight. */
static enum err advance(struct comm_request *request)
{
    struct comm_fold *fold = &request->fold;
    while (request->pending == 0 && !request->done) {
        combine_round(request);
        if (request->started < request->transfer_count) {
            TRY(start_round(request));
            continue;
        }
        if (fold->active)
            fold->done += comm_tree_fold_count(fold);
        request->done = !fold->active || fold->done == fold->count;
        if (!request->done)
            TRY(comm_tree_fold(request));
    }
    return ERR_OK;
}

enum err comm_request_started(enum err rc, struct comm_request *request,
                              struct comm_request **out)
{
    *out = NULL;
    if (rc == ERR_OK)
        rc = advance(request); /* one rank's is over at once */
    if (rc == ERR_OK) {
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
    if (rc == ERR_OK && !request->done && comm_told(comm))
        rc = err_set(ERR_COMM, "%s", comm->failure);
    if (rc != ERR_OK && request->differs)
        rc = comm_beat_places(request, rc);
    if (rc != ERR_OK) {
        comm_request_fail(request);
        request->rc = rc;
        request->done = true;
    }
    if (request->done)
        set_staged(request, false);
    return request->done;
}

/* Calls of who spins are counted; where the machine is busy each is long after the one
 * before, and who is asked has to answer in time. */
static bool is_time_to_look(struct comm *comm)
{
    double now = clock_now();
    if (++comm->looks % LOOK_EVERY != 0 && now - comm->looked_s < LOOK_S)
        return false;
    comm->looked_s = now;
    return true;
}

void comm_request_progress(struct comm *comm)
{
    struct comm *member = comm;
    bool looks = is_time_to_look(comm);
    do {
        if (looks)
            comm_roll_hear(member);
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
