/* A measurement by two ranks under mpirun, or those of several nodes of this machine
 * (tests/bench/nodes), that the program starts itself. */
#pragma once

#include "src/comm/comm.h"
#include "tests/bench/bench.h"

/* Runs `tessera-bench NAME-rank` on two ranks, or on those of options->nodes; *result is what rank 0 has
 * written with bench_ranks_write(). */
enum err bench_ranks(const char *name, const struct bench_options *options,
                     json_t **result);

/* ERR_USAGE unless bench_ranks() has started this process: a rank removes files
 * in its folder, which bench_ranks() has made and marked. */
#define BENCH_RANKS_MARK "tessera-bench"
enum err bench_ranks_check(const struct bench_options *options);

/* The communicator of so many ranks; 0: of any number. */
enum err bench_ranks_open(double timeout_s, int ranks, struct comm **comm);

/* On rank 0, at the end. ERR_MEMORY when result is NULL. */
enum err bench_ranks_write(const struct bench_options *options,
                           const json_t *result);
