/* Messages of tensors: chooses the way (direct, staged or nccl), keeps requests
 * and their order, and passes operations on to the way. Integers and doubles of
 * the host go by comm.c.
 *
 * To the caller a started operation is like a kernel on a stream: it comes
 * after what is enqueued before the start, and what is enqueued after the wait
 * comes after it. On a processor that is simply so. On a device the host is
 * ahead of the stream, and each way has its own means to keep that order:
 * staged has two more streams and polls for downloads, nccl has one more and
 * events between the two.
 *
 * A failure breaks the duplicate of the communicator that messages go over, so
 * that all that follows fails with the first reason, and comm itself still
 * works for whoever has to tell it. */
#include "src/comm/comm_tensors.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/log.h"
#include "src/base/new.h"
#include "src/comm/comm_tensors_impl.h"

/* What is left of a failed operation is only let go. */
#define ABANDON_S 1e-3

static enum err broken(struct comm_tensors *tensors, enum err rc)
{
    struct comm *comm = tensors->comm;
    comm_request_break(comm);
    return err_set(rc, "%s", comm->failure);
}

/* The receive first: what does not come says more than what nobody takes. */
enum err comm_tensors_parts_wait(struct comm_tensors_request *request,
                                 double timeout_s)
{
    enum err rc = ERR_OK;
    for (int i = 0; i < 2 && rc == ERR_OK; i++) {
        if (request->parts[i] != NULL)
            rc = comm_wait(request->parts[i], timeout_s);
        request->parts[i] = NULL;
    }
    return rc;
}

bool comm_tensors_parts_test(struct comm_tensors_request *request)
{
    bool done = true;
    for (int i = 0; i < 2; i++)
        if (request->parts[i] != NULL)
            done = comm_test(request->parts[i]) && done;
    return done;
}

enum err comm_tensors_stream_settle(struct comm_tensors *tensors,
                                    double timeout_s)
{
    (void)timeout_s;
    return tensors->memory->wait(tensors->stream);
}

static const struct comm_tensors_way direct = {
    .name = "direct",
    .wait = comm_tensors_parts_wait,
    .test = comm_tensors_parts_test,
    .settle = comm_tensors_stream_settle,
};

static bool is_direct(const struct comm_tensors *tensors)
{
    return tensors->way == &direct;
}

/* Makes what the requests of ways for devices need. */
static enum err make_room(struct comm_tensors *tensors)
{
    size_t each = 2 * (size_t)tensors->comm->size;
    TRY(new_zeroed(&tensors->transfers, COMM_TENSORS_REQUESTS * each));
    for (int i = 0; i < COMM_TENSORS_REQUESTS; i++) {
        struct comm_tensors_request *request = &tensors->requests[i];
        request->transfers = tensors->transfers + (size_t)i * each;
        TRY(tensors->memory->event_create(&request->ready));
        TRY(tensors->memory->event_create(&request->reached));
    }
    for (int i = 0; i < COMM_TENSORS_AHEAD; i++)
        TRY(tensors->memory->event_create(&tensors->paces[i]));
    return ERR_OK;
}

static void close_way(struct comm_tensors *tensors)
{
    if (tensors->way != NULL && tensors->way->close != NULL)
        tensors->way->close(tensors);
    tensors->way = NULL;
}

/* Collective. */
static enum err open_way(struct comm_tensors *tensors,
                         const struct comm_tensors_way *way)
{
    tensors->way = way;
    enum err rc = comm_agree(tensors->comm, way->open(tensors));
    if (rc != ERR_OK)
        close_way(tensors);
    return rc;
}

/* NCCL where all ranks can, else, if that is allowed, through host memory.
 * Collective. */
static enum err open_best(struct comm_tensors *tensors, bool slower)
{
    tensors->automatic = true;
    if (tensors->comm->size > 1) {
        enum err rc = open_way(tensors, &comm_tensors_nccl);
        if (rc != ERR_UNSUPPORTED)
            return rc;
        if (!slower)
            return err_set(rc,
                           "tensors cannot travel by NCCL: %s; or set "
                           "parallel.exchange = \"staged\", through host "
                           "memory, which is slower",
                           err_text());
        if (tensors->comm->rank == 0)
            log_warn("tensors travel through host memory, which is slower: %s",
                     err_text());
    }
    return open_way(tensors, &comm_tensors_staged);
}

