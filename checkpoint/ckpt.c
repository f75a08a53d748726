/* What works on checkpoints without a communicator: listing. Saves begin in ckpt_saver.c, loads in ckpt_load.c. */
#include "checkpoint/ckpt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/files/ckpt_manifest.h"
#include "src/base/new.h"

/* What is wrong with one checkpoint is a line of the list, not its end. */
enum err ckpt_describe(const char *checkpoint_dir, struct ckpt_info *info)
{
    enum err rc = ERR_OK;
    struct ckpt_manifest *manifest = NULL;
    *info = (struct ckpt_info){ .step = ckpt_manifest_step_of(checkpoint_dir),
                                .eval_loss = NAN };
    TRY_OUT(fsio_path(info->path, "%s", checkpoint_dir));
    rc = ckpt_manifest_read(info->path, NULL, NULL, &manifest);
    if (rc == ERR_OK) {
        info->step = manifest->step;
        info->ranks = manifest->ranks;
        info->bytes = manifest->bytes;
        info->eval_loss =
            ckpt_index_loss(info->path, manifest->state, info->eval_of);
        rc = ckpt_manifest_check_sizes(manifest, info->path);
    }
    bool judged = rc == ERR_OK || rc == ERR_CHECKPOINT || rc == ERR_UNSUPPORTED;
    snprintf(info->state, sizeof info->state, "%s",
             !judged        ? "unknown"
             : rc == ERR_OK ? "good"
                            : "bad");
    if (rc != ERR_OK)
        snprintf(info->reason, sizeof info->reason, "%.255s", err_text());
    if (rc != ERR_MEMORY)
        rc = ERR_OK;
out:
    ckpt_manifest_destroy(manifest);
    return rc;
}

enum err ckpt_list(const char *run_dir, struct ckpt_info **list, int *count)
{
    enum err rc = ERR_OK;
    int64_t *steps = NULL;
    struct ckpt_info *infos = NULL;
    *list = NULL;
    *count = 0;
    int found, best = -1;
    bool all = true; /* one that cannot be read now may be the best */
    double least = INFINITY;
    char newest[CKPT_INDEX_OF_BYTES] = "";
    TRY_OUT(ckpt_index_steps(run_dir, &steps, &found, NULL));
    TRY_OUT(new_zeroed(&infos, (size_t)found + 1));
    for (int i = found; i-- > 0;) {
        char path[FSIO_PATH_MAX];
        TRY_OUT(ckpt_index_path(path, run_dir, steps[i]));
        TRY_OUT(ckpt_describe(path, &infos[i]));
        all = all && strcmp(infos[i].state, "unknown") != 0;
        if (strcmp(infos[i].state, "good") == 0 &&
            ckpt_index_better(infos[i].eval_loss, infos[i].eval_of, &least,
                              newest))
            best = i;
    }
    if (best >= 0 && all)
        infos[best].best = true;
    *count = found;
out:
    free(steps);
    return new_or_none(rc, infos, list, free);
}
