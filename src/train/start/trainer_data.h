/* The data sets of a run: opened, found to fit the run's settings, read ahead,
 * and where in them its steps are, of which rollbacks leave some out. */
#pragma once

#include <jansson.h>

#include "src/base/err.h"
#include "src/train/run/run.h"

/* Open data.train and data.eval into the trainer, with the orders in which
 * their samples are read. What the run asks for and the
 * data cannot give is an error here, not in the middle of the run: a vocabulary
 * beyond the model's, tokenizers that differ, documents that cannot be told
 * apart with model.attn_uses_sequence_id, samples longer than data.seq_len with
 * data.too_long = "refuse". No shard is looked at (start_files.c). Not
 * collective. */
enum err trainer_data_open(struct run *run);
void trainer_data_close(struct run *run);

/* What the run has read, and since which step, into a checkpoint's state as
 * "data": [{from, id, streams: [{name, id, begin, read}]}], a part for each
 * change of the data. `read` is missing where the order does not count. */
enum err trainer_data_store(const struct run *run, json_t *state);

/* Go on with the state of a checkpoint at `step`. Data or an order that differ
 * from its, which data.change = "continue" has allowed, begin here: a new part.
 * Everything else follows from the parts that are stored, so an attempt from a
 * checkpoint before a change makes the change anew, at its own step. */
enum err trainer_data_restore(struct run *run, int64_t step,
                              const json_t *state);

/* The thread that reads this rank's microbatches ahead (data.prefetch).
 *
 * For the replica and the microbatch as they are. Nothing with data.prefetch =
 * 0. */
enum err trainer_ahead_create(struct run *run);
void trainer_ahead_destroy(struct run *run);

/* The microbatch at `first` into the trainer's batch. */
enum err trainer_ahead_read(struct run *run, int64_t first);

/* The first position of the microbatch whose chunks begin with this leaf,
 * counted from that of its batch. */
int64_t trainer_ahead_offset(const struct run *run, int leaf);

/* A run goes back: its trainer ends, and another one begins at the newest good
 * checkpoint, or at step 0 where there is none, as a resume does. What the
 * steps between have read is left out (rollback.h). */

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