/* Collective. */
static enum err choose(struct comm_tensors *tensors, enum comm_exchange way)
{
    bool device = tensors->memory->device;
    bool automatic = way == EXCHANGE_AUTO || way == EXCHANGE_ANY;
    if (!automatic && device == (way == EXCHANGE_DIRECT))
        return err_set(ERR_UNSUPPORTED,
                       "exchange '%s' is not for tensors in the %s's memory; "
                       "use auto",
                       device ? direct.name : comm_exchange_names[way],
                       device ? "device" : "host");
    if (!device) {
        tensors->way = &direct;
        return ERR_OK;
    }
    TRY(comm_agree(tensors->comm, make_room(tensors)));
    if (automatic)
        return open_best(tensors, way == EXCHANGE_ANY);
    return open_way(tensors, way == EXCHANGE_NCCL ? &comm_tensors_nccl
                                                  : &comm_tensors_staged);
}

enum err comm_tensors_create(struct comm *comm,
                             const struct kernel_memory *memory, void *stream,
                             enum comm_exchange way, struct comm_tensors **out)
{
    return comm_tensors_create_lent(comm, memory, stream, way, NULL, out);
}

enum err comm_tensors_create_lent(struct comm *comm,
                                  const struct kernel_memory *memory,
                                  void *stream, enum comm_exchange way,
                                  const struct comm_nccl_library *library,
                                  struct comm_tensors **out)
{
    enum err rc = ERR_OK;
    struct comm_tensors *tensors = NULL;
    *out = NULL;
    TRY_OUT(comm_agree(comm, new_zeroed(&tensors, 1)));
    tensors->memory = memory;
    tensors->stream = stream;
    tensors->library = library;
    for (int i = 0; i < COMM_TENSORS_REQUESTS; i++)
        tensors->requests[i].tensors = tensors;
    TRY_OUT(comm_agree(comm, comm_duplicate(comm, &tensors->comm)));
    comm_set_timeline(tensors->comm, comm->timeline, TIMELINE_EXCHANGE);
    TRY_OUT(comm_agree(comm, choose(tensors, way)));
out:
    return new_or_none(rc, tensors, out, comm_tensors_destroy);
}

void comm_tensors_destroy(struct comm_tensors *tensors)
{
    if (tensors == NULL)
        return;
    close_way(tensors);
    for (int i = 0; tensors->transfers != NULL && i < COMM_TENSORS_REQUESTS;
         i++) {
        tensors->memory->event_destroy(tensors->requests[i].reached);
        tensors->memory->event_destroy(tensors->requests[i].ready);
    }
    for (int i = 0; tensors->transfers != NULL && i < COMM_TENSORS_AHEAD; i++)
        tensors->memory->event_destroy(tensors->paces[i]);
    comm_destroy(tensors->comm);
    free(tensors->transfers);
    free(tensors);
}

const char *comm_tensors_way(const struct comm_tensors *tensors)
{
    return tensors->way->name;
}

void comm_tensors_label(const struct comm_tensors *tensors, char *text,
                        size_t bytes)
{
    if (tensors->comm->size == 1)
        snprintf(text, bytes, "none");
    else if (tensors->way->label != NULL)
        tensors->way->label(tensors, text, bytes);
    else
        snprintf(text, bytes, "%s", tensors->way->name);
}

void comm_tensors_why(const struct comm_tensors *tensors, char *text,
                      size_t bytes)
{
    text[0] = '\0';
    if (tensors->comm->size > 1 && tensors->way->why != NULL)
        tensors->way->why(tensors, text, bytes);
}

struct comm *comm_tensors_comm(struct comm_tensors *tensors)
{
    return tensors->comm;
}

static enum err take(struct comm_tensors *tensors, const char *what,
                     bool collective, struct comm_tensors_request **out)
{
    int i = 0;
    *out = NULL;
    if (tensors->comm->broken)
        return err_set(ERR_COMM, "%s", tensors->comm->failure);
    while (i < COMM_TENSORS_REQUESTS && tensors->requests[i].busy)
        i++;
    if (i == COMM_TENSORS_REQUESTS)
        return err_set(ERR_INTERNAL,
                       "%s: %d operations are in flight already; wait for "
                       "some before starting more",
                       what, i);
    *out = &tensors->requests[i];
    assert((*out)->parts[0] == NULL && (*out)->parts[1] == NULL);
    (*out)->what = what;
    (*out)->busy = true;
    (*out)->collective = collective;
    (*out)->transfer_count = 0;
    return ERR_OK;
}

