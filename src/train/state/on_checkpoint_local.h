/* Where the node-local checkpoints of a run are, and the secret that signs them.
 *
 * checkpoint.local_dir, with %j replaced by the number of the Slurm job, is
 * opened as own.h says, so it may be below a folder that everybody may write to;
 * in it is a folder that no other run has. The secret is RUN/.secret, 64 digits
 * that only the run's owner can read; the first start makes it. */
#pragma once

#include "src/base/err.h"
#include "src/base/own.h"
#include "src/comm/comm.h"

struct on_checkpoint_local {
    const char *dir; /* NULL: there is no such level */
    struct own own;
    char secret[65];
};

/* For a value of the setting. The run directory exists and rank 0 has its lock.
 * ERR_USAGE: not an absolute path. Where a node has no folder for it the level is
 * left out on all, with a warning. Collective. */
enum err on_checkpoint_local_open(struct comm *comm, const char *setting,
                                  const char *run_dir,
                                  struct on_checkpoint_local *out);
/* NULL, or what has been opened or is all zero. */
void on_checkpoint_local_close(struct on_checkpoint_local *local);
