/* Meetings over NCCL, between the GPUs of two ranks: what the training uses, with its
 * ways past the host's memory. Each meeting has a communicator of two, made when it
 * begins, in time that is not counted, and destroyed at the end of its round. NCCL
 * never blocks here: it is looked at until a deadline, and then aborted. */
#include <assert.h>
#include <stdlib.h>

#include "healthcheck/health_pair_impl.h"
#include "healthcheck/health_probe.h"
#include "src/base/clock.h"
#include "src/base/new.h"

#define PAIR_ID_TAG 78
#define PAIR_SEED 61
#define PAIR_SPIN_S 0.01 /* without sleep, as long as a quick sum may take */
#define PAIR_NAP_S 1e-4

struct pair_joined {
    int peer;
    void *comm;
    struct pair_joined *next;
};

struct pair_nccl {
    struct health_probe_gpu gpu;
    void *event;
    struct pair_joined *joined; /* of this round */
};

static enum err nccl_error(const struct pair_bench *bench, void *comm,
                           int result, const char *what)
{
    return comm_nccl_library_error(bench->options->nccl, comm, result, what);
}

/* Until NCCL is not busy and the event, if there is one, is reached. */
static enum err nccl_wait(const struct pair_bench *bench,
                          const struct pair_joined *joined, void *event,
                          const char *what)
{
    const struct kernel_memory *memory = bench->nccl->gpu.memory;
    double begin = clock_now(), spent_s = 0;
    for (bool done = false; !done; spent_s = clock_now() - begin) {
        int state = COMM_NCCL_SUCCESS;
        if (spent_s > bench->options->timeout_s)
            return err_set(ERR_COMM,
                           "NCCL with rank %d (%s): %s: not done within "
                           "%.3g s",
                           joined->peer, comm_host(bench->comm, joined->peer),
                           what, bench->options->timeout_s);
        if (spent_s > PAIR_SPIN_S)
            clock_sleep(PAIR_NAP_S);
        TRY(nccl_error(bench, joined->comm,
                       bench->options->nccl->async_error(joined->comm, &state),
                       what));
        TRY(nccl_error(bench, joined->comm, state, what));
        done = state == COMM_NCCL_SUCCESS;
        if (done && event != NULL)
            TRY(memory->event_done(event, &done));
    }
    return ERR_OK;
}

/* The lower rank makes the id. */
static enum err nccl_id(struct pair_bench *bench, int peer,
                        struct comm_nccl_id *id)
{
    struct comm_request *request = NULL;
    if (comm_rank(bench->comm) < peer) {
        TRY(nccl_error(bench, NULL, bench->options->nccl->unique_id(id),
                       "making an id"));
        TRY(comm_start_send(bench->comm, id, sizeof *id, peer, PAIR_ID_TAG,
                            &request));
    } else {
        TRY(comm_start_recv(bench->comm, id, sizeof *id, peer, PAIR_ID_TAG,
                            &request));
    }
    return comm_wait(request, bench->options->timeout_s);
}

/* The communicator with a peer, the same one for all sizes of a round. */
static enum err nccl_join(struct pair_bench *bench, int peer,
                          const struct pair_joined **out)
{
    struct pair_joined *joined = bench->nccl->joined;
    struct comm_nccl_id id = { { 0 } };
    struct comm_nccl_config config;
    comm_nccl_library_config(bench->options->nccl, &config);
    while (joined != NULL && joined->peer != peer)
        joined = joined->next;
    *out = joined;
    if (joined != NULL)
        return ERR_OK;
    TRY(nccl_id(bench, peer, &id));
    TRY(new_zeroed(&joined, 1));
    joined->peer = peer;
    joined->next = bench->nccl->joined;
    *out = bench->nccl->joined = joined;
    TRY(nccl_error(bench, NULL,
                   bench->options->nccl->init(&joined->comm, 2, id,
                                              comm_rank(bench->comm) > peer,
                                              &config),
                   "joining a pair"));
    return nccl_wait(bench, joined, NULL, "joining a pair");
}

