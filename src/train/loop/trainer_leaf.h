/* The trainer's batch as the model's leaf. */
#pragma once

#include <stdbool.h>

#include "src/data/set/loader.h"
#include "src/model/model.h"
#include "src/train/run/run.h"

/* first_sample: number of the first one in the whole run. Lends the batch's
 * arrays. */
struct leaf trainer_leaf(const struct run *run, int64_t first_sample);

/* The first seq_len tokens of each of the leaf's samples, in the place of the
 * batch's; *loss_tokens becomes the number of labels. Nothing happens where they
 * have no more. */
void trainer_leaf_shorten(struct batch *batch, int64_t seq_len,
                          struct leaf *leaf, int64_t *loss_tokens);

/* The leaf's samples but those that are left_out[samples], in the place of the
 * batch's; where all are, one that bears no loss stays. *loss_tokens becomes the
 * number of labels. */
void trainer_leaf_choose(struct batch *batch, const bool *left_out,
                         struct leaf *leaf, int64_t *loss_tokens);

/* A batch of nobody: no position bears loss. For a rank that has no leaf, or
 * could not read it, but is needed in the model by those with which it shares
 * experts or sequences. */
void trainer_leaf_empty(int64_t samples, struct batch *batch);
