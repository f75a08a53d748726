/* A measurement by two ranks under mpirun that the program starts itself. */
#ifndef TESSERA_CMD_BENCH_RANKS_H
#define TESSERA_CMD_BENCH_RANKS_H

#include "src/cmd/bench_step.h"

/* Runs `tessera-bench NAME-rank` on two ranks; *result is what rank 0 has
 * written with bench_ranks_write(). */
enum err bench_ranks(const char *name, const struct bench_options *options,
                     json_t **result);

/* On rank 0, at the end. ERR_MEMORY when result is NULL. */
enum err bench_ranks_write(const struct bench_options *options,
                           const json_t *result);

#endif
