/* What the algorithms of a run (algorithm.h) keep between steps, but tensors: a
 * member "algorithms" of a checkpoint's state, a list of
 *
 *   {"name": ..., "steps": {"start": 6}, and what its store() adds}
 *
 * in the list's order, and found again by name. "steps" has the durations that
 * are given in dur, as steps: fractions of train.max_duration as it was when
 * the run began, which a resume with another one keeps. */
#pragma once

#include <jansson.h>

#include "src/base/err.h"

struct algorithms;
struct run;

enum err algorithms_store(const struct algorithms *algorithms, json_t *state);

/* From the run's own checkpoint, tensors of the replica included. Rank 0 logs
 * steps that train.max_duration would now put elsewhere. May fail on one rank
 * alone. */
enum err algorithms_restore(struct run *run, const json_t *state);

/* From another run's: durations are those of the settings. What has a tensor,
 * or its name behind "algorithms/", among the globs of `ignore` begins anew, as
 * a whole, which rank 0 logs. */
enum err algorithms_take(struct run *run, const json_t *state,
                         const char *ignore);
