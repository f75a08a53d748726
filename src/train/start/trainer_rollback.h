/* A run goes back: its trainer ends, and another one begins at the newest good
 * checkpoint, or at step 0 where there is none, as a resume does. What the
 * steps between have read is left out (rollback.h). */
#pragma once

#include "src/base/err.h"
#include "src/train/run/run.h"

/* The position in the order of samples at which the batch of a step begins. */
int64_t trainer_rollback_position(const struct run *run, int64_t step);
/* That behind the batches of all completed steps; before it lies what was read,
 * and what rollbacks have left out meanwhile. */
int64_t trainer_rollback_read(const struct run *run, int64_t step);

/* The ledger's rollbacks, on all ranks, for rollback_restore(). Collective. */
enum err trainer_rollback_find(struct run *run);

/* The state is restored, or begun: a trainer that was made to go back
 * (run->position.came_back) leaves out what it has to from here on, and the ledger
 * has it before anything is computed. A process that ends earlier has changed
 * nothing: the next one comes to the same step and goes back likewise.
 * Collective. */
enum err trainer_rollback_begin(struct run *run);
