/* What must stay as it was when a run was started, in every checkpoint's state
 * as "fixed": data set, model, batch, seed, precision, optimizer, slots,
 * chunks, by the names of the settings.
 *
 * train.microbatch stays, too, for bits depend on it. Where the settings leave
 * it to the program, the run's own goes on; under "fast" and "run" so it does
 * where it is the smaller one, and one that had to be made smaller at this
 * start counts as well. */
#pragma once

#include <jansson.h>

#include "src/base/err.h"
#include "src/train/run/run.h"

/* NULL: out of memory. */
json_t *start_fixed_state(const struct run *run);

/* ERR_CHECKPOINT names the setting that differs from the stored state. With
 * data.change = "continue" data sets and their order may differ. */
enum err start_fixed_check(const struct run *run, const json_t *state);

/* Whether data sets or their order differ from the stored state's. */
bool start_fixed_order_changed(const struct run *run, const json_t *state);

/* The microbatch to go on with; 0: the stored one and the settings' can't be
 * one run. */
int64_t start_fixed_microbatch(const struct run *run, const json_t *state);
