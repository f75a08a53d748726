/* Communication between the ranks of a run: one table, two implementations
 * (self: one rank, no MPI; mpi). Tensors of a device: comm_tensors.h.
 *
 * Every operation is started and then waited for with a deadline; nothing
 * blocks inside the MPI library after start-up. A peer that does not answer in
 * time is named (rank and host) in the error text, code ERR_COMM. A collective
 * that meets its deadline calls the roll, a quarter of it more or a second: who
 * does not answer is named, and all ranks have the same text. Buffers must
 * stay valid and untouched until the wait returns. Counts are in elements.
 * All ranks start their collectives on one communicator in the same order. A
 * communicator and its duplicates are one thread's, but for those duplicates
 * that were given to another (comm_detach()). Time in which this process itself
 * was stopped does not count. Waiting polls, first spinning, then yielding,
 * then sleeping up to 1 ms, so that more ranks than cores make progress.
 *
 * Floating-point sums are not offered: sums whose order matters are made with
 * send/recv and our own add (src/parallel/reduce.h). Integers may be summed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

struct comm;
struct timeline;

/* A started operation; comm owns the storage (fixed pool). */
struct comm_request;

enum comm_op { COMM_SUM, COMM_MAX, COMM_MIN };

/* Start communication. kind: "auto" (mpi when the process was started by
 * mpirun or srun with more than one task or PMIx, else self), "self", "mpi".
 * argc/argv may be NULL. timeout_s: deadline of every wait without its own.
 * Ranks of a node are neighbours, whatever numbers the launcher has given them.
 * Collective over all ranks. */
enum err comm_create(const char *kind, int *argc, char ***argv,
                     double timeout_s, struct comm **out);
/* Shut down, duplicates first; NULL is fine. Collective, unless comm_abort() is
 * used. */
void comm_destroy(struct comm *comm);
/* Leave at once with this exit code, taking the other ranks along; for when a
 * peer is dead and a collective shutdown would hang. Buffered output is not
 * flushed. */
_Noreturn void comm_abort(struct comm *comm, int exit_code);

/* A second communicator over the same ranks for independent traffic (its
 * messages never match those of the first). Collective. */
enum err comm_duplicate(struct comm *comm, struct comm **out);
/* Waits on the communicators that it was made from do not carry on what was
 * started on this duplicate any more, so that one other thread may use it at
 * the same time. It is destroyed by the first thread, when the other has ended.
 */
void comm_detach(struct comm *duplicate);

/* From now on the ranks give each other signs of life, by a thread of each: one that is
 * not heard of for lost_s (stopped, dead, its node off the network), whatever
 * anybody is at, ends on all others what waits on comm and on duplicates that are
 * made later, with ERR_COMM, which names it. 0: no thread. In any case a verdict on
 * one of these communicators is one on all of them. Before any is duplicated;
 * collective. */
enum err comm_beat_start(struct comm *comm, double lost_s);
/* A rank whose main thread does not come back from the library leaves without it, by
 * the thread of signs of life, which calls this before, with the reason as the error's
 * text. NULL: nothing. */
typedef void (*comm_leaver)(void *arg, enum err rc);
void comm_on_leave(struct comm *comm, comm_leaver leaver, void *arg);
/* This thread begins with what can't take limit_s without a wait for others or
 * another such call: what a step computes. If it does, that is such a verdict, on
 * this rank. limit_s 0: with what may take long. Nothing without signs of life. */
void comm_work(struct comm *comm, int64_t step, double limit_s);
/* For who waits without a call of comm: ERR_COMM by a verdict on comm or, of a
 * duplicate, on what it was made of. The main thread's. */
enum err comm_verdict(struct comm *comm);
/* Seconds that this thread has waited for others since comm_beat_start(), whose lost_s
 * may be 0; of a device's work none. */
double comm_waited_s(const struct comm *comm);

/* Waits are told to this timeline as spans of this kind, those of duplicates
 * that are made later too; NULL: to nobody. It is borrowed. */
void comm_set_timeline(struct comm *comm, struct timeline *timeline, int kind);

int comm_rank(const struct comm *comm);
int comm_size(const struct comm *comm);
/* Deadline of every wait without its own. */
double comm_timeout_s(const struct comm *comm);
/* Ranks on this node, and this rank's place among them. */
int comm_local_rank(const struct comm *comm);
int comm_local_size(const struct comm *comm);
/* Host name of any rank; lent. */
const char *comm_host(const struct comm *comm, int rank);
bool comm_same_host(const struct comm *comm, int a, int b);
/* One of four arrays [size] (which: 0 to 3) that comm lends for building the
 * sizes and offsets of a start call, so that hot paths allocate nothing. The
 * contents mean nothing once the call has returned. */
