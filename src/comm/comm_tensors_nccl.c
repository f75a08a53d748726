/* Tensors travel by NCCL, on a stream of its own that takes turns with the
 * backend's by events. Only sends and receives are used, in groups: NCCL's sums
 * have bits of their own, of its algorithm and of the number of ranks.
 *
 * NCCL has no deadlines. A peer that has died leaves a kernel of this rank's on
 * the device that never ends, and everything behind it on the stream; who asks
 * the stream to finish then waits for ever, and a queue that has filled up
 * stops even who only enqueues. So the communicator does not block, the host
 * polls NCCL's state and the events with comm's patience, and the host is kept
 * at most AHEAD operations before the device: the events of the last that were
 * waited for are kept in a ring, and a new wait first has the oldest of them
 * reached.
 * When the patience ends, the rank calls comm's roll, which names who does not
 * answer: NCCL does not say it. */
#include <assert.h>
#include <math.h>

#include "src/comm/comm_tensors_nccl.h"

/* Whether NCCL is still at work on what it was told. */
static enum err look(const struct nccl *nccl, const char *what, bool *busy)
{
    int state = COMM_NCCL_SUCCESS;
    *busy = false;
    int result = nccl->library.async_error(nccl->comm, &state);
    if (result != COMM_NCCL_SUCCESS)
        return comm_tensors_nccl_error(nccl, result, what);
    *busy = state == COMM_NCCL_IN_PROGRESS;
    return comm_tensors_nccl_error(nccl, state, what);
}

static enum err poll_either(const struct comm_tensors *tensors,
                            const char *what, void *event, void *enough,
                            double timeout_s)
{
    const struct nccl *nccl = tensors->state;
    struct comm_patience patience = { .timeout_s = timeout_s };
    bool busy = false, done = false;
    do {
        TRY(look(nccl, what, &busy));
        done = !busy;
        if (event != NULL)
            TRY(tensors->memory->event_done(event, &done));
        if (!done && enough != NULL)
            TRY(tensors->memory->event_done(enough, &done));
        if (done)
            return ERR_OK;
        comm_request_progress(tensors->comm);
        if (comm_told(tensors->comm))
            return err_set(ERR_COMM, "%s", tensors->comm->failure);
    } while (comm_patience_left(&patience));
    return err_set(ERR_COMM, "NCCL: %s: not done within %.3g s", what,
                   timeout_s);
}

/* Poll until the event is reached, or without one until NCCL is not busy; or
 * until `enough` is, where there is one. */
static enum err reach_either(const struct comm_tensors *tensors,
                             const char *what, void *event, void *enough,
                             double timeout_s)
{
    comm_beat_waits(tensors->comm, true);
    enum err rc = poll_either(tensors, what, event, enough, timeout_s);
    comm_beat_waits(tensors->comm, false);
    return rc;
}

enum err comm_tensors_nccl_poll(const struct comm_tensors *tensors,
                                const char *what, void *event, double timeout_s)
{
    return reach_either(tensors, what, event, NULL, timeout_s);
}

static double deadline_s(const struct comm_tensors *tensors, double timeout_s)
{
    return timeout_s > 0.0 ? timeout_s : tensors->comm->timeout_s;
}

void comm_tensors_nccl_give_up(struct nccl *nccl)
{
    if (nccl->comm != NULL)
        (void)nccl->library.abort(nccl->comm);
    nccl->comm = NULL;
    nccl->held = nccl->issuing = NULL;
}

static enum err failed(struct comm_tensors *tensors, enum err rc,
                       double timeout_s)
{
    comm_tensors_nccl_give_up(tensors->state);
    return comm_roll_blame(tensors->comm, rc, timeout_s);
}

/* NCCL has enqueued the last group, if it is not busy; what comes on its stream
 * from now on comes after that. */
static enum err note_issued(const struct comm_tensors *tensors, bool busy)
{
    struct nccl *nccl = tensors->state;
    struct comm_tensors_request *request = nccl->issuing;
    if (busy)
        return ERR_OK;
    for (; request != NULL; request = request->next)
        TRY(tensors->memory->event_record(request->reached, nccl->stream));
    nccl->issuing = NULL;
    return ERR_OK;
}

