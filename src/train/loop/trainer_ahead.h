/* The thread that reads this rank's microbatches ahead (data.prefetch). */
#pragma once

#include "src/base/err.h"
#include "src/train/loop/trainer.h"

/* For the replica and the microbatch as they are. Nothing with data.prefetch =
 * 0. */
enum err trainer_ahead_create(struct trainer *trainer);
void trainer_ahead_destroy(struct trainer *trainer);

/* The microbatch at `first` into the trainer's batch. */
enum err trainer_ahead_read(struct trainer *trainer, int64_t first);

/* The first position of the microbatch whose chunks begin with this leaf,
 * counted from that of its batch. */
int64_t trainer_ahead_offset(const struct trainer *trainer, int leaf);
