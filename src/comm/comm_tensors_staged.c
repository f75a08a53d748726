/* Tensors travel through pinned host memory. Downloads and uploads have a
 * stream each, which take turns with the backend's by events, so that neither
 * holds up the other or the ops. Messages start in the order of operations, as
 * soon as what they send is here.
 *
 * An operation has four stages: download, messages, upload, and the backend's
 * stream waits for the upload. Only the host can start messages, and it may do
 * so only after the download: so operations whose downloads are not known to be
 * done are in a queue, which every start, test and wait looks at. It is a queue
 * and not a set, because all ranks must start collectives in the same order.
 *
 * Pinned memory is dear to make, so buffers of it are kept and used again: one
 * may be taken when its last upload is done, and grows to the largest operation
 * that it has served. */
#include <assert.h>
#include <stdlib.h>

#include "src/base/new.h"
#include "src/comm/comm_tensors_impl.h"

#define TRANSFER_ALIGN ((size_t)64)

struct staged {
    void *down, *up;                           /* streams */
    struct comm_tensors_request *first, *last; /* queue of downloads */
    unsigned long uses;
    struct comm_tensors_staging stagings[COMM_TENSORS_REQUESTS];
};

static void staged_close(struct comm_tensors *tensors)
{
    const struct kernel_memory *memory = tensors->memory;
    struct staged *staged = tensors->state;
    if (staged == NULL)
        return;
    /* Late peers may still read or write the memory of a failed operation. */
    bool keep = tensors->comm->broken ||
                (staged->up != NULL && memory->wait(staged->up) != ERR_OK);
    for (int i = 0; i < COMM_TENSORS_REQUESTS; i++) {
        if (!keep)
            memory->host_destroy(&staged->stagings[i].host);
        memory->event_destroy(staged->stagings[i].uploaded);
    }
    memory->stream_destroy(staged->up);
    memory->stream_destroy(staged->down);
    free(staged);
    tensors->state = NULL;
}

static enum err staged_open(struct comm_tensors *tensors)
{
    const struct kernel_memory *memory = tensors->memory;
    struct staged *staged = NULL;
    TRY(new_zeroed(&staged, 1));
    tensors->state = staged;
    TRY(memory->stream_create(true, &staged->down));
    TRY(memory->stream_create(true, &staged->up));
    for (int i = 0; i < COMM_TENSORS_REQUESTS; i++)
        TRY(memory->event_create(&staged->stagings[i].uploaded));
    return ERR_OK;
}

/* The smallest that is large enough, of equals the one used longest ago; else
 * the largest, to be made larger. */
static struct comm_tensors_staging *find_staging(struct staged *staged,
                                                 size_t bytes)
{
    struct comm_tensors_staging *best = NULL;
    for (int i = 0; i < COMM_TENSORS_REQUESTS; i++) {
        struct comm_tensors_staging *other = &staged->stagings[i];
        if (other->busy)
            continue;
        size_t has = other->host.capacity;
        size_t best_has = best != NULL ? best->host.capacity : 0;
        if (best == NULL ||
            (best_has < bytes ? has > best_has
                              : has >= bytes && has < best_has) ||
            (has == best_has && other->used < best->used))
            best = other;
    }
    return best;
}

static enum err take_staging(struct comm_tensors_request *request, size_t bytes)
{
    const struct kernel_memory *memory = request->tensors->memory;
    struct staged *staged = request->tensors->state;
    request->staging = NULL;
    if (bytes == 0)
        return ERR_OK;
    struct comm_tensors_staging *staging = find_staging(staged, bytes);
    TRY(memory->event_wait(staging->uploaded));
    if (staging->host.capacity < bytes) {
        memory->host_destroy(&staging->host);
        TRY(memory->host_create(bytes, &staging->host));
    }
    staging->busy = true;
    staging->used = ++staged->uses;
    request->staging = staging;
    return ERR_OK;
}

/* Lays out the transfers in the staging memory. What goes to several ranks lies
 * there once: in an all-gather all send the same. */
static size_t lay_out(struct comm_tensors_request *request)
{
    const struct comm_tensors_transfer *sent = NULL;
    size_t bytes = 0;
    for (int i = 0; i < request->transfer_count; i++) {
        struct comm_tensors_transfer *transfer = &request->transfers[i];
        if (!transfer->receive && sent != NULL &&
            sent->tensor == transfer->tensor &&
            sent->bytes == transfer->bytes) {
            transfer->at = sent->at;
            continue;
        }
        if (!transfer->receive)
            sent = transfer;
        transfer->at = bytes;
        bytes += (transfer->bytes + TRANSFER_ALIGN - 1) / TRANSFER_ALIGN *
                 TRANSFER_ALIGN;
    }
    return bytes;
}

static enum err download(struct comm_tensors_request *request)
{
    const struct comm_tensors *tensors = request->tensors;
    const struct kernel_memory *memory = tensors->memory;
    const struct staged *staged = tensors->state;
    const struct comm_tensors_transfer *sent = NULL;
    for (int i = 0; i < request->transfer_count; i++) {
        const struct comm_tensors_transfer *transfer = &request->transfers[i];
        if (transfer->receive || (sent != NULL && sent->at == transfer->at))
            continue;
        if (sent == NULL)
            TRY(memory->event_await(request->ready, staged->down));
        sent = transfer;
        assert(transfer->at + transfer->bytes <=
               request->staging->host.capacity);
        TRY(memory->download(staged->down, transfer->bytes, transfer->tensor,
                             request->staging->host.base + transfer->at));
    }
    return memory->event_record(request->reached, staged->down);
}

