/* When the moments of the optimizer began: with the run, or where
 * checkpoint.load_ignore left them out of another run's state, in its middle.
 * What corrects them for having begun at 0 (AdamW) counts from there. In a
 * checkpoint's state "moments_began" has the tensors of moments that did not
 * begin with the run, and the steps that were completed then:
 *
 *   {"optimizer/exp_avg/lm_head.weight": 60, ...}
 */
#pragma once

#include <jansson.h>

#include "src/base/err.h"
#include "src/train/run/run.h"

/* To and from the state of a checkpoint of this step. ERR_CHECKPOINT: it says
 * something else, and then nothing has changed. */
enum err trainer_moments_store(const struct run *run, json_t *state);
enum err trainer_moments_restore(struct run *run, int64_t step,
                                 const json_t *state);

/* Those that match a glob begin after this step. How many tensors' these are. */
int trainer_moments_begin(struct run *run, const char *ignore, int64_t step);
