/* Ranks under MPI. Only nonblocking point-to-point calls are made once the
 * communicator is open; what blocks is start-up and MPI_Finalize(), the latter
 * only after a barrier of our own. So a mutex around each call is all that
 * threads with a communicator each need, and of the library no more than
 * MPI_THREAD_SERIALIZED. Point-to-point messages, collectives and roll calls have an MPI
 * communicator each, so that tags never meet: a collective's tag is its number
 * in the order in which all ranks start them.
 *
 * When a peer is dead, MPI can do no more than be left. A receive is cancelled,
 * a send cannot be and is forgotten; the end is then without MPI_Finalize(),
 * which waits for everybody, and the launcher sees a process that ends so and
 * ends the rest. */
#include "src/comm/comm_mpi_impl.h"

#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "src/base/log.h"
#include "src/base/new.h"

/* Guards the library, which is one for the process. A call to start a message may keep
 * it for good, where the peer is dead: OpenMPI's mtl/ofi goes on trying. Whoever finds
 * one call in it for limit_s takes it for lost, and from then on nobody calls it. */
static struct {
    pthread_mutex_t mutex;
    _Atomic double limit_s;
    _Atomic unsigned calls; /* so far */
    atomic_int peer;        /* whom the one at hand sends to; NOBODY */
    atomic_bool lost;
    char (*hosts)[COMM_HOST_BYTES]; /* the first communicator's */
} library = { .mutex = PTHREAD_MUTEX_INITIALIZER, .limit_s = 300.0 };

#define LOOK_S 0.1

/* Waits for the library; false: it is lost. */
bool comm_mpi_enter(int peer)
{
    struct comm_patience patience = { .timeout_s = library.limit_s };
    unsigned calls = library.calls;
    do {
        struct timespec end;
        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_nsec += (long)(LOOK_S * 1e9);
        end.tv_sec += end.tv_nsec / 1000000000;
        end.tv_nsec %= 1000000000;
        if (library.lost)
            return false;
        if (pthread_mutex_timedlock(&library.mutex, &end) == 0) {
            library.calls++;
            library.peer = peer;
            return true;
        }
        if (library.calls != calls) /* another one */
            patience = (struct comm_patience){ .timeout_s = library.limit_s };
        calls = library.calls;
    } while (comm_patience_left(&patience));
    library.lost = true;
    return false;
}

bool comm_mpi_try(void)
{
    if (library.lost || pthread_mutex_trylock(&library.mutex) != 0)
        return false;
    library.calls++;
    library.peer = NOBODY;
    return true;
}

void comm_mpi_leave(void)
{
    pthread_mutex_unlock(&library.mutex);
}

/* code = call, alone in the library */
#define MPI_ALONE(code, peer, call)                                            \
    do {                                                                       \
        (code) = MPI_ERR_PENDING;                                              \
        if (comm_mpi_enter(peer)) {                                            \
            (code) = (call);                                                   \
            comm_mpi_leave();                                                  \
        }                                                                      \
    } while (0)