static enum err upload(struct comm_tensors_request *request)
{
    const struct kernel_memory *memory = request->tensors->memory;
    const struct staged *staged = request->tensors->state;
    struct comm_tensors_staging *staging = request->staging;
    bool any = false;
    if (staging == NULL)
        return ERR_OK;
    for (int i = 0; i < request->transfer_count; i++) {
        const struct comm_tensors_transfer *transfer = &request->transfers[i];
        if (!transfer->receive)
            continue;
        if (!any)
            TRY(memory->event_await(request->ready, staged->up));
        any = true;
        assert(transfer->at + transfer->bytes <= staging->host.capacity);
        TRY(memory->upload(staged->up, transfer->bytes,
                           staging->host.base + transfer->at,
                           transfer->tensor));
    }
    if (any)
        TRY(memory->event_record(staging->uploaded, staged->up));
    return ERR_OK;
}

static struct comm_message message_at(const void *arg, int i)
{
    const struct comm_tensors_request *request = arg;
    const struct comm_tensors_transfer *t = &request->transfers[i];
    return (struct comm_message){ request->staging->host.base + t->at, t->bytes,
                                  t->peer, t->receive };
}

static enum err start_messages(struct comm_tensors_request *request)
{
    enum err rc = ERR_OK;
    struct comm *comm = request->tensors->comm;
    struct comm_request *all = NULL;
    assert(request->collective || request->transfer_count <= 2);
    assert(request->parts[0] == NULL && request->parts[1] == NULL);
    if (request->collective) {
        TRY_OUT(comm_request_take(comm, true, request->what, &all));
        TRY_OUT(comm_messages_add(all, request->transfer_count, message_at,
                                  request));
        goto out;
    }
    for (int i = 0; i < request->transfer_count; i++) {
        struct comm_message m = message_at(request, i);
        if (m.receive)
            TRY_OUT(comm_start_recv(comm, m.data, m.bytes, m.peer, request->tag,
                                    &request->parts[0]));
        else
            TRY_OUT(comm_start_send(comm, m.data, m.bytes, m.peer, request->tag,
                                    &request->parts[1]));
    }
out:
    return request->collective
               ? comm_request_started(rc, all, &request->parts[0])
               : rc;
}

/* Start the messages of all whose downloads are done, in order: that of
 * collectives must be the same on all ranks. */
static enum err progress(struct comm_tensors *tensors)
{
    enum err rc = ERR_OK;
    struct staged *staged = tensors->state;
    while (staged->first != NULL) {
        struct comm_tensors_request *request = staged->first;
        bool done = false;
        TRY_OUT(tensors->memory->event_done(request->reached, &done));
        if (!done)
            break;
        staged->first = request->next;
        request->queued = false;
        TRY_OUT(start_messages(request));
    }
out:
    if (rc != ERR_OK)
        comm_request_break(tensors->comm);
    return rc;
}

static enum err staged_start(struct comm_tensors_request *request)
{
    struct comm_tensors *tensors = request->tensors;
    struct staged *staged = tensors->state;
    request->rc = ERR_OK;
    request->arrived = false;
    TRY(take_staging(request, lay_out(request)));
    TRY(tensors->memory->event_record(request->ready, tensors->stream));
    TRY(download(request));
    assert(!request->queued);
    request->queued = true;
    request->next = NULL;
    if (staged->first == NULL)
        staged->first = request;
    else
        staged->last->next = request;
    staged->last = request;
    return progress(tensors);
}

/* Waits for the messages for timeout_s at most, and starts the uploads. */
static void arrive(struct comm_tensors_request *request, double timeout_s)
{
    request->rc = comm_tensors_parts_wait(request, timeout_s);
    if (request->rc == ERR_OK)
        request->rc = upload(request);
    if (request->rc != ERR_OK)
        comm_request_break(request->tensors->comm);
    request->arrived = true;
}

static bool staged_test(struct comm_tensors_request *request)
{
    if (progress(request->tensors) != ERR_OK)
        return true;
    if (!request->arrived &&
        (request->queued || !comm_tensors_parts_test(request)))
        return false;
    if (!request->arrived)
        arrive(request, 0.0);
    return true;
}

static enum err staged_wait(struct comm_tensors_request *request,
                            double timeout_s)
{
    const struct comm_tensors *tensors = request->tensors;
    const struct kernel_memory *memory = tensors->memory;
    const struct staged *staged = tensors->state;
    struct comm_tensors_staging *staging = request->staging;
    TRY(progress(request->tensors));
    /* This rank's own device: it does not wait for others. */
    while (request->queued) {
        TRY(memory->event_wait(staged->first->reached));
        TRY(progress(request->tensors));
    }
    if (!request->arrived)
        arrive(request, timeout_s);
    TRY(request->rc);
    if (staging != NULL) {
        TRY(memory->event_await(staging->uploaded, tensors->stream));
        staging->busy = false;
    }
    return ERR_OK;
}

const struct comm_tensors_way comm_tensors_staged = {
    .name = "staged",
    .open = staged_open,
    .close = staged_close,
    .start = staged_start,
    .wait = staged_wait,
    .test = staged_test,
    .settle = comm_tensors_stream_settle,
};