size_t *comm_sizes(struct comm *comm, int which);

/* Point to point, bytes, to and from other ranks. tag in [0, 32767]. Zero bytes
 * are allowed. */
enum err comm_start_send(struct comm *comm, const void *data, size_t bytes,
                         int to, int tag, struct comm_request **out);
enum err comm_start_recv(struct comm *comm, void *data, size_t bytes, int from,
                         int tag, struct comm_request **out);

/* Every rank gets all parts: rank r contributes bytes[r] bytes at
 * data + offsets[r], in place (own part already there). The arrays are the same
 * on all ranks, and need not outlive the call. */
enum err comm_start_all_gather(struct comm *comm, void *data,
                               const size_t *bytes, const size_t *offsets,
                               struct comm_request **out);
enum err comm_start_broadcast(struct comm *comm, void *data, size_t bytes,
                              int root, struct comm_request **out);
/* Integers, exact in any order; in place. */
enum err comm_start_all_reduce_i64(struct comm *comm, int64_t *values,
                                   size_t count, enum comm_op op,
                                   struct comm_request **out);
/* Sends send_bytes[r] at send + send_offsets[r] to every rank r, receives
 * likewise. The arrays need not outlive the call. */
enum err comm_start_all_to_all(struct comm *comm, const void *send,
                               const size_t *send_bytes,
                               const size_t *send_offsets, void *recv,
                               const size_t *recv_bytes,
                               const size_t *recv_offsets,
                               struct comm_request **out);
/* One message, never to or from oneself. */
struct comm_message {
    void *data; /* only read when sending */
    size_t bytes;
    int peer;
    bool receive;
};
/* A collective of at most 2 size messages, which need not outlive the call. Those of one
 * way and peer are neighbours in the list, as many and as long as the other side
 * lists, in the same order. */
enum err comm_start_messages(struct comm *comm,
                             const struct comm_message *messages, int count,
                             struct comm_request **out);
/* Orders memory that ranks share (comm_window.h): what any rank wrote or read
 * before starting it is done when the wait returns. */
enum err comm_start_barrier(struct comm *comm, struct comm_request **out);

/* Wait until done or `timeout_s` has passed (<= 0: the comm's default).
 * Releases the request in either case; after ERR_COMM the communicator is
 * broken: everything that is started on it fails with the same text. Its
 * duplicates are not affected, as far as their peers live. Buffers of an
 * operation that met its deadline must stay until the process ends: a late peer
 * may still read or write them. */
enum err comm_wait(struct comm_request *request, double timeout_s);
/* True when done (the request still needs comm_wait). Polls once, what other
 * ranks wait for as well: a rank that has started a collective and neither waits
 * nor looks for long holds others up. */
bool comm_test(struct comm_request *request);

/* Start and wait, for cold paths. */
enum err comm_broadcast(struct comm *comm, void *data, size_t bytes, int root);
enum err comm_all_gather(struct comm *comm, void *data, const size_t *bytes,
                         const size_t *offsets);
/* Every rank gets the rows of all: `rows` is an array [size] of that many bytes
 * each, of which the own one is there. */
enum err comm_gather_rows(struct comm *comm, void *rows, size_t bytes);
/* Every rank gets what each has, `bytes` of it, in the order of ranks: `all`
 * points to the pointer that is set to it, malloc'ed, also after an error; [size]
 * bytes_of tells how much is whose. Memory that one rank lacks is an error on
 * all. */
enum err comm_gather_parts(struct comm *comm, const void *own, size_t bytes,
                           void *all, size_t *bytes_of);
enum err comm_all_reduce_i64(struct comm *comm, int64_t *values, size_t count,
                             enum comm_op op);
enum err comm_barrier(struct comm *comm);

/* The end of every collective decision: all ranks return the same code, the
 * largest of the ranks' `rc`; where the own rc was ERR_OK and another's was
 * not, err_text() becomes "rank R (HOST): its text". `rc` may be ERR_OK. */
enum err comm_agree(struct comm *comm, enum err rc);

/* How far the clocks of ranks on other nodes are off.
 * offset_ns: what is to be added to CLOCK_MONOTONIC of this rank to have rank
 * 0's; error_ns: by how much that may be wrong at most, now; both 0 on rank 0's
 * node, where the clock is the same. The lowest rank of each node asks that of
 * another some times, in a tree, and the shortest exchange counts: an answer is as if
 * given in its middle, so the error is at most half of it (Cristian 1989), times
 * log2 of the number of nodes. Later
 * the clocks of two nodes part by what their oscillators differ, usually below
 * 1e-5 of the time passed. Collective. */
enum err comm_offset(struct comm *comm, int64_t *offset_ns, int64_t *error_ns);