static enum err wait_issued(const struct comm_tensors *tensors,
                            double timeout_s)
{
    const struct nccl *nccl = tensors->state;
    if (nccl->issuing == NULL)
        return ERR_OK;
    TRY(comm_tensors_nccl_poll(tensors, nccl->issuing->what, NULL, timeout_s));
    return note_issued(tensors, false);
}

static int add_transfers(const struct nccl *nccl,
                         const struct comm_tensors_request *request)
{
    const struct comm_nccl_library *library = &nccl->library;
    int result = COMM_NCCL_SUCCESS;
    for (int i = 0; i < request->transfer_count && result == COMM_NCCL_SUCCESS;
         i++) {
        const struct comm_tensors_transfer *t = &request->transfers[i];
        if (t->receive)
            result = library->recv(t->tensor, t->bytes, COMM_NCCL_BYTE, t->peer,
                                   nccl->comm, nccl->stream);
        else
            result = library->send(t->tensor, t->bytes, COMM_NCCL_BYTE, t->peer,
                                   nccl->comm, nccl->stream);
        if (result == COMM_NCCL_IN_PROGRESS)
            result = COMM_NCCL_SUCCESS;
    }
    return result;
}

/* All that is held is one group. */
static enum err issue(struct nccl *nccl)
{
    struct comm_tensors_request *first = nccl->held;
    assert(nccl->issuing == NULL);
    int result = nccl->library.group_start();
    for (const struct comm_tensors_request *r = first;
         r != NULL && result == COMM_NCCL_SUCCESS; r = r->next)
        result = add_transfers(nccl, r);
    int last = nccl->library.group_end();
    nccl->held = NULL;
    nccl->issuing = first;
    return comm_tensors_nccl_error(
        nccl, result == COMM_NCCL_SUCCESS ? last : result, first->what);
}

static enum err nccl_start_held(struct comm_tensors *tensors)
{
    enum err rc = ERR_OK;
    const struct kernel_memory *memory = tensors->memory;
    struct nccl *nccl = tensors->state;
    struct comm_tensors_request *first = nccl->held;
    double timeout_s = tensors->comm->timeout_s;
    bool busy = false;
    nccl->group++;
    if (first == NULL)
        return ERR_OK;
    TRY_OUT(wait_issued(tensors, timeout_s));
    for (struct comm_tensors_request *r = first; r != NULL; r = r->next)
        TRY_OUT(memory->event_record(r->ready, tensors->stream));
    TRY_OUT(memory->event_await(first->ready, nccl->stream));
    TRY_OUT(issue(nccl));
    TRY_OUT(look(nccl, first->what, &busy));
    TRY_OUT(note_issued(tensors, busy));
out:
    return rc == ERR_OK ? rc : failed(tensors, rc, timeout_s);
}

static enum err nccl_start(struct comm_tensors_request *request)
{
    struct comm_tensors *tensors = request->tensors;
    struct nccl *nccl = tensors->state;
    struct comm_tensors_request **end = &nccl->held;
    request->group = nccl->group;
    while (*end != NULL)
        end = &(*end)->next;
    request->next = NULL;
    if (request->transfer_count > 0)
        *end = request;
    return tensors->together ? ERR_OK : nccl_start_held(tensors);
}

static bool is_in(const struct comm_tensors_request *list,
                  const struct comm_tensors_request *request)
{
    while (list != NULL && list != request)
        list = list->next;
    return list != NULL;
}

/* The deadline is for peers: it begins when this rank's device has come to the
 * operation. */
static enum err reach_past(const struct comm_tensors *tensors,
                           const struct past *past, void *enough,
                           double timeout_s)
{
    TRY(reach_either(tensors, "own work", past->ready, enough, INFINITY));
    return reach_either(tensors, "exchange", past->reached, enough, timeout_s);
}

/* What the stream waits for is among the operations that were waited for, in
 * their order; so the event is reached before them or after them at once. */
static enum err reach_pasts(const struct comm_tensors *tensors, void *enough,
                            double timeout_s)
{
    const struct nccl *nccl = tensors->state;
    for (unsigned long i = 0; i < AHEAD; i++)
        TRY(reach_past(tensors, &nccl->pasts[(nccl->waits + i) % AHEAD], enough,
                       timeout_s));
    return ERR_OK;
}

