/* What a run keeps of optimizer.groups besides moments: the peak rates of its
 * first start, of which decoupled decay takes parts, and which tensor is whose,
 * for moments mean something to one optimizer only.
 *
 * In a checkpoint's state: "groups_lr0": [a rate for each group], and
 * "optimizers": {tensor: name}, of tensors that are not optimizer.name's. */
#pragma once

#include "src/parallel/optimizer/optimizer.h"
#include "src/train/run/run.h"

/* The settings' rates are the first start's. */
void trainer_groups_begin(struct run *run);

enum err trainer_groups_store(const struct run *run, json_t *state);
/* Rates of a state; those that it lacks are as they began. */
void trainer_groups_restore(struct run *run, const json_t *state);

/* ERR_CHECKPOINT: a tensor's moments are another optimizer's than the one that
 * would go on with them. A state that says nothing of it passes. */
enum err trainer_groups_check(const struct run *run, const json_t *state);

/* What optimizers get of a step, of the settings and the step's record:
 * steps[1 + groups of the settings]: of tensors that are in no group, then of
 * each. Gradients are multiplied by `scale`. */
void trainer_groups_steps(const struct run *run, double scale,
                          struct optimizer_step *steps);