static enum err nccl_fill(struct pair_bench *bench, int peer, size_t count)
{
    struct health_probe_gpu *gpu = &bench->nccl->gpu;
    bool higher = comm_rank(bench->comm) > peer;
    TRY(gpu->gpus->numbers(&gpu->ctx, DTYPE_F32, (int64_t)count,
                           PAIR_SEED + (uint32_t)higher, gpu->tensors.base));
    if (bench->wrong)
        TRY(gpu->gpus->fill(&gpu->ctx, 1, 1,
                            (uint32_t *)(void *)gpu->tensors.base));
    return gpu->memory->wait(gpu->ctx.stream);
}

static enum err nccl_sum(struct pair_bench *bench, int peer, size_t count)
{
    const struct pair_joined *joined;
    struct health_probe_gpu *gpu = &bench->nccl->gpu;
    TRY(nccl_join(bench, peer, &joined));
    TRY(nccl_error(
        bench, joined->comm,
        bench->options->nccl->all_reduce(gpu->tensors.base, gpu->tensors.base,
                                         count, COMM_NCCL_FLOAT, COMM_NCCL_SUM,
                                         joined->comm, gpu->ctx.stream),
        "a sum"));
    TRY(nccl_wait(bench, joined, NULL, "beginning a sum"));
    TRY(gpu->memory->event_record(bench->nccl->event, gpu->ctx.stream));
    return nccl_wait(bench, joined, bench->nccl->event, "a sum");
}

static enum err nccl_wrong(struct pair_bench *bench, int peer, size_t count,
                           int64_t *wrong)
{
    struct health_probe_gpu *gpu = &bench->nccl->gpu;
    uint64_t counted = 0;
    assert(peer != comm_rank(bench->comm));
    (void)peer;
    TRY(gpu->gpus->wrong_sum(&gpu->ctx, (int64_t)count, PAIR_SEED, 2,
                             (float *)(void *)gpu->tensors.base,
                             (uint64_t *)(void *)gpu->counts.base));
    TRY(health_probe_counted(gpu, &counted));
    *wrong = (int64_t)counted;
    return ERR_OK;
}

static enum err nccl_round_end(struct pair_bench *bench)
{
    const struct comm_nccl_library *nccl = bench->options->nccl;
    while (bench->nccl->joined != NULL) {
        struct pair_joined *joined = bench->nccl->joined;
        TRY(nccl_error(bench, joined->comm, nccl->finalize(joined->comm),
                       "leaving a pair"));
        TRY(nccl_wait(bench, joined, NULL, "leaving a pair"));
        (void)nccl->destroy(joined->comm);
        bench->nccl->joined = joined->next;
        free(joined);
    }
    return ERR_OK;
}

/* What is joined still is of a round that has failed. */
static void nccl_close(struct pair_bench *bench)
{
    struct pair_nccl *own = bench->nccl;
    while (own != NULL && own->joined != NULL) {
        struct pair_joined *joined = own->joined;
        if (joined->comm != NULL)
            (void)bench->options->nccl->abort(joined->comm);
        own->joined = joined->next;
        free(joined);
    }
    if (own != NULL && own->event != NULL)
        own->gpu.memory->event_destroy(own->event);
    if (own != NULL)
        health_probe_close(&own->gpu);
    free(own);
    bench->nccl = NULL;
}

const struct pair_wire health_pair_nccl = { .name = "NCCL, GPU memory",
                                            .fill = nccl_fill,
                                            .sum = nccl_sum,
                                            .wrong = nccl_wrong,
                                            .round_end = nccl_round_end,
                                            .close = nccl_close };

enum err health_pair_nccl_open(struct pair_bench *bench, size_t *bytes_max)
{
    TRY(new_zeroed(&bench->nccl, 1));
    struct health_probe_gpu *gpu = &bench->nccl->gpu;
    TRY(health_probe_open(bench->options->gpus, comm_local_rank(bench->comm),
                          gpu));
    if (*bytes_max > gpu->bytes_free / 2)
        *bytes_max = gpu->bytes_free / 2 / 4 * 4;
    TRY(gpu->memory->event_create(&bench->nccl->event));
    return gpu->memory->tensors_create(*bytes_max, &gpu->tensors);
}
