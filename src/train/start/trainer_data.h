/* The data sets of a run: opened, and found to fit the run's settings. */
#pragma once

#include <jansson.h>

#include "src/base/err.h"
#include "src/train/loop/trainer.h"

/* Open data.train and data.eval into the trainer, with the orders in which
 * their samples are read. What the run asks for and the
 * data cannot give is an error here, not in the middle of the run: a vocabulary
 * beyond the model's, tokenizers that differ, documents that cannot be told
 * apart with model.attn_uses_sequence_id, samples longer than data.seq_len with
 * data.too_long = "refuse". No shard is looked at (start_files.h). Not
 * collective. */
enum err trainer_data_open(struct trainer *trainer);
void trainer_data_close(struct trainer *trainer);

/* What the run has read, and since which step, into a checkpoint's state as
 * "data": [{from, id, streams: [{name, id, begin, read}]}], a part for each
 * change of the data. `read` is missing where the order does not count. */
enum err trainer_data_store(const struct trainer *trainer, json_t *state);

/* Go on with the state of a checkpoint at `step`. Data or an order that differ
 * from its, which data.change = "continue" has allowed, begin here: a new part.
 * Everything else follows from the parts that are stored, so an attempt from a
 * checkpoint before a change makes the change anew, at its own step. */
enum err trainer_data_restore(struct trainer *trainer, int64_t step,
                              const json_t *state);
