/* The folder of node-local checkpoints from checkpoint.local_dir, the job's
 * number and the run. */
#include "src/train/on_checkpoint_local.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/crc32c.h"
#include "src/job/slurm.h"

enum err on_checkpoint_local_dir(const char *setting, const char *run_dir,
                                 char out[FSIO_PATH_MAX])
{
    const char *job = strstr(setting, "%j");
    struct slurm slurm;
    out[0] = '\0';
    if (setting[0] == '\0')
        return ERR_OK;
    if (setting[0] != '/')
        return err_set(ERR_USAGE,
                       "checkpoint.local_dir = \"%s\": must be an absolute "
                       "path, it is a folder of every node",
                       setting);
    char *run = realpath(run_dir, NULL);
    if (run == NULL)
        return err_errno("%s", run_dir);
    uint32_t number = crc32c(0, run, strlen(run));
    free(run);
    slurm_read(&slurm);
    if (job == NULL)
        TRY(fsio_path(out, "%s/%08" PRIx32, setting, number));
    else
        TRY(fsio_path(out, "%.*s%ld%s/%08" PRIx32, (int)(job - setting),
                      setting, slurm.job_id, job + 2, number));
    return ERR_OK;
}
