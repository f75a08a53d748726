/* What does not train (model.freeze, lora.rank): no checkpoint of the run has
 * it, so every start makes it again, and the checkpoints' state says of what, as
 * "base":
 *
 *   {"path": "/models/x", "from_run": "../x", "sha256": "...",
 *    "ignore": "lm_head.*", "seed": 17, "crc32c": {"lm_head.weight": [123]}}
 *
 * or, of fresh weights alone, the last two
 *
 * with "lora": {"rank": 8, "alpha": 16.0, "dropout": 0.0, "targets": "*"} where
 * there are adapters: what readers need to merge them
 * (src/formats/weights_tuned.h).
 *
 * The weights must be those of the first start, by their digest (weights_about)
 * and by the checksums of their values (src/formats/weights_sums.h); a run whose
 * checkpoints lack these gets them at its next start. The weights may have
 * moved, together with the run (from_run) or to where model.weights says. */
#pragma once

#include <jansson.h>

#include "src/base/err.h"
#include "src/parallel/replica.h"
#include "src/train/run/run.h"
#include "src/formats/weights.h"

/* At a first start: of the weights that are open, or fresh (NULL), by way of
 * `source`. Collective. */
enum err trainer_base_begin(struct run *run, struct weights *weights,
                            const struct replica_source *source);
/* At a later one: of what the state said. Collective. */
enum err trainer_base_fill(struct run *run);

/* To and from the state; nothing where everything trains. ERR_CHECKPOINT: the
 * state is of a run that trained the whole model. */
enum err trainer_base_store(const struct run *run, json_t *state);
enum err trainer_base_restore(struct run *run, const json_t *state);
/* The same of another run's state, whose checkpoint is open, for a run with
 * adapters and a folder of its own. */
enum err trainer_base_take(struct run *run, const json_t *state,
                           const char *checkpoint);

/* The names that no source has: those of adapters. */
#define TRAINER_BASE_ADAPTERS "*.lora_[AB].weight"
