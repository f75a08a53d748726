/* What the parts of src/comm share; nobody else includes this.
 *
 * Every operation is a set of transfers (one message to or from one peer each)
 * that are all in flight together, so that at a deadline the peers from which
 * nothing came are known exactly. A transport moves transfers; comm_request.c
 * keeps them and strings them together; comm.c waits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/base/timeline.h"
#include "src/comm/comm.h"

#define COMM_HOST_BYTES 64
#define COMM_TEXT_BYTES 512
#define COMM_TAG_MAX 32767 /* the least that MPI promises */
/* Longer messages are cut into fragments of this many bytes: MPI counts are int,
 * and a smaller fragment costs nothing. */
#define COMM_FRAGMENT_BYTES ((size_t)64 << 20)
/* Integers of one rank that are combined at once. */
#define COMM_FOLD_COUNT 16
/* Operations in flight at once. */
#define COMM_POINT_REQUESTS 256
#define COMM_COLLECTIVE_REQUESTS 64
#define COMM_SIZES 4

struct comm_transfer {
    char *data; /* only read when sending */
    size_t bytes;
    size_t done; /* bytes of completed fragments */
    int peer;
    int tag;
    bool receive;
    bool complete;
};

/* Integers of all ranks combined: one round per COMM_FOLD_COUNT integers. */
struct comm_fold {
    bool active;
    int64_t *values;
    size_t count;
    size_t done;
    enum comm_op op;
};

struct comm_request {
    struct comm *comm;
    const char *what; /* for error texts: "barrier" */
    bool busy;        /* handed out */
    bool collective;  /* travels apart from point-to-point messages */
    bool staged;      /* more is to be started after what is in flight */
    bool done;
    enum err rc;
    int tag; /* of a collective */
    int transfer_count;
    int transfer_max;
    int pending; /* transfers not complete */
    struct comm_transfer *transfers;
    void *handles; /* transport's, one per transfer */
    struct comm_fold fold;
    int64_t *fold_scratch; /* [size][COMM_FOLD_COUNT]; collectives only */
};

/* For one rank alone all members are 0: nothing is ever started. */
struct comm_transport {
    size_t handle_bytes; /* zeroed until the first start */
    /* Start the next fragment of transfer `index`. */
    enum err (*start)(struct comm_request *request, int index);
    /* Report fragments that ended by comm_request_fragment_done(). */
    enum err (*poll)(struct comm_request *request);
    /* Let go of what is still in flight. */
    void (*cancel)(struct comm_request *request);
    /* Fill copy->state. */
    enum err (*duplicate)(struct comm *comm, struct comm *copy);
    /* Free comm->state. */
    void (*close)(struct comm *comm);
    /* Does not return. */
    void (*abort)(struct comm *comm, int exit_code);
};

struct comm {
    const struct comm_transport *transport;
    void *state; /* transport's */
    struct comm *parent;
    int duplicates;    /* alive */
    struct comm *next; /* ring of a comm and its duplicates of this thread */
    int staged_count;  /* requests with more to be started */
    int rank, size;
    int local_rank, local_size;
    double timeout_s;
    struct timeline *timeline; /* borrowed; NULL: none */
    int timeline_kind;
    char (*hosts)[COMM_HOST_BYTES];
    size_t *sizes; /* [COMM_SIZES][size] */
    bool broken;
    char failure[COMM_TEXT_BYTES]; /* why it is broken */
    int sequence;                  /* of collectives, modulo the tag range */
    bool window_refused;           /* and said in the log */
    struct comm_request *requests; /* points, then collectives */
    struct comm_transfer *transfers;
    char *handles;
    int64_t *fold_scratch;
};

/* The rank `i` places after this one, or before it: each begins with another
 * peer, so that they do not all press on the same one. -size < i < size. */
static inline int comm_peer(const struct comm *comm, int i)
{
    return (comm->rank + i + comm->size) % comm->size;
}

/* Open a transport: fill transport, state, rank, size, local_*, hosts of a
 * zeroed comm. On failure what was filled is released by comm_destroy(). */
enum err comm_self_open(struct comm *comm);
#if TESSERA_WITH_MPI
enum err comm_mpi_open(struct comm *comm, int *argc, char ***argv);
#endif

/* Where OpenMPI puts the shared-memory segment of this process: a folder in
 * /dev/shm with a name that no later attempt can meet, removed as soon as all
 * local ranks have mapped the segment, so that nothing stays after a SIGKILL.
 */
#define COMM_SEGMENT_FILES 4
struct comm_segment {
    char path[64]; /* empty: left to MPI */
    int count;
    char files[COMM_SEGMENT_FILES][128];
};
/* Before MPI starts: make the folder and tell OpenMPI by the environment,
 * unless the user has chosen one. */
void comm_segment_create(struct comm_segment *segment);
/* MPI has started: no child process may inherit the setting. */
void comm_segment_forget(const struct comm_segment *segment);
/* Remove the folder, remembering what was in it. */
void comm_segment_remove(struct comm_segment *segment);
/* Before MPI_Finalize(), which complains about files that it can't remove: put
 * empty ones there. */
void comm_segment_restore(const struct comm_segment *segment);

/* One wait with a deadline; begins with the first call when zeroed. */
struct comm_patience {
    double timeout_s;
    double begin, last;
};
/* False when the deadline has passed, else after a pause that is longer the
 * longer the wait has lasted. Time in which this process was stopped does not
 * count. */
bool comm_patience_left(struct comm_patience *patience);

/* Allocate the requests of an opened comm; free them. */
enum err comm_request_pool_create(struct comm *comm);
void comm_request_pool_destroy(struct comm *comm);

/* Take a free request; its transfers are empty. ERR_COMM when broken. */
enum err comm_request_take(struct comm *comm, bool collective, const char *what,
                           struct comm_request **out);
/* The comm is broken from now on, and the first reason stays: err_text(). */
void comm_request_break(struct comm *comm);
/* The same, and let go of what the request still has in flight. */
void comm_request_fail(struct comm_request *request);
void comm_request_release(struct comm_request *request);
/* Add a transfer and start it. */
enum err comm_request_add(struct comm_request *request, bool receive,
                          void *data, size_t bytes, int peer, int tag);
/* Begin combining request->fold, which is set but for `done`. */
enum err comm_request_fold(struct comm_request *request);
/* The end of every start function: all transfers are added (the request is done
 * at once if there are none), or that has failed with rc. */
enum err comm_request_started(enum err rc, struct comm_request *request,
                              struct comm_request **out);
/* Advance; true when done, or failed (rc). */
bool comm_request_poll(struct comm_request *request);
/* Poll all requests of the comm and its duplicates that have more to be
 * started: a peer may wait for that while this rank waits for something else.
 */
void comm_request_progress(struct comm *comm);
/* The transport says: a fragment of this many bytes ended. */
enum err comm_request_fragment_done(struct comm_request *request, int index,
                                    size_t bytes);
/* Bytes of the fragment in flight. */
size_t comm_request_fragment_bytes(const struct comm_transfer *transfer);
/* Names the peers on which it waits: "rank 3 (host)". */
void comm_request_missing(const struct comm_request *request, char *text,
                          size_t bytes);
