/* The loss of each sample of the step at hand, with the weights as they are and
 * without a gradient: the forward pass of an evaluation, one sample at a time,
 * by the ranks that will train on it. A sample's number has the same bits
 * whatever the microbatch, the ranks and the strategy. */
#pragma once

#include <stdint.h>

#include "src/base/err.h"

struct run;
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