#define MPI_TRY(call) MPI_TRY_TO(NOBODY, call)
#define MPI_TRY_TO(peer, call)                                                 \
    do {                                                                       \
        int mpi_code_;                                                         \
        MPI_ALONE(mpi_code_, peer, call);                                      \
        if (mpi_code_ != MPI_SUCCESS) {                                        \
            rc = mpi_error(mpi_code_, #call);                                  \
            goto out;                                                          \
        }                                                                      \
    } while (0)

struct mpi_state {
    MPI_Comm point;
    MPI_Comm collective;
    MPI_Comm roll;
    MPI_Request sign; /* of life, the last one */
    bool unheard;     /* it failed: no more to that peer */
    int *indices;     /* [2 size], of MPI_Testsome */
    MPI_Status *statuses;
    struct comm_segment segment; /* of the first communicator only */
};

static enum err lost_error(void)
{
    int peer = library.peer;
    if (peer == NOBODY)
        return err_set(ERR_COMM, "a call of MPI has not come back for %.3g s",
                       library.limit_s);
    return err_set(ERR_COMM,
                   "no answer for %.3g s from rank %d (%s): MPI does not come "
                   "back from a message to it; look there for a dead process, "
                   "or a node off the network",
                   library.limit_s, peer, library.hosts[peer]);
}

static enum err mpi_error(int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    int failed;
    if (library.lost)
        return lost_error();
    MPI_ALONE(failed, NOBODY, MPI_Error_string(code, text, &length));
    if (failed != MPI_SUCCESS)
        snprintf(text, sizeof text, "MPI error %d", code);
    return err_set(ERR_COMM, "%.40s: %s; a peer or the network failed", call,
                   text);
}

static MPI_Request *handles_of(const struct comm_request *request)
{
    return request->handles;
}

static enum err mpi_start(struct comm_request *request, int index)
{
    enum err rc = ERR_OK;
    const struct mpi_state *state = request->comm->state;
    const struct comm_transfer *transfer = &request->transfers[index];
    MPI_Comm comm = request->collective ? state->collective : state->point;
    MPI_Request *handle = &handles_of(request)[index];
    int count = (int)comm_request_fragment_bytes(transfer);
    char *data = transfer->bytes > 0 ? transfer->data + transfer->done : NULL;
    if (transfer->receive)
        MPI_TRY(MPI_Irecv(data, count, MPI_BYTE, transfer->peer, transfer->tag,
                          comm, handle));
    else
        MPI_TRY_TO(transfer->peer,
                   MPI_Isend(data, count, MPI_BYTE, transfer->peer,
                             transfer->tag, comm, handle));
    comm_mpi_progress_add(request, index, 1);
out:
    if (rc != ERR_OK)
        *handle = MPI_REQUEST_NULL;
    return rc;
}

/* The first failed one of `count` ended fragments. */
static enum err fragment_error(struct comm_request *request, int count)
{
    const struct mpi_state *state = request->comm->state;
    for (int i = 0; i < count; i++) {
        int code = state->statuses[i].MPI_ERROR;
        if (code == MPI_SUCCESS || code == MPI_ERR_PENDING)
            continue;
        int peer = request->transfers[state->indices[i]].peer;
        request->differs = code == MPI_ERR_TRUNCATE;
        return err_prefix(mpi_error(code, request->what), "rank %d (%s)", peer,
                          request->comm->hosts[peer]);
    }
    return err_set(ERR_COMM, "%s: MPI reports an error without saying which",
                   request->what);
}

/* All transfers of the request in one call: MPI makes progress with each call,
 * and one that asks for several costs little more than one that asks for one. */
static enum err mpi_poll(struct comm_request *request)
{
    enum err rc = ERR_OK;
    const struct mpi_state *state = request->comm->state;
    int count = 0;
    int code;
    MPI_ALONE(code, NOBODY,
              MPI_Testsome(request->started, handles_of(request), &count,
                           state->indices, state->statuses));
    if (count == MPI_UNDEFINED)
        count = 0;
    for (int i = 0; i < count; i++)
        comm_mpi_progress_add(request, state->indices[i], -1);
    if (code == MPI_ERR_IN_STATUS)
        return fragment_error(request, count);
    if (code != MPI_SUCCESS)
        return mpi_error(code, "MPI_Testsome()");
    for (int i = 0; i < count; i++) {
        int index = state->indices[i];
        const struct comm_transfer *transfer = &request->transfers[index];
        int bytes = (int)comm_request_fragment_bytes(transfer);
        if (transfer->receive)
            MPI_TRY(MPI_Get_count(&state->statuses[i], MPI_BYTE, &bytes));
        TRY_OUT(comm_request_fragment_done(request, index, (size_t)bytes));
    }
out:
    return rc;
}

/* A receive is withdrawn; a send is forgotten, and MPI keeps it until the
 * process ends. */
static void mpi_cancel(struct comm_request *request)
{
    MPI_Request *handles = handles_of(request);
    if (!comm_mpi_enter(NOBODY))
        return;
    for (int i = 0; i < request->started; i++) {
        if (handles[i] == MPI_REQUEST_NULL)
            continue;
        comm_mpi_progress_add(request, i, -1);
        if (request->transfers[i].receive)
            MPI_Cancel(&handles[i]);
        MPI_Request_free(&handles[i]);
    }
    comm_mpi_leave();
}

/* A sign of life where the one before has gone out: to a peer that is dead MPI would
 * connect anew each time. */
static void say_sign(const struct comm *comm, struct mpi_state *state, int peer)
{
    int gone = 1;
    if (!comm_mpi_enter(peer))
        return;
    if (state->sign != MPI_REQUEST_NULL && !state->unheard)
        state->unheard =
            MPI_Test(&state->sign, &gone, MPI_STATUS_IGNORE) != MPI_SUCCESS;
    if (gone != 0 && !state->unheard)
        state->unheard =
            MPI_Isend(&comm->place, (int)sizeof comm->place, MPI_BYTE, peer,
                      (int)COMM_HERE * COMM_NUMBERS, state->roll,
                      &state->sign) != MPI_SUCCESS;
    comm_mpi_leave();
}

/* The tag has the word and the number. What goes with it stays as long as comm; other
 * words are nothing but their tags. What fails here has no answer. */
static void mpi_say(struct comm *comm, int peer, enum comm_word word,
                    int number)
{
    struct mpi_state *state = comm->state;
    bool place = word == COMM_PLACE;
    const void *data = place ? (void *)&comm->place : comm->failure;
    int text = word == COMM_VERDICT ? (int)sizeof comm->failure : 0;
    int bytes = place ? (int)sizeof comm->place : text;
    MPI_Request handle;
    if (state->roll == MPI_COMM_NULL)
        return;
    if (comm->requests == NULL && word == COMM_HERE) {
        say_sign(comm, state, peer);
        return;
    }
    if (!comm_mpi_enter(peer))
        return;
    if (MPI_Isend(data, bytes, MPI_BYTE, peer,
                  (int)word * COMM_NUMBERS + number, state->roll,
                  &handle) == MPI_SUCCESS)
        MPI_Request_free(&handle);
    comm_mpi_leave();
}

/* A word that is there is so short that it is there as a whole. */
static bool mpi_hear(struct comm *comm, int *peer, enum comm_word *word,
                     int *number, char text[COMM_TEXT_BYTES])
{
    const struct mpi_state *state = comm->state;
    MPI_Status status;
    int found = 0;
    if (state->roll == MPI_COMM_NULL /* being made */ ||
        !comm_mpi_enter(NOBODY))
        return false;
    bool heard =
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, state->roll, &found, &status) ==
            MPI_SUCCESS &&
        found != 0 &&
        MPI_Recv(text, COMM_TEXT_BYTES, MPI_BYTE, status.MPI_SOURCE,
                 status.MPI_TAG, state->roll, MPI_STATUS_IGNORE) == MPI_SUCCESS;
    comm_mpi_leave();
    if (!heard)
        return false;
    *peer = status.MPI_SOURCE;
    *word = (enum comm_word)(status.MPI_TAG / COMM_NUMBERS);
    *number = status.MPI_TAG % COMM_NUMBERS;
    return true;
}

