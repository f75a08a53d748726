/* An evaluation: the loss on held-out text.
 *
 * The data set is read in its own order in leaves of train.microbatch samples,
 * dealt in contiguous ranges to the ranks, or to groups of
 * parallel.sequence_degree ranks that compute one together. A leaf has a loss
 * for each of its parallel.sequence_chunks; losses are summed in the order of
 * leaves and their chunks, so the result does not depend on the number of
 * ranks, nor on how many share a sequence. */
#pragma once

#include <stdbool.h>

#include "src/base/err.h"
#include "src/train/run/run.h"

struct trainer_eval;

/* Borrows the trainer, of whose eval_data eval.samples are evaluated. *out is
 * NULL where there are none. */
enum err trainer_eval_create(struct run *run, struct trainer_eval **out);
/* NULL is fine. */
void trainer_eval_destroy(struct trainer_eval *eval);

/* *done is false when a stop signal has cut it short; else the trainer's record
 * has the result, the same on all ranks. Collective. */
enum err trainer_eval_run(struct trainer_eval *eval, bool *done);
