/* "base" in the state of a checkpoint that has a part of its model: what the
 * rest is (src/train/start/trainer_base.h). It may come from anybody. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "src/base/err.h"
#include "src/base/fsio.h"

/* Whether its members are what they must be: what is there has its type, within
 * the limits of settings, and nothing is missing. ERR_CHECKPOINT names the
 * first that is not; `where` is the checkpoint. */
enum err weights_base_check(const json_t *base, const char *where);

/* Where the base is if it is not where it was, but where it was from the run's
 * directory: both have moved together. false: it is not there, either. */
bool weights_base_moved(const json_t *base, const char *run_dir,
                        char out[FSIO_PATH_MAX]);