static enum err state_create(struct comm *comm, struct mpi_state **out)
{
    size_t size = (size_t)comm->size;
    TRY(new_zeroed(out, 1));
    struct mpi_state *state = *out;
    comm->state = state;
    state->point = MPI_COMM_NULL;
    state->collective = MPI_COMM_NULL;
    state->roll = MPI_COMM_NULL;
    state->sign = MPI_REQUEST_NULL;
    TRY(new_zeroed(&state->indices, 2 * size));
    return new_zeroed(&state->statuses, 2 * size);
}

/* MPI_Comm_idup() with a deadline. All ranks are known to take part: the caller has
 * just met them in a barrier. */
static enum err duplicate(const struct comm *comm, MPI_Comm from, MPI_Comm *to)
{
    enum err rc = ERR_OK;
    struct comm_patience patience = { .timeout_s = comm->timeout_s };
    MPI_Request request, *handle = &request;
    int done = 0;
    MPI_TRY(MPI_Comm_idup(from, to, handle));
    do
        MPI_TRY(MPI_Test(handle, &done, MPI_STATUS_IGNORE));
    while (!done && comm_patience_left(&patience));
    if (!done)
        rc = err_set(ERR_COMM,
                     "duplicate: a rank vanished within %.3g s; look for a "
                     "dead or hanging process",
                     comm->timeout_s);
    else
        MPI_TRY(MPI_Comm_set_errhandler(*to, MPI_ERRORS_RETURN));
out:
    return rc;
}

static enum err mpi_duplicate(struct comm *comm, struct comm *copy)
{
    enum err rc = ERR_OK;
    const struct mpi_state *from = comm->state;
    struct mpi_state *state = NULL;
    TRY_OUT(state_create(copy, &state));
    TRY_OUT(comm_barrier(comm));
    if (copy->requests != NULL) {
        TRY_OUT(duplicate(comm, from->point, &state->point));
        TRY_OUT(duplicate(comm, from->collective, &state->collective));
    }
    TRY_OUT(duplicate(comm, from->roll, &state->roll));
out:
    if (rc != ERR_OK)
        copy->broken = true;
    return rc;
}

static void mpi_close(struct comm *comm)
{
    struct mpi_state *state = comm->state;
    bool together = comm->requests != NULL && !comm->broken;
    if (comm->parent == NULL)
        comm_mpi_progress_end();
    if (together && comm_barrier(comm) != ERR_OK) {
        log_warn("shutdown: %s", err_text());
        together = false;
    }
    /* Without the others MPI would wait for them for ever: the process ends
     * without MPI_Finalize(), which makes the launcher end the job. */
    if (together && comm_mpi_enter(NOBODY)) {
        MPI_Comm_free(&state->point);
        MPI_Comm_free(&state->collective);
        MPI_Comm_free(&state->roll);
        comm_mpi_leave();
    }
    if (together && comm->parent == NULL) {
        comm_segment_restore(&state->segment);
        MPI_Finalize();
        comm_segment_remove(&state->segment);
    }
    free(state->statuses);
    free(state->indices);
    free(state);
}

