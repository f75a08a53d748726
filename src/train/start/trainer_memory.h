/* The trainer's memory: made by plan, and made again with a smaller microbatch
 * where it does not fit. */
#pragma once

#include "src/base/err.h"
#include "src/train/plan/train_memory.h"
#include "src/train/run/run.h"

/* Batch, model and replica for the settings' microbatch, within memory.limit
 * and what this machine has; shrinks where it must and may. parallel.strategy
 * is no longer "auto" then, but what fits the microbatch of the last start, if
 * there was one. Collective. */
enum err trainer_memory_create(struct run *run);

/* After an ERR_MEMORY that all ranks have agreed on: the next smaller
 * microbatch, batch and model made anew. ERR_MEMORY, with the text that was
 * there, where that would break the promise of the same bits ("elastic") or
 * there is no smaller one. Collective. */
enum err trainer_memory_shrink(struct run *run);

/* The microbatch that the run has stored. Collective. */
enum err trainer_memory_adopt(struct run *run, int64_t microbatch);

/* Planned bytes of the rank that needs most. */
enum err trainer_memory_plan(const struct run *run, struct memory_plan *out);
