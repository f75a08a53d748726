/* Runs one of Slurm's programs and has what it prints, within a deadline.
 *
 * A user's environment can make them answer of another cluster, of other jobs or
 * in another form (SLURM_CLUSTERS, SQUEUE_FORMAT, SLURM_TIME_FORMAT), so such
 * variables are left out, and times are told in UTC. jobs/lib/slurm.sh leaves
 * out the same. */
#pragma once

#include "src/base/array.h"

/* argv[0] is looked for on the PATH. What it writes to stdout and stderr, at most
 * `most` bytes and a '\0' behind them, is put into `text`, whose former bytes
 * go: the error text tells an unknown job from a controller that does not
 * answer. Returns the exit status; -1: it could not run, was ended by a signal,
 * wrote more, or did not end within `seconds` and is killed. One that cannot be
 * killed, as its file system does not answer, is left behind. */
int slurm_run(char *const *argv, double seconds, size_t most,
              struct buffer *text);
