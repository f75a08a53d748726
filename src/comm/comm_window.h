/* Memory that the ranks of a node share, so that they read and write each
 * other's data where it lies and send messages only to other nodes.
 *
 * The memory is anonymous: it has no name anywhere and is gone with the last
 * process that maps it, however that ends. Ranks share when they have the same
 * host name and each of them can open the others' memory by /proc; where a
 * single one can't (PID namespaces, a restricted /proc), every rank of that
 * node has memory of its own, and rank 0 says so in the log. Huge pages are
 * used where the kernel gives them (arena.h).
 *
 * Order between one rank's writing and another's reading is made by
 * comm_start_barrier() or comm_window_start_meet(). */
#pragma once

#include <stddef.h>

#include "src/base/err.h"
#include "src/comm/comm.h"

struct comm_window;

enum comm_window_kind {
    COMM_WINDOW_EACH, /* a part for every rank */
    COMM_WINDOW_NODE  /* one for all ranks of a node */
};

/* bytes: of the own part, may differ (EACH); of the node's, the same on every
 * rank (NODE). Zeroed and touched; ERR_MEMORY as in arena_create(), on all
 * ranks when on one. comm is borrowed. Collective. */
enum err comm_window_create(struct comm *comm, enum comm_window_kind kind,
                            size_t bytes, struct comm_window **out);
/* Not collective: peers keep what they have mapped. NULL is fine. */
void comm_window_destroy(struct comm_window *window);

/* The lowest of the ranks that share memory with `rank`: itself, if none. The
 * answer is the same on every rank. */
int comm_window_node(const struct comm_window *window, int rank);
/* The memory of `rank`, page aligned; NULL when it is on another node. */
void *comm_window_part(const struct comm_window *window, int rank);

/* A barrier of the ranks that share memory with this one; at its deadline none
 * but these are named. Collective over all ranks. */
enum err comm_window_start_meet(struct comm_window *window,
                                struct comm_request **out);
