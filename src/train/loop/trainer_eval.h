/* Losses without a gradient: an evaluation is the loss on held-out text, and an
 * algorithm may ask for the loss of each sample of the step at hand.
 *
 * The data set of an evaluation is read in its own order in leaves of train.microbatch samples,
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

/* The loss of each sample of the step at hand, with the weights as they are and
 * without a gradient: the forward pass of an evaluation, one sample at a time,
 * by the ranks that will train on it. A sample's number has the same bits
 * whatever the microbatch, the ranks and the strategy. */
struct trainer_samples;

/* Borrows the trainer. Fails on one rank alone. */
enum err trainer_samples_create(struct run *run, struct trainer_samples **out);
/* NULL is fine. */
void trainer_samples_destroy(struct trainer_samples *samples);

/* Mean losses of the labels among each sample's first seq_len tokens,
 * [train.global_batch] by their places in the batch; below 0 where there is no
 * label. Lent until the next call; the same on every rank. Collective. */
enum err trainer_samples_losses(struct trainer_samples *samples,
                                int64_t seq_len, const double **out);
