/* What the files of MPI share; nobody else includes this. */
#pragma once

#include <mpi.h>

#include "src/comm/comm_impl.h"

/* All ranks, those of a node beside each other, the nodes in the order of their first
 * ones: MPI_COMM_WORLD where that is so already. Sets rank, hosts and nodes of a comm
 * whose rank and size are MPI_COMM_WORLD's. Collective. */
enum err comm_mpi_order(struct comm *comm, MPI_Comm *world);