static bool nccl_test(struct comm_tensors_request *request)
{
    const struct comm_tensors *tensors = request->tensors;
    const struct nccl *nccl = tensors->state;
    const struct past *past = &nccl->pasts[nccl->waits % AHEAD];
    bool busy = false, done = true;
    if (request->transfer_count == 0)
        return true;
    if (is_in(nccl->held, request))
        return false;
    /* What fails here fails in the wait as well. */
    if (look(nccl, request->what, &busy) != ERR_OK ||
        note_issued(tensors, busy) != ERR_OK ||
        tensors->memory->event_done(past->reached, &done) != ERR_OK)
        return true;
    return !is_in(nccl->issuing, request) && done;
}

static enum err nccl_wait(struct comm_tensors_request *request,
                          double timeout_s)
{
    enum err rc = ERR_OK;
    struct comm_tensors *tensors = request->tensors;
    struct nccl *nccl = tensors->state;
    bool busy = false;
    /* also where the rank has no part in it, or groups would not be the same on all */
    if (tensors->together && request->group == nccl->group)
        TRY(nccl_start_held(tensors));
    if (request->transfer_count == 0)
        return ERR_OK;
    timeout_s = deadline_s(tensors, timeout_s);
    if (is_in(nccl->issuing, request))
        TRY_OUT(wait_issued(tensors, timeout_s));
    TRY_OUT(look(nccl, request->what, &busy));
    TRY_OUT(tensors->memory->event_await(request->reached, tensors->stream));
    struct past *past = &nccl->pasts[nccl->waits++ % AHEAD];
    TRY_OUT(reach_past(tensors, past, NULL, timeout_s));
    struct past last = *past;
    *past = (struct past){ request->ready, request->reached };
    request->ready = last.ready;
    request->reached = last.reached;
out:
    return rc == ERR_OK ? rc : failed(tensors, rc, timeout_s);
}

static enum err nccl_settle(struct comm_tensors *tensors, double timeout_s)
{
    enum err rc = ERR_OK;
    struct nccl *nccl = tensors->state;
    timeout_s = deadline_s(tensors, timeout_s);
    assert(nccl->held == NULL);
    TRY_OUT(wait_issued(tensors, timeout_s));
    TRY_OUT(reach_pasts(tensors, NULL, timeout_s));
    TRY_OUT(tensors->memory->event_record(nccl->settled, tensors->stream));
    TRY_OUT(
        comm_tensors_nccl_poll(tensors, "own work", nccl->settled, INFINITY));
out:
    if (rc != ERR_OK)
        return failed(tensors, rc, timeout_s);
    /* Who has no part in what failed must not run on: it would be blamed. Others may
     * still wait for NCCL. */
    struct comm_request *request;
    rc = comm_start_barrier(tensors->comm, &request);
    if (rc == ERR_OK)
        rc = comm_wait(request, 2.0 * timeout_s);
    if (rc != ERR_OK)
        comm_tensors_nccl_give_up(nccl);
    return rc;
}

static enum err nccl_reach(struct comm_tensors *tensors, void *event,
                           double timeout_s)
{
    enum err rc = ERR_OK;
    bool done = false;
    timeout_s = deadline_s(tensors, timeout_s);
    TRY_OUT(tensors->memory->event_done(event, &done));
    if (!done) {
        TRY_OUT(reach_pasts(tensors, event, timeout_s));
        TRY_OUT(comm_tensors_nccl_poll(tensors, "own work", event, INFINITY));
    }
out:
    return rc == ERR_OK ? rc : failed(tensors, rc, timeout_s);
}

const struct comm_tensors_way comm_tensors_nccl = {
    .name = "nccl",
    .label = comm_tensors_nccl_label,
    .why = comm_tensors_nccl_why,
    .open = comm_tensors_nccl_open,
    .close = comm_tensors_nccl_close,
    .start = nccl_start,
    .start_held = nccl_start_held,
    .wait = nccl_wait,
    .test = nccl_test,
    .settle = nccl_settle,
    .reach = nccl_reach,
};
