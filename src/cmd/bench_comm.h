/* tessera-bench comm: the exchange of a training step between two ranks of a
 * node against the library's.
 *
 * Two ranks, started by mpirun, have an array of floats each and sum them, so
 * that every rank has the whole sum:
 *
 *   allreduce_S_s        median time of reduce_finish_all()
 *   mpi_S_s              median time of MPI_Allreduce() of the same arrays; the
 *                        better median of in place and into another array
 *   allreduce_S_speedup  mpi_S_s / allreduce_S_s
 *   allreduce_S_gb_s     size / allreduce_S_s
 *   mpi_S_gb_s           size / mpi_S_s
 *
 * S is 1MiB, 64MiB, 256MiB. The two sums must have the same bits.
 */
#pragma once

#include <jansson.h>

#include "src/cmd/bench_step.h"

/* One of the ranks, in a process of its own; *result is that of rank 0. */
enum err bench_comm_rank(const struct bench_options *options, json_t **result);
