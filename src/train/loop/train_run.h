/* One attempt of a run, from the lock on the run directory to the exit code. */
#pragma once

#include <stdbool.h>

#include "src/base/err.h"
#include "src/comm/comm.h"
#include "src/train/settings/train_settings.h"

/* Take the run lock, sweep leftovers, resume or start, train, record. On return
 * *exit_code is EXIT_DONE or EXIT_REQUEUE (agreed by all ranks) if ERR_OK;
 * otherwise every rank has the same error, and those that saw it first have
 * written RUN/reasons/attempt-NNNN.rank-NNNN with code and text. Collective.
 * *adrift: the ranks are not together any more, after ERR_COMM or a failure
 * amid a computation that they share: only comm_abort() may follow. */
enum err train_run(struct comm *comm, const struct train_settings *settings,
                   int *exit_code, bool *adrift);
