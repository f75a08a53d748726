/* A run's position and what must not change in it, as a checkpoint's manifest
 * has them. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/train/loop/trainer.h"

/* `arithmetics`: all that the run has computed with, in order. */
enum err on_checkpoint_state_make(const struct trainer *trainer,
                                  json_t *arithmetics, json_t **out);

/* May the run of this trainer, `arg`, go on from there? As
 * ckpt_load_options.accept; the trainer has its rollbacks then. */
enum err on_checkpoint_state_accept(void *arg, int64_t step,
                                    const json_t *state);

/* It goes on from there; *arithmetics: a copy of the state's. */
enum err on_checkpoint_state_restore(struct trainer *trainer, int64_t step,
                                     const json_t *state, json_t **arithmetics);
