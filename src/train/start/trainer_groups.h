/* What a run keeps of optimizer.groups besides moments: the peak rates of its
 * first start, of which decoupled decay takes parts, and which tensor is whose,
 * for moments mean something to one optimizer only.
 *
 * In a checkpoint's state: "groups_lr0": [a rate for each group], and
 * "optimizers": {tensor: name}, of tensors that are not optimizer.name's. */
#pragma once

#include "src/train/loop/trainer.h"

/* The settings' rates are the first start's. */
void trainer_groups_begin(struct trainer *trainer);

enum err trainer_groups_store(const struct trainer *trainer, json_t *state);
/* Rates of a state; those that it lacks are as they began. */
void trainer_groups_restore(struct trainer *trainer, const json_t *state);

/* ERR_CHECKPOINT: a tensor's moments are another optimizer's than the one that
 * would go on with them. A state that says nothing of it passes. */
enum err trainer_groups_check(const struct trainer *trainer,
                              const json_t *state);
