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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clean.h"
#include "src/base/new.h"
#include "src/comm/comm_tensors_impl.h"

/* Operations that the host is ahead of the device at most. A queue of kernels
 * that is full stops the host, beyond all deadlines. */
#define AHEAD 16
#define DEVICE_BYTES 64
struct past {
    void *ready, *reached; /* events of an operation that was waited for */
};

struct nccl {
    struct comm_nccl_library library;
    void *comm; /* NULL: not yet, or aborted */
    bool used;  /* the library */
    void *stream;
    void *settled;                        /* event */
    struct arena greeting;                /* a byte from and for each rank */
    struct comm_tensors_request *issuing; /* NCCL is not done enqueueing it */
    struct past pasts[AHEAD];
    unsigned long waits;
};

static enum err nccl_error(const struct nccl *nccl, int result,
                           const char *what)
{
    return comm_nccl_library_error(&nccl->library, nccl->comm, result, what);
}

/* Whether NCCL is still at work on what it was told. */
static enum err look(const struct nccl *nccl, const char *what, bool *busy)
{
    int state = COMM_NCCL_SUCCESS;
    *busy = false;
    int result = nccl->library.async_error(nccl->comm, &state);
    if (result != COMM_NCCL_SUCCESS)
        return nccl_error(nccl, result, what);
    *busy = state == COMM_NCCL_IN_PROGRESS;
    return nccl_error(nccl, state, what);
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

static enum err reach(const struct comm_tensors *tensors, const char *what,
                      void *event, double timeout_s)
{
    return reach_either(tensors, what, event, NULL, timeout_s);
}

static double deadline_s(const struct comm_tensors *tensors, double timeout_s)
{
    return timeout_s > 0.0 ? timeout_s : tensors->comm->timeout_s;
}

static void give_up(struct nccl *nccl)
{
    if (nccl->comm != NULL)
        (void)nccl->library.abort(nccl->comm);
    nccl->comm = NULL;
    nccl->issuing = NULL;
}

static enum err failed(struct comm_tensors *tensors, enum err rc,
                       double timeout_s)
{
    give_up(tensors->state);
    return comm_roll_blame(tensors->comm, rc, timeout_s);
}

static enum err prepare(struct comm_tensors *tensors, char device[DEVICE_BYTES])
{
    const struct kernel_memory *memory = tensors->memory;
    struct nccl *nccl = NULL;
    TRY(new_zeroed(&nccl, 1));
    tensors->state = nccl;
    if (memory->identify == NULL)
        return err_set(ERR_UNSUPPORTED, "NCCL does not know this device");
    if (tensors->library != NULL)
        nccl->library = *tensors->library;
    else
        TRY(comm_nccl_library_open(&nccl->library));
    TRY(memory->identify(device, DEVICE_BYTES));
    TRY(memory->stream_create(true, &nccl->stream));
    TRY(memory->event_create(&nccl->settled));
    for (int i = 0; i < AHEAD; i++) {
        TRY(memory->event_create(&nccl->pasts[i].ready));
        TRY(memory->event_create(&nccl->pasts[i].reached));
    }
    return ERR_OK;
}

/* Who fails is named to itself, too: it may be the rank that logs. */
static enum err agree_named(struct comm *comm, enum err own)
{
    enum err rc = comm_agree(comm, own);
    if (own == ERR_OK)
        return rc;
    return err_prefix(rc, "rank %d (%s)", comm->rank, comm->hosts[comm->rank]);
}

/* NCCL refuses ranks that share a GPU, but late and on some ranks only. */
static enum err check_devices(struct comm *comm,
                              const char device[DEVICE_BYTES])
{
    enum err rc = ERR_OK;
    char(*devices)[DEVICE_BYTES] = NULL;
    TRY_OUT(comm_agree(comm, new_zeroed(&devices, (size_t)comm->size)));
    memcpy(devices[comm->rank], device, sizeof *devices);
    TRY_OUT(comm_gather_rows(comm, devices, sizeof *devices));
    for (int r = 0; r < comm->rank && rc == ERR_OK; r++)
        if (comm_same_host(comm, r, comm->rank) &&
            strcmp(devices[r], device) == 0)
            rc = err_set(ERR_UNSUPPORTED,
                         "GPU %s is shared with rank %d, which NCCL refuses: "
                         "start one rank per GPU",
                         device, r);
    TRY_OUT(agree_named(comm, rc));
out:
    free(devices);
    return rc;
}

/* NCCL connects two ranks and takes its buffers of device memory at their first
 * message: so that comes now, before others have taken what there is. */
static enum err greet(struct comm_tensors *tensors)
{
    struct nccl *nccl = tensors->state;
    const struct comm *comm = tensors->comm;
    const struct comm_nccl_library *library = &nccl->library;
    const struct kernel_memory *memory = tensors->memory;
    size_t size = (size_t)comm->size;
    TRY(memory->tensors_create(2 * size, &nccl->greeting));
    int result = library->group_start();
    for (int i = 1; i < comm->size; i++) {
        int from = comm_peer(comm, -i);
        int to = comm_peer(comm, i);
        (void)library->recv(nccl->greeting.base + from, 1, COMM_NCCL_BYTE, from,
                            nccl->comm, nccl->stream);
        (void)library->send(nccl->greeting.base + size + to, 1, COMM_NCCL_BYTE,
                            to, nccl->comm, nccl->stream);
    }
    int last = library->group_end(); /* has the first error */
    TRY(nccl_error(nccl, result == COMM_NCCL_SUCCESS ? last : result,
                   "first messages"));
    TRY(reach(tensors, "first messages", NULL, 0.5 * comm->timeout_s));
    TRY(memory->event_record(nccl->settled, nccl->stream));
    return reach(tensors, "first messages", nccl->settled,
                 0.5 * comm->timeout_s);
}

/* Collective. Half the patience for NCCL, because a rank that fails at once
 * waits for the others in comm_agree(). */
static enum err meet(struct comm_tensors *tensors)
{
    enum err rc = ERR_OK;
    struct nccl *nccl = tensors->state;
    struct comm *comm = tensors->comm;
    struct comm_nccl_id id = { { 0 } };
    struct comm_nccl_config config;
    comm_nccl_library_config(&nccl->library, &config);
    nccl->used = true;
    if (comm->rank == 0)
        rc = nccl_error(nccl, nccl->library.unique_id(&id), "making an id");
    TRY_OUT(comm_agree(comm, rc));
    TRY_OUT(comm_broadcast(comm, &id, sizeof id, 0));
    rc = nccl_error(
        nccl,
        nccl->library.init(&nccl->comm, comm->size, id, comm->rank, &config),
        "starting");
    if (rc == ERR_OK)
        rc = reach(tensors, "starting", NULL, 0.5 * comm->timeout_s);
    TRY_OUT(comm_agree(comm, rc));
    /* who has failed says more than who has waited for it */
    enum err met = comm->size > 1 ? greet(tensors) : ERR_OK;
    TRY_OUT(comm_agree(comm, met == ERR_COMM ? ERR_OK : met));
    TRY_OUT(comm_agree(comm, met));
out:
    if (rc != ERR_OK)
        give_up(nccl);
    return rc;
}

static void nccl_label(const struct comm_tensors *tensors, char *text,
                       size_t bytes)
{
    const struct nccl *nccl = tensors->state;
    int version = 0;
    (void)nccl->library.version(&version);
    snprintf(text, bytes, "nccl %d.%d.%d", version / 10000, version / 100 % 100,
             version % 100);
}

/* What is set, and why; what the user has set stands as his. */
static void nccl_why(const struct comm_tensors *tensors, char *text,
                     size_t bytes)
{
    const char *loading = getenv("CUDA_MODULE_LOADING");
    (void)tensors;
    comm_nccl_library_ctas_why(text, bytes);
    clean_join(text, bytes, "; ", "CUDA_MODULE_LOADING=%.16s: %s",
               loading != NULL ? loading : "",
               loading != NULL && strcmp(loading, "EAGER") == 0
                   ? "no kernel is loaded where one of NCCL's waits for a peer"
                   : "the user's");
}

static enum err nccl_open(struct comm_tensors *tensors)
{
    char device[DEVICE_BYTES] = "";
    TRY(agree_named(tensors->comm, prepare(tensors, device)));
    if (tensors->automatic)
        TRY(check_devices(tensors->comm, device));
    return meet(tensors);
}

/* All ranks together: all they were told is done before they leave. */
static enum err leave(const struct comm_tensors *tensors)
{
    struct nccl *nccl = tensors->state;
    double timeout_s = tensors->comm->timeout_s;
    TRY(tensors->memory->event_record(nccl->settled, nccl->stream));
    TRY(reach(tensors, "ending", nccl->settled, timeout_s));
    TRY(nccl_error(nccl, nccl->library.finalize(nccl->comm), "ending"));
    TRY(reach(tensors, "ending", NULL, timeout_s));
    (void)nccl->library.destroy(nccl->comm);
    nccl->comm = NULL;
    return ERR_OK;
}

static void nccl_close(struct comm_tensors *tensors)
{
    const struct kernel_memory *memory = tensors->memory;
    struct nccl *nccl = tensors->state;
    if (nccl == NULL)
        return;
    /* Once it has run, the library stays: its threads end when they like. */
    if (!nccl->used && tensors->library == NULL)
        comm_nccl_library_close(&nccl->library);
    if (nccl->comm != NULL && !tensors->comm->broken)
        (void)leave(tensors);
    give_up(nccl);
    for (int i = 0; i < AHEAD; i++) {
        memory->event_destroy(nccl->pasts[i].reached);
        memory->event_destroy(nccl->pasts[i].ready);
    }
    memory->event_destroy(nccl->settled);
    memory->stream_destroy(nccl->stream);
    memory->tensors_destroy(&nccl->greeting);
    free(nccl);
    tensors->state = NULL;
}

/* NCCL has enqueued the last group, if it is not busy; what comes on its stream
 * from now on comes after that. */
static enum err note_issued(const struct comm_tensors *tensors, bool busy)
{
    struct nccl *nccl = tensors->state;
    struct comm_tensors_request *request = nccl->issuing;
    if (busy || request == NULL)
        return ERR_OK;
    nccl->issuing = NULL;
    return tensors->memory->event_record(request->reached, nccl->stream);
}

static enum err wait_issued(const struct comm_tensors *tensors,
                            double timeout_s)
{
    const struct nccl *nccl = tensors->state;
    if (nccl->issuing == NULL)
        return ERR_OK;
    TRY(reach(tensors, nccl->issuing->what, NULL, timeout_s));
    return note_issued(tensors, false);
}

static enum err issue(struct comm_tensors_request *request)
{
    struct nccl *nccl = request->tensors->state;
    const struct comm_nccl_library *library = &nccl->library;
    assert(nccl->issuing == NULL);
    int result = library->group_start();
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
    int last = library->group_end();
    nccl->issuing = request;
    return nccl_error(nccl, result == COMM_NCCL_SUCCESS ? last : result,
                      request->what);
}

static enum err nccl_start(struct comm_tensors_request *request)
{
    enum err rc = ERR_OK;
    struct comm_tensors *tensors = request->tensors;
    const struct kernel_memory *memory = tensors->memory;
    const struct nccl *nccl = tensors->state;
    double timeout_s = tensors->comm->timeout_s;
    bool busy = false;
    if (request->transfer_count == 0)
        return ERR_OK;
    TRY_OUT(wait_issued(tensors, timeout_s));
    TRY_OUT(memory->event_record(request->ready, tensors->stream));
    TRY_OUT(memory->event_await(request->ready, nccl->stream));
    TRY_OUT(issue(request));
    TRY_OUT(look(nccl, request->what, &busy));
    TRY_OUT(note_issued(tensors, busy));
out:
    return rc == ERR_OK ? rc : failed(tensors, rc, timeout_s);
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
    /* What fails here fails in the wait as well. */
    if (look(nccl, request->what, &busy) != ERR_OK ||
        note_issued(tensors, busy) != ERR_OK ||
        tensors->memory->event_done(past->reached, &done) != ERR_OK)
        return true;
    return nccl->issuing != request && done;
}

static enum err nccl_wait(struct comm_tensors_request *request,
                          double timeout_s)
{
    enum err rc = ERR_OK;
    struct comm_tensors *tensors = request->tensors;
    struct nccl *nccl = tensors->state;
    bool busy = false;
    if (request->transfer_count == 0)
        return ERR_OK;
    timeout_s = deadline_s(tensors, timeout_s);
    if (nccl->issuing == request)
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
    TRY_OUT(wait_issued(tensors, timeout_s));
    TRY_OUT(reach_pasts(tensors, NULL, timeout_s));
    TRY_OUT(tensors->memory->event_record(nccl->settled, tensors->stream));
    TRY_OUT(reach(tensors, "own work", nccl->settled, INFINITY));
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
        give_up(nccl);
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
        TRY_OUT(reach(tensors, "own work", event, INFINITY));
    }
out:
    return rc == ERR_OK ? rc : failed(tensors, rc, timeout_s);
}

const struct comm_tensors_way comm_tensors_nccl = {
    .name = "nccl",
    .label = nccl_label,
    .why = nccl_why,
    .open = nccl_open,
    .close = nccl_close,
    .start = nccl_start,
    .wait = nccl_wait,
    .test = nccl_test,
    .settle = nccl_settle,
    .reach = nccl_reach,
};
