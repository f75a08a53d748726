/* Chooses the transport, turns operations into transfers, and waits with a
 * deadline. It sends what the host reaches; tensors of a device go by
 * comm_tensors.c.
 *
 * MPI's collectives cannot be waited for with a deadline that names who is
 * missing: a rank that has died leaves all others in a call that never returns,
 * or in one that says no more than that it is not done. So no collective of
 * MPI's is used here. What is small goes by trees (comm_tree.c), a message to a
 * few ranks each; bulk goes from everybody to everybody at once. A deadline that passes
 * calls the roll (comm_roll.c), which finds those who are missing by asking.
 *
 * A wait polls. First it spins, as most answers are on their way; then it gives
 * the processor away, since there may be more ranks than cores; then it sleeps
 * a tenth of what it has waited. The deadline is of time in which this process
 * ran: after a stop (SIGSTOP, a suspended machine) the time between two polls
 * is long, and is added to the deadline, or a job that is resumed would blame
 * its peers. */
#include "src/comm/comm.h"

#include <assert.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/new.h"
#include "src/comm/comm_impl.h"

/* Waiting: poll without pause at first, then let others run, then sleep a
 * tenth of what was waited, so that the sleep costs at most a tenth. */
#define SPIN_S 50e-6
#define YIELD_S 500e-6
#define SLEEP_MAX_S 1e-3
/* Between two polls nobody sleeps that long: this process was stopped. */
#define STOPPED_S 1.0

static long env_number(const char *name)
{
    const char *text = getenv(name);
    return text != NULL ? strtol(text, NULL, 10) : 0;
}

/* Whether the environment shows several tasks started together. */
static bool launched(void)
{
    static const char *const counts[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE" };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        if (getenv(counts[i]) != NULL)
            return env_number(counts[i]) > 1;
    }
    /* A batch script has SLURM_PROCID too, but no number of tasks. */
    if (getenv("SLURM_PROCID") != NULL || getenv("SLURM_STEP_ID") != NULL) {
        if (getenv("SLURM_STEP_NUM_TASKS") != NULL)
            return env_number("SLURM_STEP_NUM_TASKS") > 1;
    }
    return getenv("PMIX_RANK") != NULL || getenv("PMI_RANK") != NULL;
}

static enum err open_transport(struct comm *comm, const char *kind, int *argc,
                               char ***argv)
{
    if (strcmp(kind, "self") == 0)
        return comm_self_open(comm);
#if TESSERA_WITH_MPI
    return comm_mpi_open(comm, argc, argv);
#else
    (void)argc;
    (void)argv;
    return err_set(ERR_UNSUPPORTED,
                   "this program was built without MPI and cannot be one of "
                   "several ranks; build with MPI=1 or start one task");
#endif
}

enum err comm_create(const char *kind, int *argc, char ***argv,
                     double timeout_s, struct comm **out)
{
    assert(timeout_s > 0.0);
    enum err rc = ERR_OK;
    struct comm *comm = NULL;
    *out = NULL;
    if (strcmp(kind, "auto") == 0)
        kind = launched() ? "mpi" : "self";
    if (strcmp(kind, "self") != 0 && strcmp(kind, "mpi") != 0)
        return err_set(ERR_USAGE,
                       "communication '%s' is unknown; use auto, self or mpi",
                       kind);
    TRY(new_zeroed(&comm, 1));
    comm->next = comm;
    comm->timeout_s = timeout_s;
    comm->timeline_kind = TIMELINE_AGREE;
    TRY_OUT(open_transport(comm, kind, argc, argv));
    TRY_OUT(comm_request_pool_create(comm));
out:
    return new_or_none(rc, comm, out, comm_destroy);
}

/* With requests, or for words alone. */
static enum err duplicate(struct comm *comm, bool requests, struct comm **out)
{
    enum err rc = ERR_OK;
    *out = NULL;
    struct comm *copy = NULL;
    TRY(new_zeroed(&copy, 1));
    assert(comm->rank >= 0 && comm->rank < comm->size);
    copy->transport = comm->transport;
    copy->parent = comm;
    comm->duplicates++;
    copy->number = comm->number * 16 + ++comm->made;
    copy->next = comm->next;
    comm->next = copy;
    copy->rank = comm->rank;
    copy->size = comm->size;
    copy->local_rank = comm->local_rank;
    copy->local_size = comm->local_size;
    copy->timeout_s = comm->timeout_s;
    copy->timeline = comm->timeline;
    copy->timeline_kind = comm->timeline_kind;
    copy->hosts = comm->hosts;
    copy->nodes = comm->nodes;
    copy->beat = comm->beat;
    if (requests)
        TRY_OUT(comm_request_pool_create(copy));
    if (comm->transport->duplicate != NULL)
        TRY_OUT(comm->transport->duplicate(comm, copy));
out:
    return new_or_none(rc, copy, out, comm_destroy);
}