/* Nobody fetches what is left of a failed operation. */
static enum err fail(struct comm_tensors_request *request, enum err rc)
{
    rc = broken(request->tensors, rc);
    for (int i = 0; i < 2; i++)
        if (request->parts[i] != NULL)
            (void)comm_wait(request->parts[i], ABANDON_S);
    request->parts[0] = request->parts[1] = NULL;
    request->busy = false;
    return err_set(rc, "%s", request->tensors->comm->failure);
}

/* The end of every start: of ways for devices the transfers are known now. */
static enum err started(enum err rc, struct comm_tensors_request *request,
                        struct comm_tensors_request **out)
{
    *out = NULL;
    if (request == NULL)
        return rc;
    if (rc == ERR_OK && !is_direct(request->tensors))
        rc = request->tensors->way->start(request);
    if (rc != ERR_OK)
        return fail(request, rc);
    *out = request;
    return ERR_OK;
}

static void add(struct comm_tensors_request *request, bool receive,
                const void *tensor, size_t bytes, int peer)
{
    const struct comm *comm = request->tensors->comm;
    if (bytes == 0)
        return;
    assert(request->transfer_count < 2 * comm->size);
    assert(peer >= 0 && peer < comm->size && peer != comm->rank);
    request->transfers[request->transfer_count++] =
        (struct comm_tensors_transfer){
            .tensor = (char *)tensor,
            .bytes = bytes,
            .peer = peer,
            .receive = receive,
        };
}

static void add_all(struct comm_tensors_request *request, bool receive,
                    const void *tensor, const size_t *bytes,
                    const size_t *offsets)
{
    const struct comm *comm = request->tensors->comm;
    for (int i = 1; i < comm->size; i++) {
        int r = comm_peer(comm, receive ? -i : i);
        add(request, receive, (const char *)tensor + offsets[r], bytes[r], r);
    }
}

enum err comm_tensors_start_exchange(struct comm_tensors *tensors, int to,
                                     const void *send, size_t send_bytes,
                                     int from, void *recv, size_t recv_bytes,
                                     int tag, struct comm_tensors_request **out)
{
    enum err rc = ERR_OK;
    struct comm *comm = tensors->comm;
    struct comm_tensors_request *request;
    bool sends = to >= 0 && send_bytes > 0;
    bool receives = from >= 0 && recv_bytes > 0;
    TRY_OUT(take(tensors, "exchange", false, &request));
    request->tag = tag;
    if ((sends && to == comm->rank) || (receives && from == comm->rank)) {
        assert(sends && receives && to == from && send_bytes == recv_bytes);
        TRY_OUT(tensors->memory->copy(tensors->stream, send_bytes, send, recv));
    } else if (is_direct(tensors)) {
        if (receives)
            TRY_OUT(comm_start_recv(comm, recv, recv_bytes, from, tag,
                                    &request->parts[0]));
        if (sends)
            TRY_OUT(comm_start_send(comm, send, send_bytes, to, tag,
                                    &request->parts[1]));
    } else {
        add(request, true, recv, receives ? recv_bytes : 0, from);
        add(request, false, send, sends ? send_bytes : 0, to);
    }
out:
    return started(rc, request, out);
}

enum err comm_tensors_start_all_gather(struct comm_tensors *tensors, void *data,
                                       const size_t *bytes,
                                       const size_t *offsets,
                                       struct comm_tensors_request **out)
{
    enum err rc = ERR_OK;
    struct comm_tensors_request *request;
    const struct comm *comm = tensors->comm;
    int me = comm->rank;
    TRY_OUT(take(tensors, "all-gather", true, &request));
    if (is_direct(tensors)) {
        TRY_OUT(comm_start_all_gather(tensors->comm, data, bytes, offsets,
                                      &request->parts[0]));
        goto out;
    }
    add_all(request, true, data, bytes, offsets);
    for (int i = 1; i < comm->size; i++)
        add(request, false, (char *)data + offsets[me], bytes[me],
            comm_peer(comm, i));
out:
    return started(rc, request, out);
}

