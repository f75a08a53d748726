/* NCCL's start and end: the library, a communicator of all ranks, first messages, and
 * who is not let in. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clean.h"
#include "src/base/new.h"
#include "src/comm/comm_tensors_nccl.h"

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
    TRY(comm_tensors_nccl_error(
        nccl, result == COMM_NCCL_SUCCESS ? last : result, "first messages"));
    TRY(comm_tensors_nccl_poll(tensors, "first messages", NULL,
                               0.5 * comm->timeout_s));
    TRY(memory->event_record(nccl->settled, nccl->stream));
    return comm_tensors_nccl_poll(tensors, "first messages", nccl->settled,
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
        rc = comm_tensors_nccl_error(nccl, nccl->library.unique_id(&id),
                                     "making an id");
    TRY_OUT(comm_agree(comm, rc));
    TRY_OUT(comm_broadcast(comm, &id, sizeof id, 0));
    rc = comm_tensors_nccl_error(
        nccl,
        nccl->library.init(&nccl->comm, comm->size, id, comm->rank, &config),
        "starting");
    if (rc == ERR_OK)
        rc = comm_tensors_nccl_poll(tensors, "starting", NULL,
                                    0.5 * comm->timeout_s);
    TRY_OUT(comm_agree(comm, rc));
    /* who has failed says more than who has waited for it */
    enum err met = comm->size > 1 ? greet(tensors) : ERR_OK;
    TRY_OUT(comm_agree(comm, met == ERR_COMM ? ERR_OK : met));
    TRY_OUT(comm_agree(comm, met));
out:
    if (rc != ERR_OK)
        comm_tensors_nccl_give_up(nccl);
    return rc;
}

void comm_tensors_nccl_label(const struct comm_tensors *tensors, char *text,
                             size_t bytes)
{
    const struct nccl *nccl = tensors->state;
    int version = 0;
    (void)nccl->library.version(&version);
    snprintf(text, bytes, "nccl %d.%d.%d", version / 10000, version / 100 % 100,
             version % 100);
}

/* What is set, and why; what the user has set stands as his. */
void comm_tensors_nccl_why(const struct comm_tensors *tensors, char *text,
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

enum err comm_tensors_nccl_open(struct comm_tensors *tensors)
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
    TRY(comm_tensors_nccl_poll(tensors, "ending", nccl->settled, timeout_s));
    TRY(comm_tensors_nccl_error(nccl, nccl->library.finalize(nccl->comm),
                                "ending"));
    TRY(comm_tensors_nccl_poll(tensors, "ending", NULL, timeout_s));
    (void)nccl->library.destroy(nccl->comm);
    nccl->comm = NULL;
    return ERR_OK;
}

void comm_tensors_nccl_close(struct comm_tensors *tensors)
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
    comm_tensors_nccl_give_up(nccl);
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
