/* What the parts of src/comm share; nobody else includes this.
 *
 * Every operation is a set of transfers (one message to or from one peer each)
 * in rounds: those of a round are in flight together. A transport moves
 * transfers; comm_request.c keeps them and strings them together; comm_tree.c
 * makes those of trees; comm.c waits; comm_roll.c finds who is missing, comm_place.c
 * says what the others are at. */
#pragma once

#include <pthread.h>
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
/* Integers that are combined at once. */
#define COMM_FOLD_COUNT 2048
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
    int round; /* is started when those before it are over */
    bool receive;
    bool complete;
};

/* Integers of all ranks combined, COMM_FOLD_COUNT at a time. */
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
    bool differs; /* another rank sends what belongs to another operation */
    enum err rc;
    int tag; /* of a collective */
    int transfer_count;
    int transfer_max;
    int round;   /* of transfers that are added */
    int started; /* the first so many */
    int ended;   /* and what came with these is combined */
    int pending; /* transfers started and not complete */
    struct comm_transfer *transfers;
    void *handles;      /* transport's, one per transfer */
    bool tree;          /* not every member sends to this rank itself */
    const int *members; /* of a tree, borrowed; NULL: all ranks */
    int member_count;
    struct comm_fold fold;
    int64_t *fold_scratch; /* [COMM_FOLD_COUNT]; collectives only */
};

/* What ranks say at a roll call, about the collective with a number. */
#define COMM_WORDS 8
#define COMM_NUMBERS ((COMM_TAG_MAX + 1) / COMM_WORDS) /* modulo this */
enum comm_word {
    COMM_CALLED,  /* who is there? And of an own call: nothing was answered */
    COMM_HERE,    /* I wait, and have begun it */
    COMM_BEHIND,  /* I wait for something before it */
    COMM_VERDICT, /* it has failed, for this reason */
    COMM_WHERE,   /* of threads for signs of life: what are you at? */
    COMM_PLACE    /* this */
};

