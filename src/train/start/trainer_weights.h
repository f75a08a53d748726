/* The trainer's weights at a first start, and what its checkpoints say of its
 * tokens. */
#pragma once

#include <jansson.h>

#include "src/base/err.h"
#include "src/train/run/run.h"
#include "src/formats/weights.h"

/* Fresh weights, and over them those that the settings name, of which each rank
 * reads what it owns. Rank 0 checks that they fit, says so in the log and in
 * the ledger's event "weights". Collective. */
enum err trainer_weights_init(struct run *run);

/* Opens the weights that the settings name, which are the same on all ranks:
 * rank 0 looks which checkpoint of a run directory it is. After an error there
 * is nothing to close. Collective. */
enum err trainer_weights_open(struct run *run, struct weights **out);

/* Rank 0: the ledger's event with where the run starts from. */
enum err trainer_weights_record(const struct run *run, struct weights *weights,
                                const char *event);

/* "text" of a checkpoint's state (src/formats/weights_ckpt_config.h), on rank
 * 0: what a state or the weights had stays with the run, else it is the data's.
 */
enum err trainer_weights_store(const struct run *run, json_t *state);
enum err trainer_weights_restore(struct run *run, const json_t *state);
