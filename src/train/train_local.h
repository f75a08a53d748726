/* Where the node-local checkpoints of a run are: checkpoint.local_dir, with %j
 * replaced by the number of the Slurm job, and below it a folder that no other
 * run has. */
#ifndef TESSERA_TRAIN_TRAIN_LOCAL_H
#define TESSERA_TRAIN_TRAIN_LOCAL_H

#include "src/base/err.h"
#include "src/base/fsio.h"
#include "src/train/train_settings.h"

/* Empty when there is none. The run directory exists. ERR_USAGE: the setting is
 * not an absolute path. */
enum err train_local_dir(const struct train_settings *settings,
                         char out[FSIO_PATH_MAX]);

#endif
