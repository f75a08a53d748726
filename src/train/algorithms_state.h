/* What the algorithms of a run (algorithm.h) keep between steps, but tensors: a
 * member "algorithms" of a checkpoint's state, a list of
 *
 *   {"name": ..., and what its store() adds}
 *
 * in the list's order, and found again by name. */
#ifndef TESSERA_TRAIN_ALGORITHMS_STATE_H
#define TESSERA_TRAIN_ALGORITHMS_STATE_H

#include <jansson.h>

#include "src/base/err.h"

struct algorithms;
struct trainer;

enum err algorithms_store(const struct algorithms *algorithms, json_t *state);

/* Of the run's own checkpoint. May fail on one rank alone. */
enum err algorithms_restore(struct trainer *trainer, const json_t *state);

/* Of another run's. What has a tensor, or its name behind "algorithms/", among
 * the globs of `ignore` begins anew, as a whole, which rank 0 logs. */
enum err algorithms_take(struct trainer *trainer, const json_t *state,
                         const char *ignore);

#endif