enum err comm_tensors_start_all_to_all(
    struct comm_tensors *tensors, const void *send, const size_t *send_bytes,
    const size_t *send_offsets, void *recv, const size_t *recv_bytes,
    const size_t *recv_offsets, struct comm_tensors_request **out)
{
    enum err rc = ERR_OK;
    struct comm_tensors_request *request;
    const struct comm *comm = tensors->comm;
    int me = comm->rank;
    assert(send_bytes[me] == recv_bytes[me]);
    TRY_OUT(take(tensors, "all-to-all", true, &request));
    if (is_direct(tensors)) {
        TRY_OUT(comm_start_all_to_all(tensors->comm, send, send_bytes,
                                      send_offsets, recv, recv_bytes,
                                      recv_offsets, &request->parts[0]));
        goto out;
    }
    add_all(request, true, recv, recv_bytes, recv_offsets);
    add_all(request, false, send, send_bytes, send_offsets);
    if (send_bytes[me] > 0)
        TRY_OUT(tensors->memory->copy(tensors->stream, send_bytes[me],
                                      (const char *)send + send_offsets[me],
                                      (char *)recv + recv_offsets[me]));
out:
    return started(rc, request, out);
}

enum err comm_tensors_start_messages(struct comm_tensors *tensors,
                                     const struct comm_message *messages,
                                     int count,
                                     struct comm_tensors_request **out)
{
    enum err rc = ERR_OK;
    struct comm_tensors_request *request;
    TRY_OUT(take(tensors, "messages", true, &request));
    if (is_direct(tensors))
        TRY_OUT(comm_start_messages(tensors->comm, messages, count,
                                    &request->parts[0]));
    for (int i = 0; i < count && !is_direct(tensors); i++)
        add(request, messages[i].receive, messages[i].data, messages[i].bytes,
            messages[i].peer);
out:
    return started(rc, request, out);
}

void comm_tensors_together(struct comm_tensors *tensors)
{
    assert(!tensors->together);
    tensors->together = true;
}

enum err comm_tensors_together_end(struct comm_tensors *tensors, enum err rc)
{
    tensors->together = false;
    if (rc != ERR_OK || tensors->way->start_held == NULL)
        return rc;
    rc = tensors->way->start_held(tensors);
    return rc == ERR_OK ? rc : broken(tensors, rc);
}

enum err comm_tensors_wait(struct comm_tensors_request *request,
                           double timeout_s)
{
    const struct comm_tensors *tensors = request->tensors;
    assert(request->busy);
    enum err rc = tensors->comm->broken
                      ? err_set(ERR_COMM, "%s", tensors->comm->failure)
                      : tensors->way->wait(request, timeout_s);
    if (rc != ERR_OK)
        return fail(request, rc);
    request->busy = false;
    return ERR_OK;
}

bool comm_tensors_test(struct comm_tensors_request *request)
{
    const struct comm_tensors *tensors = request->tensors;
    assert(request->busy);
    return tensors->comm->broken || tensors->way->test(request);
}

enum err comm_tensors_settle(struct comm_tensors *tensors, double timeout_s)
{
    struct timeline_span span;
    if (tensors->comm->broken)
        return err_set(ERR_COMM, "%s", tensors->comm->failure);
    timeline_begin(tensors->comm->timeline, &span, TIMELINE_WAIT);
    enum err rc = tensors->way->settle(tensors, timeout_s);
    timeline_end(&span, NULL);
    return rc == ERR_OK ? rc : broken(tensors, rc);
}

enum err comm_tensors_reach(struct comm_tensors *tensors, void *event,
                            double timeout_s)
{
    if (tensors->comm->broken)
        return err_set(ERR_COMM, "%s", tensors->comm->failure);
    struct timeline_span span;
    timeline_begin(tensors->comm->timeline, &span, TIMELINE_WAIT);
    enum err rc = tensors->way->reach == NULL
                      ? tensors->memory->event_wait(event)
                      : tensors->way->reach(tensors, event, timeout_s);
    timeline_end(&span, NULL);
    return rc == ERR_OK || tensors->way->reach == NULL ? rc
                                                       : broken(tensors, rc);
}

enum err comm_tensors_pace(struct comm_tensors *tensors, int ahead)
{
    assert(ahead >= 1 && ahead <= COMM_TENSORS_AHEAD);
    if (tensors->way->reach == NULL)
        return ERR_OK;
    void *event = tensors->paces[tensors->paced++ % (unsigned long)ahead];
    TRY(comm_tensors_reach(tensors, event, 0.0));
    return tensors->memory->event_record(event, tensors->stream);
}