static enum err mpi_held(double limit_s)
{
    library.limit_s = limit_s;
    return library.lost ? lost_error() : ERR_OK;
}

/* A thread that never leaves the library must not keep the process. */
static void mpi_abort(struct comm *comm, int exit_code)
{
    (void)comm;
    library.limit_s = 1.0;
    if (comm_mpi_enter(NOBODY))
        MPI_Abort(MPI_COMM_WORLD, exit_code);
}

static const struct comm_transport mpi_transport = {
    .handle_bytes = sizeof(MPI_Request),
    .start = mpi_start,
    .poll = mpi_poll,
    .cancel = mpi_cancel,
    .say = mpi_say,
    .hear = mpi_hear,
    .held = mpi_held,
    .duplicate = mpi_duplicate,
    .close = mpi_close,
    .abort = mpi_abort,
};

/* Make every local rank map every other's segment: messages all ways. */
static enum err meet_local_ranks(MPI_Comm local, int size)
{
    enum err rc = ERR_OK;
    MPI_Request *handles = NULL;
    TRY(new_room(&handles, 2 * (size_t)size));
    for (int r = 0; r < size; r++) {
        MPI_TRY(MPI_Irecv(NULL, 0, MPI_BYTE, r, 0, local, &handles[2 * r]));
        MPI_TRY(MPI_Isend(NULL, 0, MPI_BYTE, r, 0, local, &handles[2 * r + 1]));
    }
    MPI_TRY(MPI_Waitall(2 * size, handles, MPI_STATUSES_IGNORE));
    MPI_TRY(MPI_Barrier(local));
out:
    free(handles);
    return rc;
}

static enum err start_mpi(int *argc, char ***argv)
{
    enum err rc = ERR_OK;
    int started = 0;
    int provided = 0;
    MPI_TRY(MPI_Initialized(&started));
    if (started)
        TRY_OUT(err_set(ERR_INTERNAL, "MPI can be started only once"));
#if OMPI_MAJOR_VERSION < 5 /* messages stand still in them: DESIGN.md */
    setenv("OMPI_MCA_mtl_ofi_provider_exclude",
           "shm,sockets,tcp,udp,rstream,usnic,net,tcp;ofi_rxm,udp;ofi_rxd", 0);
    setenv("OMPI_MCA_btl_tcp_links", "2", 0); /* both ways at once: DESIGN.md */
#endif
    /* before a CUDA-aware MPI's first call of CUDA: DESIGN.md */
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    MPI_TRY(MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &provided));
    if (provided < MPI_THREAD_SERIALIZED)
        rc = err_set(ERR_UNSUPPORTED,
                     "this MPI can't be called by several threads in turn; "
                     "install one with MPI_THREAD_SERIALIZED");
    /* OpenMPI writes to sockets of ranks that have died: that is an error to be
     * told, not the end of this one. */
    signal(SIGPIPE, SIG_IGN);
out:
    return rc;
}

enum err comm_mpi_open(struct comm *comm, int *argc, char ***argv)
{
    enum err rc = ERR_OK;
    struct mpi_state *state = NULL;
    struct comm_segment segment;
    MPI_Comm local = MPI_COMM_NULL, world;
    comm->transport = &mpi_transport;
    comm_segment_create(&segment);
    rc = start_mpi(argc, argv);
    comm_segment_forget(&segment);
    TRY_OUT(rc);
    MPI_TRY(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI_TRY(MPI_Comm_rank(MPI_COMM_WORLD, &comm->rank));
    MPI_TRY(MPI_Comm_size(MPI_COMM_WORLD, &comm->size));
    TRY_OUT(comm_mpi_check_world(comm));
    TRY_OUT(state_create(comm, &state));
    TRY_OUT(comm_mpi_order(comm, &world));
    library.hosts = comm->hosts;
    MPI_TRY(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, comm->rank,
                                MPI_INFO_NULL, &local));
    MPI_TRY(MPI_Comm_rank(local, &comm->local_rank));
    MPI_TRY(MPI_Comm_size(local, &comm->local_size));
    TRY_OUT(meet_local_ranks(local, comm->local_size));
    MPI_TRY(MPI_Comm_free(&local));
    MPI_TRY(MPI_Comm_dup(world, &state->point));
    MPI_TRY(MPI_Comm_dup(world, &state->collective));
    MPI_TRY(MPI_Comm_dup(world, &state->roll));
    if (world != MPI_COMM_WORLD)
        MPI_TRY(MPI_Comm_free(&world));
out:
    comm_segment_remove(&segment);
    if (state != NULL)
        state->segment = segment;
    if (rc == ERR_OK)
        comm_mpi_progress_begin(comm, state->roll);
    return rc;
}
