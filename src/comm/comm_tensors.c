#include "src/comm/comm_tensors.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

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
static enum err parts_wait(struct comm_tensors_request *request,
                           double timeout_s)
{
    struct comm_tensors *tensors = request->tensors;
    enum err rc = tensors->comm->broken ? ERR_COMM : ERR_OK;
    for (int i = 0; i < 2; i++) {
        if (request->parts[i] == NULL)
            continue;
        enum err part =
            comm_wait(request->parts[i], rc == ERR_OK ? timeout_s : ABANDON_S);
        rc = rc == ERR_OK ? part : rc;
        request->parts[i] = NULL;
    }
    return rc;
}

static bool parts_test(struct comm_tensors_request *request)
{
    bool done = true;
    for (int i = 0; i < 2; i++)
        if (request->parts[i] != NULL)
            done = comm_test(request->parts[i]) && done;
    return done || request->tensors->comm->broken;
}

static enum err stream_settle(struct comm_tensors *tensors, double timeout_s)
{
    (void)timeout_s;
    return tensors->memory->wait(tensors->stream);
}

static const struct comm_tensors_way direct = {
    .name = "direct",
    .wait = parts_wait,
    .test = parts_test,
    .settle = stream_settle,
};

static enum err choose(struct comm_tensors *tensors, const char *way)
{
    bool device = tensors->memory->device;
    if (strcmp(way, "auto") == 0)
        way = device ? "staged" : "direct";
    if (strcmp(way, "direct") != 0)
        return err_set(ERR_USAGE, "exchange '%s' is unknown; use auto", way);
    if (device)
        return err_set(ERR_UNSUPPORTED,
                       "exchange 'direct' is for tensors in the host's "
                       "memory; use auto");
    tensors->way = &direct;
    return ERR_OK;
}

enum err comm_tensors_create(struct comm *comm,
                             const struct kernel_memory *memory, void *stream,
                             const char *way, struct comm_tensors **out)
{
    enum err rc = ERR_OK;
    struct comm_tensors *tensors = calloc(1, sizeof *tensors);
    *out = NULL;
    if (tensors == NULL)
        rc = err_set(ERR_MEMORY, "exchange of tensors: out of memory");
    TRY(comm_agree(comm, rc));
    tensors->memory = memory;
    tensors->stream = stream;
    TRY(comm_agree(comm, comm_duplicate(comm, &tensors->comm)));
    for (int i = 0; i < COMM_TENSORS_REQUESTS; i++)
        tensors->requests[i].tensors = tensors;
    TRY(comm_agree(comm, choose(tensors, way)));
    *out = tensors;
    tensors = NULL;
out:
    comm_tensors_destroy(tensors);
    return rc;
}

void comm_tensors_destroy(struct comm_tensors *tensors)
{
    if (tensors == NULL)
        return;
    comm_destroy(tensors->comm);
    free(tensors);
}

const char *comm_tensors_way(const struct comm_tensors *tensors)
{
    return tensors->way->name;
}

struct comm *comm_tensors_comm(struct comm_tensors *tensors)
{
    return tensors->comm;
}

static enum err take(struct comm_tensors *tensors, const char *what,
                     struct comm_tensors_request **out)
{
    int i = 0;
    *out = NULL;
    if (tensors->comm->broken)
        return err_set(ERR_COMM, "%s: %s", what, tensors->comm->failure);
    while (i < COMM_TENSORS_REQUESTS && tensors->requests[i].busy)
        i++;
    if (i == COMM_TENSORS_REQUESTS)
        return err_set(ERR_INTERNAL,
                       "%s: %d operations are in flight already; wait for "
                       "some before starting more",
                       what, i);
    *out = &tensors->requests[i];
    (*out)->what = what;
    (*out)->busy = true;
    return ERR_OK;
}

static enum err started(enum err rc, struct comm_tensors_request *request,
                        struct comm_tensors_request **out)
{
    *out = rc == ERR_OK ? request : NULL;
    if (rc != ERR_OK && request != NULL) {
        rc = broken(request->tensors, rc);
        (void)parts_wait(request, 0.0);
        request->busy = false;
    }
    return rc;
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
    TRY(take(tensors, "exchange", &request));
    if ((sends && to == comm->rank) || (receives && from == comm->rank)) {
        assert(sends && receives && to == from && send_bytes == recv_bytes);
        TRY(tensors->memory->copy(tensors->stream, send_bytes, send, recv));
        goto out;
    }
    if (receives)
        TRY(comm_start_recv(comm, recv, recv_bytes, from, tag,
                            &request->parts[0]));
    if (sends)
        TRY(comm_start_send(comm, send, send_bytes, to, tag,
                            &request->parts[1]));
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
    TRY(take(tensors, "all-gather", &request));
    TRY(comm_start_all_gather(tensors->comm, data, bytes, offsets,
                              &request->parts[0]));
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
    TRY(take(tensors, "all-to-all", &request));
    TRY(comm_start_all_to_all(tensors->comm, send, send_bytes, send_offsets,
                              recv, recv_bytes, recv_offsets,
                              &request->parts[0]));
out:
    return started(rc, request, out);
}

enum err comm_tensors_wait(struct comm_tensors_request *request,
                           double timeout_s)
{
    assert(request->busy);
    enum err rc = request->tensors->way->wait(request, timeout_s);
    request->busy = false;
    return rc == ERR_OK ? rc : broken(request->tensors, rc);
}

bool comm_tensors_test(struct comm_tensors_request *request)
{
    assert(request->busy);
    return request->tensors->way->test(request);
}

enum err comm_tensors_settle(struct comm_tensors *tensors, double timeout_s)
{
    if (tensors->comm->broken)
        return err_set(ERR_COMM, "%s", tensors->comm->failure);
    enum err rc = tensors->way->settle(tensors, timeout_s);
    return rc == ERR_OK ? rc : broken(tensors, rc);
}