enum err comm_duplicate(struct comm *comm, struct comm **out)
{
    return duplicate(comm, true, out);
}

enum err comm_duplicate_words(struct comm *comm, struct comm **out)
{
    TRY(duplicate(comm, false, out));
    comm_detach(*out);
    return ERR_OK;
}

void comm_detach(struct comm *duplicate)
{
    struct comm *before = duplicate;
    while (before->next != duplicate)
        before = before->next;
    before->next = duplicate->next;
    duplicate->next = duplicate;
    duplicate->beat = NULL;
}

void comm_destroy(struct comm *comm)
{
    if (comm == NULL)
        return;
    comm_beat_stop(comm);
    assert(comm->duplicates == 0);
    if (comm->state != NULL)
        comm->transport->close(comm);
    comm_detach(comm);
    if (comm->parent != NULL)
        comm->parent->duplicates--;
    comm_request_pool_destroy(comm);
    if (comm->parent == NULL) {
        free(comm->hosts);
        free(comm->nodes);
    }
    free(comm);
}

_Noreturn void comm_abort(struct comm *comm, int exit_code)
{
    if (comm->transport->abort != NULL)
        comm->transport->abort(comm, exit_code);
    _Exit(exit_code);
}

void comm_on_leave(struct comm *comm, comm_leaver leaver, void *arg)
{
    comm->leaver_arg = arg;
    comm->leaver = leaver;
}

void comm_left(struct comm *comm, enum err rc)
{
    if (comm->leaver != NULL)
        comm->leaver(comm->leaver_arg, rc);
}

enum err comm_verdict(struct comm *comm)
{
    while (comm->parent != NULL)
        comm = comm->parent;
    return comm_told(comm) ? err_set(ERR_COMM, "%s", comm->failure) : ERR_OK;
}

void comm_set_timeline(struct comm *comm, struct timeline *timeline, int kind)
{
    comm->timeline = timeline;
    comm->timeline_kind = kind;
}

enum err comm_start_send(struct comm *comm, const void *data, size_t bytes,
                         int to, int tag, struct comm_request **out)
{
    enum err rc = ERR_OK;
    struct comm_request *request = NULL;
    TRY_OUT(comm_request_take(comm, false, "send", &request));
    TRY_OUT(comm_request_add(request, false, (void *)data, bytes, to, tag));
out:
    return comm_request_started(rc, request, out);
}

enum err comm_start_recv(struct comm *comm, void *data, size_t bytes, int from,
                         int tag, struct comm_request **out)
{
    enum err rc = ERR_OK;
    struct comm_request *request = NULL;
    TRY_OUT(comm_request_take(comm, false, "receive", &request));
    TRY_OUT(comm_request_add(request, true, data, bytes, from, tag));
out:
    return comm_request_started(rc, request, out);
}

/* A message from each rank, or to each, which is bytes[r] at data + offsets[r]. */
static enum err add_all(struct comm_request *request, bool receive,
                        const void *data, const size_t *bytes,
                        const size_t *offsets)
{
    for (int i = 1; i < request->comm->size; i++) {
        int r = comm_peer(request->comm, receive ? -i : i);
        if (bytes[r] > 0)
            TRY(comm_request_add(request, receive, (char *)data + offsets[r],
                                 bytes[r], r, request->tag));
    }
    return ERR_OK;
}

