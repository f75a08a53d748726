/* What optimizers get of a step: of the settings and the step's record. */
#pragma once

#include "src/parallel/optimizer/optimizer.h"
#include "src/train/loop/trainer.h"

/* steps[1 + groups of the settings]: of tensors that are in no group, then of
 * each. Gradients are multiplied by `scale`. */
void trainer_optimizer_steps(const struct trainer *trainer, double scale,
                             struct optimizer_step *steps);
