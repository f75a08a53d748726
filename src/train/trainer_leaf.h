/* The trainer's batch as the model's leaf. */
#ifndef TESSERA_TRAIN_TRAINER_LEAF_H
#define TESSERA_TRAIN_TRAINER_LEAF_H

#include "src/data/loader.h"
#include "src/model/model.h"
#include "src/train/trainer.h"

/* first_sample: number of the first one in the whole run. Lends the batch's
 * arrays. */
struct leaf trainer_leaf(const struct trainer *trainer, int64_t first_sample);

/* A batch of nobody: no position bears loss. For a rank that has no leaf, or
 * could not read it, but is needed in the model by those with which it shares
 * experts or sequences. */
void trainer_leaf_empty(int64_t samples, struct batch *batch);

#endif