enum err comm_start_all_gather(struct comm *comm, void *data,
                               const size_t *bytes, const size_t *offsets,
                               struct comm_request **out)
{
    enum err rc = ERR_OK;
    struct comm_request *request = NULL;
    char *own = (char *)data + offsets[comm->rank];
    size_t own_bytes = bytes[comm->rank];
    TRY_OUT(comm_request_take(comm, true, "all-gather", &request));
    comm_beat_began(request, bytes[0]);
    if (comm_tree_gathers(comm, bytes)) {
        TRY_OUT(comm_tree_all_gather(request, data, bytes, offsets));
        goto out;
    }
    TRY_OUT(add_all(request, true, data, bytes, offsets));
    for (int i = 1; i < comm->size && own_bytes > 0; i++)
        TRY_OUT(comm_request_add(request, false, own, own_bytes,
                                 comm_peer(comm, i), request->tag));
out:
    return comm_request_started(rc, request, out);
}

enum err comm_start_broadcast(struct comm *comm, void *data, size_t bytes,
                              int root, struct comm_request **out)
{
    assert(root >= 0 && root < comm->size);
    enum err rc = ERR_OK;
    struct comm_request *request = NULL;
    TRY_OUT(comm_request_take(comm, true, "broadcast", &request));
    comm_beat_began(request, bytes);
    TRY_OUT(comm_tree_broadcast(request, data, bytes, root));
out:
    return comm_request_started(rc, request, out);
}

enum err comm_start_all_reduce_i64(struct comm *comm, int64_t *values,
                                   size_t count, enum comm_op op,
                                   struct comm_request **out)
{
    enum err rc = ERR_OK;
    assert(op == COMM_SUM || op == COMM_MAX || op == COMM_MIN);
    struct comm_request *request = NULL;
    TRY_OUT(comm_request_take(comm, true, "all-reduce", &request));
    comm_beat_began(request, count);
    request->fold = (struct comm_fold){ .active = comm->size > 1 && count > 0,
                                        .values = values,
                                        .count = count,
                                        .op = op };
    if (request->fold.active)
        TRY_OUT(comm_tree_fold(request));
out:
    return comm_request_started(rc, request, out);
}

enum err comm_start_all_to_all(struct comm *comm, const void *send,
                               const size_t *send_bytes,
                               const size_t *send_offsets, void *recv,
                               const size_t *recv_bytes,
                               const size_t *recv_offsets,
                               struct comm_request **out)
{
    enum err rc = ERR_OK;
    struct comm_request *request = NULL;
    int me = comm->rank;
    assert(send_bytes[me] == recv_bytes[me]);
    TRY_OUT(comm_request_take(comm, true, "all-to-all", &request));
    comm_beat_began(request, 0);
    TRY_OUT(add_all(request, true, recv, recv_bytes, recv_offsets));
    TRY_OUT(add_all(request, false, send, send_bytes, send_offsets));
    if (send_bytes[me] > 0)
        memcpy((char *)recv + recv_offsets[me],
               (const char *)send + send_offsets[me], send_bytes[me]);
out:
    return comm_request_started(rc, request, out);
}

enum err comm_start_barrier(struct comm *comm, struct comm_request **out)
{
    enum err rc = ERR_OK;
    struct comm_request *request = NULL;
    atomic_thread_fence(memory_order_seq_cst);
    TRY_OUT(comm_request_take(comm, true, "barrier", &request));
    comm_beat_began(request, 0);
    TRY_OUT(comm_tree_barrier(request, NULL, comm->size, comm->rank));
out:
    return comm_request_started(rc, request, out);
}

bool comm_test(struct comm_request *request)
{
    assert(request->busy);
    comm_request_progress(request->comm);
    return comm_request_poll(request);
}

static void pause_after(double waited_s)
{
    if (waited_s < SPIN_S)
        return;
    if (waited_s < YIELD_S) {
        sched_yield();
        return;
    }
    double sleep_s = 0.1 * waited_s;
    clock_sleep(sleep_s < SLEEP_MAX_S ? sleep_s : SLEEP_MAX_S);
}

bool comm_patience_left(struct comm_patience *patience)
{
    double now = clock_now();
    if (patience->begin == 0.0)
        patience->begin = patience->last = now;
    if (now - patience->last > STOPPED_S)
        patience->begin += now - patience->last;
    patience->last = now;
    double waited_s = now - patience->begin;
    if (waited_s >= patience->timeout_s)
        return false;
    pause_after(waited_s);
    return true;
}

static enum err give_up(struct comm_request *request, double timeout_s)
{
    char missing[COMM_TEXT_BYTES / 2];
    comm_roll_missing(request, missing, sizeof missing);
    enum err rc = err_set(ERR_COMM,
                          "%s: no answer within %.3g s from %s; look there for "
                          "a dead or hanging process",
                          request->what, timeout_s, missing);
    rc = comm_beat_places(request, rc);
    comm_request_fail(request);
    return rc;
}

