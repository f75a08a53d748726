/* tessera-ckpt prune: deletes what nobody wants to go back to, by the rules of
 * checkpoint/files/ckpt_index_retain.c, as the training itself does after a save.
 * It holds the run's lock meanwhile: a job that starts now would find a checkpoint
 * and see it go while it is loaded. --dry-run only looks and takes no lock. */
#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "checkpoint/ckpt.h"
#include "checkpoint/files/ckpt_index.h"
#include "src/base/clean.h"
#include "src/base/jsontext.h"
#include "src/base/units.h"
#include "src/cmd/ckpt_cmd.h"
#include "src/job/lock.h"

/* What the files of a folder without subfolders take. */
static enum err folder_bytes(const char *path, int64_t *bytes)
{
    *bytes = 0;
    DIR *folder = opendir(path);
    if (folder == NULL)
        return err_errno("%s: open", path);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        struct stat status;
        if (fstatat(dirfd(folder), entry->d_name, &status,
                    AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(status.st_mode))
            *bytes += status.st_size;
    }
    closedir(folder);
    return ERR_OK;
}

/* The size is looked at before, since afterwards there is none; what was deleted is
 * told one by one, so that an interrupted prune has told what it did. */
static enum err prune_step(const struct ckpt_cmd *cmd, int64_t step,
                           json_t *removed, int64_t *bytes)
{
    char path[FSIO_PATH_MAX];
    int64_t own;
    assert(step >= 0);
    TRY(ckpt_index_path(path, cmd->paths[0], step));
    TRY(folder_bytes(path, &own));
    if (!cmd->dry_run)
        TRY(ckpt_index_discard(cmd->paths[0], path));
    *bytes += own;
    if (!cmd->json)
        clean_printf("%s: %s, %s\n", path, UNITS_BYTES(own),
                     cmd->dry_run ? "would go" : "deleted");
    if (json_array_append_new(removed, json_pack("{s:I, s:o, s:I}", "step",
                                                 (json_int_t)step, "path",
                                                 jsontext_string(path), "bytes",
                                                 (json_int_t)own)) != 0)
        return err_set(ERR_MEMORY, "prune: out of memory");
    return ERR_OK;
}

/* The newest good one stays in any case. */
static enum err prune(const struct ckpt_cmd *cmd, json_t *removed,
                      int64_t *bytes)
{
    assert(cmd->keep > 0 || cmd->keep_every > 0);
    enum err rc = ERR_OK;
    struct ckpt_retention retention = { .keep =
                                            cmd->keep > 0 ? (int)cmd->keep : 1,
                                        .keep_every = cmd->keep_every };
    int64_t *steps = NULL;
    int count = 0;
    TRY_OUT(ckpt_index_prunable(cmd->paths[0], &retention, INT64_MAX, &steps,
                                &count));
    for (int i = 0; i < count; i++)
        TRY_OUT(prune_step(cmd, steps[i], removed, bytes));
out:
    free(steps);
    return rc;
}

enum err ckpt_cmd_prune(struct ckpt_cmd *cmd)
{
    enum err rc = ERR_OK;
    struct lock *lock = NULL;
    json_t *removed = json_array();
    int64_t bytes = 0;
    TRY_OUT(ckpt_cmd_need_root(cmd->paths[0]));
    if (!cmd->dry_run)
        TRY_OUT(lock_acquire(cmd->paths[0], LOCK_BEAT_S, &lock));
    TRY_OUT(prune(cmd, removed, &bytes));
    if (cmd->json)
        rc = ckpt_cmd_print(json_pack("{s:b, s:I, s:O}", "dry_run",
                                      cmd->dry_run, "bytes", (json_int_t)bytes,
                                      "removed", removed));
    else
        clean_printf("%zu checkpoints, %s%s\n", json_array_size(removed),
                     UNITS_BYTES(bytes),
                     cmd->dry_run ? " would be free" : " freed");
out:
    lock_release(lock);
    json_decref(removed);
    return rc;
}