#define COMM_PLACE_OPS 8
#define COMM_PLACE_BYTES 96
#define COMM_PLACE_LINES 16
/* What the main thread of a rank is at. */
struct comm_place {
    enum { COMM_SILENT, COMM_WAITS, COMM_WORKS, COMM_RESTS } state;
    double since_s;
    int64_t step;
    uint64_t ops[COMM_PLACE_OPS]; /* collectives begun last, comm_place_op() */
    char at[COMM_PLACE_BYTES];    /* the spans that are open, outermost first */
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
    /* Say a word; a verdict goes with comm->failure, a place and a sign of life with
     * comm->place. Who can't be reached does not hear it. */
    void (*say)(struct comm *comm, int peer, enum comm_word word, int number);
    /* The next word that came; false: there is none. Text of a verdict, or a place. */
    bool (*hear)(struct comm *comm, int *peer, enum comm_word *word,
                 int *number, char text[COMM_TEXT_BYTES]);
    /* From now on a call may keep the transport for limit_s, no longer. ERR_COMM: one
     * has, and names whom it is for; no call does anything any more. */
    enum err (*held)(double limit_s);
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
    int number, made; /* the same on all ranks; of duplicates of it */
    int local_rank, local_size;
    double timeout_s;
    struct timeline *timeline; /* borrowed; NULL: none */
    int timeline_kind;
    /* Hosts and nodes are the first communicator's, which outlives duplicates. */
    char (*hosts)[COMM_HOST_BYTES];
    int *nodes;    /* [size] the lowest rank with the same host */
    size_t *sizes; /* [COMM_SIZES][size] */
    bool broken;
    char failure[COMM_TEXT_BYTES]; /* why it is broken */
    int sequence;                  /* of collectives, modulo the tag range */
    bool window_refused;           /* and said in the log */
    bool told;                     /* why it is broken all ranks are told */
    double told_s, called_s;       /* when; when a rank last called the roll */
    unsigned looks;                /* of comm_request_progress() */
    double looked_s;               /* for words, the last time */
    struct comm_place place;       /* that was said last */
    int roll_number;               /* of the collective of the own roll call */
    enum comm_word *roll;          /* [size] answers to it */
    comm_leaver leaver;            /* comm_on_leave() */
    void *leaver_arg;
    struct comm_beat *beat; /* the first one's; NULL: none, or detached */
    struct comm_request *requests; /* collectives, then points */
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

/* Number of bits: 0 of 0, 1 of 1, 2 of 2 and 3. */
static inline int comm_bits(int number)
{
    int bits = 0;
    for (; number > 0; number /= 2)
        bits++;
    return bits;
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

/* comm->nodes, by the hosts. */
enum err comm_request_nodes(struct comm *comm);
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
/* The messages of a collective of which at(arg, i) is the i-th (comm_messages.c). */
enum err comm_messages_add(struct comm_request *request, int count,
                           struct comm_message (*at)(const void *arg, int i),
                           const void *arg);
/* Add a transfer to request->round, and start it if that is the first. */
enum err comm_request_add(struct comm_request *request, bool receive,
                          void *data, size_t bytes, int peer, int tag);
/* Add the transfers of a tree (comm_tree.c). Of these members this rank has the
 * place `own`; NULL: of all ranks. */
enum err comm_tree_barrier(struct comm_request *request, const int *members,
                           int count, int own);
enum err comm_tree_broadcast(struct comm_request *request, void *data,
                             size_t bytes, int root);
/* False: the parts are so large that each goes to everybody at once. */
bool comm_tree_gathers(const struct comm *comm, const size_t *bytes);
enum err comm_tree_all_gather(struct comm_request *request, char *data,
                              const size_t *bytes, const size_t *offsets);
/* The next integers of request->fold; how many these are. */
enum err comm_tree_fold(struct comm_request *request);
size_t comm_tree_fold_count(const struct comm_fold *fold);

/* Take in what others say, and answer. */
void comm_roll_hear(struct comm *comm);
/* All ranks learn why comm is broken; once. */
void comm_roll_tell(struct comm *comm);
/* What is not comm's own has failed here with rc, or met a deadline of timeout_s:
 * calls the roll. ERR_COMM names who does not answer, or is a verdict that came; else
 * rc, and its text says that all are there. All ranks are told. */
enum err comm_roll_blame(struct comm *comm, enum err rc, double timeout_s);
/* The request's wait of timeout_s, from begin_s on, has come to its deadline:
 * true if it is over all the same, or a verdict was heard; else the roll is
 * called, by this rank or another, and comm->roll has who has answered. */
bool comm_roll_call(struct comm_request *request, double begin_s,
                    double timeout_s);
/* --- comm_beat.c --- */

/* A communicator on which transport->say() and hear() work and nothing else: it has no
 * requests, and is detached. Collective. */
enum err comm_duplicate_words(struct comm *comm, struct comm **out);
/* Before the transport is closed. */
void comm_beat_stop(struct comm *comm);
/* comm is told why it is broken, or has told: so are its relatives of this thread. */
void comm_beat_seal(struct comm *comm);
/* comm is broken by a verdict, its own or one that the thread has got meanwhile. */
bool comm_told(struct comm *comm);
/* The thread of comm begins to wait for others, or ends. */
void comm_beat_waits(struct comm *comm, bool begins);
/* It has begun this collective, of that size on all ranks. */
void comm_beat_began(const struct comm_request *request, uint64_t size);
/* This rank leaves for that error. */
void comm_left(struct comm *comm, enum err rc);
/* All ranks are asked where they are, by who calls the roll: answers come meanwhile. */
void comm_beat_ask(struct comm *comm);
/* It has failed with rc: logs what all ranks are at. ERR_COMM: that names those which have
 * begun another operation in its place than most have; else rc as it is. */
enum err comm_beat_places(const struct comm_request *request, enum err rc);

/* --- comm_place.c --- */

/* A collective's name among those begun, with its size or to look for it. */
uint64_t comm_place_op(const struct comm_request *request, uint64_t size);
void comm_place_spans(const struct timeline_here *here,
                      char at[COMM_PLACE_BYTES]);
/* Ranks at the same are one line: returns how many there are. */
int comm_place_lines(const struct comm_place *places, int size,
                     char (*hosts)[COMM_HOST_BYTES],
                     char lines[COMM_PLACE_LINES][COMM_TEXT_BYTES]);
/* How many ranks have begun another operation in place of this one, comm_place_op(),
 * than most have; the text names them. */
int comm_place_odd(const struct comm_place *places, int size,
                   char (*hosts)[COMM_HOST_BYTES], uint64_t op, char *text,
                   size_t bytes);
/* A thread writes its stack to stderr, once and within a second, when another asks. */
void comm_place_stack_begin(void);
void comm_place_stack(pthread_t thread);
/* "; its process is in state T, stopped", of this node. pid 0: "". */
void comm_place_process(int pid, char *text, size_t bytes);

/* The end of every start function: all transfers are added (the request is done
 * at once if there are none), or that has failed with rc. */
enum err comm_request_started(enum err rc, struct comm_request *request,
                              struct comm_request **out);
/* Advance; true when done, or failed (rc). */
bool comm_request_poll(struct comm_request *request);
/* Poll all requests of the comm and its duplicates that have more to be
 * started: a peer may wait for that while this rank waits for something else.
 * Now and then answer roll calls on them. */
void comm_request_progress(struct comm *comm);
/* The transport says: a fragment of this many bytes ended. */
enum err comm_request_fragment_done(struct comm_request *request, int index,
                                    size_t bytes);
/* Bytes of the fragment in flight. */
size_t comm_request_fragment_bytes(const struct comm_transfer *transfer);
/* Names the peers on which it waits, "rank 3 (host)": of a collective by the
 * answers in comm->roll. Returns their number. */
int comm_roll_missing(const struct comm_request *request, char *text,
                      size_t bytes);