static enum err wait_until_done(struct comm_request *request, double timeout_s)
{
    struct comm *comm = request->comm;
    assert(request->busy);
    if (timeout_s <= 0.0)
        timeout_s = comm->timeout_s;
    struct comm_patience patience = { .timeout_s = timeout_s };
    bool done = comm_request_poll(request);
    if (!done) {
        comm_beat_waits(comm, true);
        timeline_enter(request->what); /* the span's end leaves it */
        while (!done && comm_patience_left(&patience)) {
            comm_request_progress(comm);
            done = comm_request_poll(request);
        }
        done = done || comm_roll_call(request, patience.begin, timeout_s);
        comm_beat_waits(comm, false);
    }
    atomic_thread_fence(memory_order_seq_cst);
    enum err rc = request->rc;
    if (!done)
        rc = give_up(request, timeout_s);
    else if (rc != ERR_OK)
        rc = err_set(rc, "%s", comm->failure);
    comm_request_release(request);
    return rc;
}

/* A wait as a span: what for, and the bytes that travel. */
static struct timeline_detail detail_of(const struct comm_request *request)
{
    struct timeline_detail detail = { .label = request->what };
    for (int i = 0; i < request->transfer_count; i++)
        detail.bytes += (double)request->transfers[i].bytes;
    return detail;
}

enum err comm_wait(struct comm_request *request, double timeout_s)
{
    struct timeline_span span;
    struct comm *comm = request->comm;
    struct timeline_detail detail = { 0 };
    if (timeline_on(comm->timeline))
        detail = detail_of(request);
    timeline_begin(comm->timeline, &span, comm->timeline_kind);
    enum err rc = wait_until_done(request, timeout_s);
    timeline_end(&span, &detail);
    return rc;
}

enum err comm_broadcast(struct comm *comm, void *data, size_t bytes, int root)
{
    struct comm_request *request;
    TRY(comm_start_broadcast(comm, data, bytes, root, &request));
    return comm_wait(request, 0.0);
}

enum err comm_all_gather(struct comm *comm, void *data, const size_t *bytes,
                         const size_t *offsets)
{
    struct comm_request *request;
    TRY(comm_start_all_gather(comm, data, bytes, offsets, &request));
    return comm_wait(request, 0.0);
}

enum err comm_gather_rows(struct comm *comm, void *rows, size_t bytes)
{
    size_t *sizes = comm_sizes(comm, 0), *offsets = comm_sizes(comm, 1);
    for (int r = 0; r < comm->size; r++) {
        sizes[r] = bytes;
        offsets[r] = (size_t)r * bytes;
    }
    return comm_all_gather(comm, rows, sizes, offsets);
}

enum err comm_all_reduce_i64(struct comm *comm, int64_t *values, size_t count,
                             enum comm_op op)
{
    struct comm_request *request;
    TRY(comm_start_all_reduce_i64(comm, values, count, op, &request));
    return comm_wait(request, 0.0);
}

enum err comm_barrier(struct comm *comm)
{
    struct comm_request *request;
    TRY(comm_start_barrier(comm, &request));
    return comm_wait(request, 0.0);
}

enum err comm_agree(struct comm *comm, enum err rc)
{
    enum err own = rc;
    char text[COMM_TEXT_BYTES] = "";
    /* One number has both, so that one reduction decides: the largest code, and of
     * the ranks that have it the lowest, whose text is then everybody's. */
    int64_t worst = (int64_t)own * comm->size + (comm->size - 1 - comm->rank);
    assert((int)own >= 0 && own < ERR_COUNT);
    if (own != ERR_OK)
        snprintf(text, sizeof text, "%s", err_text());
    TRY(comm_all_reduce_i64(comm, &worst, 1, COMM_MAX));
    rc = (enum err)(worst / comm->size);
    if (rc == ERR_OK)
        return ERR_OK;
    int rank = comm->size - 1 - (int)(worst % comm->size);
    TRY(comm_broadcast(comm, text, sizeof text, rank));
    if (own == ERR_OK)
        return err_set(rc, "rank %d (%s): %s", rank, comm->hosts[rank], text);
    return rc;
}
