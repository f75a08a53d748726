/* What the files of MPI share; nobody else includes this. */
#pragma once

#include <mpi.h>

#include "src/comm/comm_impl.h"

/* All ranks, those of a node beside each other, the nodes in the order of their first
 * ones: MPI_COMM_WORLD where that is so already. Sets rank, hosts and nodes of a comm
 * whose rank and size are MPI_COMM_WORLD's. Collective. */
enum err comm_mpi_order(struct comm *comm, MPI_Comm *world);
/* ERR_USAGE where the launcher has started each of several tasks as a world of its own. */
enum err comm_mpi_check_world(const struct comm *comm);

#define NOBODY (-1)

/* The library for this thread alone, for a message to `peer` or NOBODY; false: a call of
 * another thread has not come back, and never will. */
bool comm_mpi_enter(int peer);
/* The same where nobody has it at the moment. */
bool comm_mpi_try(void);
void comm_mpi_leave(void);

/* Messages that were begun go on while this process computes (comm_mpi_progress.c).
 * Collective by nobody; without a thread for it they wait for the next poll. comm lives
 * until the end. */
void comm_mpi_progress_begin(const struct comm *comm, MPI_Comm words);
void comm_mpi_progress_end(void);
/* A transfer of the request has begun (1) or ended (-1). */
void comm_mpi_progress_add(const struct comm_request *request, int index,
                           int messages);
