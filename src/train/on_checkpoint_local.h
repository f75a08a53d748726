/* Where the node-local checkpoints of a run are: checkpoint.local_dir, with %j
 * replaced by the number of the Slurm job, and below it a folder that no other
 * run has. */
#ifndef TESSERA_TRAIN_ON_CHECKPOINT_LOCAL_H
#define TESSERA_TRAIN_ON_CHECKPOINT_LOCAL_H

#include "src/base/err.h"
#include "src/base/fsio.h"

/* The folder for a value of the setting; empty when that is. The run directory
 * exists. ERR_USAGE: the setting is not an absolute path. */
enum err on_checkpoint_local_dir(const char *setting, const char *run_dir,
                                 char out[FSIO_PATH_MAX]);

#endif
