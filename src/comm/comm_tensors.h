/* Messages of tensors between the ranks of a comm, in the order of a backend's
 * stream: what is sent is what ops before the start leave there, and ops after
 * the wait find what came. Between the two nobody writes what is sent or
 * touches what is received. Three ways:
 *   direct  tensors lie in the program's own memory (CPU): comm's operations
 *   staged  through pinned host memory and comm's operations: any device
 *   nccl    from device to device by NCCL, on a stream of its own
 *
 * All ranks start the same operations in the same order; of exchanges each rank
 * starts those that it has a part in. After a failure everything fails with the
 * same text. Pinned memory grows to what is in flight at once, in the first
 * steps; nothing else is allocated. One thread uses it, comm's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "kernels/kernel_memory.h"
#include "src/base/err.h"
#include "src/comm/comm.h"

/* Operations in flight at once, of which 64 may be collectives. */
#define COMM_TENSORS_REQUESTS 128

/* By which way. AUTO: directly where the host reaches tensors, else by NCCL,
 * where there are several ranks. ANY: the same, but staged where a rank cannot
 * use NCCL, for which the log has the rank, its host and the reason. ANY and
 * DIRECT are no choice of a setting. */
enum comm_exchange {
    EXCHANGE_AUTO,
    EXCHANGE_NCCL,
    EXCHANGE_STAGED,
    EXCHANGE_ANY,
    EXCHANGE_DIRECT
};
static const char *const comm_exchange_names[] = { "auto", "nccl", "staged",
                                                   NULL };

struct comm_tensors;
struct comm_tensors_request; /* storage is comm_tensors' own, a fixed pool */

/* way: the same on all ranks. comm, memory and stream are borrowed; messages go
 * over a duplicate of comm. The calling thread uses its device already.
 * ERR_UNSUPPORTED says what is missing, and on which rank. All ranks return the
 * same code. Collective. */
enum err comm_tensors_create(struct comm *comm,
                             const struct kernel_memory *memory, void *stream,
                             enum comm_exchange way, struct comm_tensors **out);
/* NULL is fine. Every operation was waited for. Collective, unless an operation
 * has failed; staging memory is then left to late peers. */
void comm_tensors_destroy(struct comm_tensors *tensors);

const char *comm_tensors_way(const struct comm_tensors *tensors);
/* For people: the way with its version, "nccl 2.28.9"; "none": one rank. */
void comm_tensors_label(const struct comm_tensors *tensors, char *text,
                        size_t bytes);
/* What of the way was set, and the reasons, in at least 192 bytes; empty: nothing. */
void comm_tensors_why(const struct comm_tensors *tensors, char *text,
                      size_t bytes);
/* The comm of all its ranks: sizes, ranks, deadlines, and arrays for the sizes
 * of a start (comm_sizes). Operations of one's own do not belong there. */
struct comm *comm_tensors_comm(struct comm_tensors *tensors);

/* Send to one rank and receive from one; -1 or 0 bytes: neither, so both sides
 * know the size. What one rank starts as a send to another that one starts as a
 * receive from it in the same place of the order; tag as in comm_start_send.
 * To and from oneself is a copy. */
enum err comm_tensors_start_exchange(struct comm_tensors *tensors, int to,
                                     const void *send, size_t send_bytes,
                                     int from, void *recv, size_t recv_bytes,
                                     int tag,
                                     struct comm_tensors_request **out);
/* As comm_start_all_gather and comm_start_all_to_all. */
enum err comm_tensors_start_all_gather(struct comm_tensors *tensors, void *data,
                                       const size_t *bytes,
                                       const size_t *offsets,
                                       struct comm_tensors_request **out);
enum err comm_tensors_start_all_to_all(
    struct comm_tensors *tensors, const void *send, const size_t *send_bytes,
    const size_t *send_offsets, void *recv, const size_t *recv_bytes,
    const size_t *recv_offsets, struct comm_tensors_request **out);

/* As comm_start_messages. */
enum err comm_tensors_start_messages(struct comm_tensors *tensors,
                                     const struct comm_message *messages,
                                     int count,
                                     struct comm_tensors_request **out);

/* Operations that are started between these two may travel at once, where a way would
 * have one after the other (nccl: in one group, so that links within a node and beyond
 * are busy together). They begin at the end, or when one of them is waited for; the
 * same ones on all ranks. Not one within the other. */
void comm_tensors_together(struct comm_tensors *tensors);
/* rc: what has come of all between; after a failure nothing begins, and it is returned. */
enum err comm_tensors_together_end(struct comm_tensors *tensors, enum err rc);

/* The stream goes on only when the operation is done; with direct and staged
 * the host waits until then, with nccl only while it must. Releases the
 * request. timeout_s as in comm_wait(). */
enum err comm_tensors_wait(struct comm_tensors_request *request,
                           double timeout_s);
/* True when the wait would not block the host; lets operations go on. The
 * request still needs its wait, which also tells a failure. */
bool comm_tensors_test(struct comm_tensors_request *request);

/* The host waits until the stream has done all that was enqueued, operations
 * that were waited for included: ERR_COMM names the ranks that did not come
 * within timeout_s (<= 0: comm's). Once a step, where the host needs results.
 * With nccl all ranks settle alike: those who fail call a roll together. */
enum err comm_tensors_settle(struct comm_tensors *tensors, double timeout_s);

/* The host waits until an event that was recorded on the stream is reached:
 * ERR_COMM as of a settle. In place of memory->event_wait() wherever operations
 * may be before it on the stream, which would hang with a peer. */
enum err comm_tensors_reach(struct comm_tensors *tensors, void *event,
                            double timeout_s);

/* To be called between portions of ops on the stream: the host waits, likewise,
 * until the stream has come to where this was called `ahead` calls ago. A
 * device's queue that is full stops the host where there are no deadlines.
 * ahead: from 1 to COMM_TENSORS_AHEAD, always the same. Does nothing by ways
 * where the stream never waits for other ranks. */
#define COMM_TENSORS_AHEAD 16
enum err comm_tensors_pace(struct comm_tensors *tensors, int ahead);
