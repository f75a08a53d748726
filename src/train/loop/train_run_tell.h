/* What a run's settings come to, told at its first start by rank 0. */
#pragma once

#include "src/train/settings/train_settings.h"

/* A decay that is the end of the weights, of each group of them. */
void train_run_tell_decay(const struct train_settings *s);
/* What the batch settles for good: how many ranks the run can ever have. */
void train_run_tell_slots(const struct train_settings *s);
