/* prune: delete what nobody wants to go back to. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/ckpt.h"
#include "checkpoint/ckpt_index.h"
#include "checkpoint/ckpt_pin.h"
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

/* The newest `keep` good ones stay, whatever is newer than them, multiples of
 * keep_every, and pins. */
static bool stays(const struct ckpt_cmd *cmd, const struct ckpt_info *info,
                  int64_t oldest_kept)
{
    return info->step >= oldest_kept ||
           (cmd->keep_every > 0 && info->step % cmd->keep_every == 0) ||
           ckpt_index_pinned(info->path);
}

/* The step of the keep-th newest good one; with fewer, everything is kept. */
static int64_t oldest_kept(const struct ckpt_info *list, int count,
                           int64_t keep)
{
    int64_t good = 0;
    for (int i = count - 1; i >= 0; i--)
        if (strcmp(list[i].state, "good") == 0 && ++good == keep)
            return list[i].step;
    return 0;
}

static enum err prune(const struct ckpt_cmd *cmd, json_t *removed,
                      int64_t *bytes)
{
    enum err rc = ERR_OK;
    struct ckpt_info *list = NULL;
    int count = 0;
    TRY(ckpt_list(cmd->paths[0], &list, &count));
    int64_t border = oldest_kept(list, count, cmd->keep > 0 ? cmd->keep : 1);
    for (int i = 0; i < count; i++) {
        int64_t own;
        char size[32];
        if (stays(cmd, &list[i], border))
            continue;
        TRY(folder_bytes(list[i].path, &own));
        if (!cmd->dry_run)
            TRY(ckpt_index_discard(cmd->paths[0], list[i].path));
        *bytes += own;
        units_bytes((double)own, size, sizeof size);
        if (!cmd->json)
            printf("%s: %s, %s\n", list[i].path, size,
                   cmd->dry_run ? "would go" : "deleted");
        if (json_array_append_new(removed,
                                  json_pack("{s:I, s:o, s:I}", "step",
                                            (json_int_t)list[i].step, "path",
                                            ckpt_cmd_text(list[i].path),
                                            "bytes", (json_int_t)own)) != 0) {
            rc = err_set(ERR_MEMORY, "prune: out of memory");
            goto out;
        }
    }
out:
    free(list);
    return rc;
}

enum err ckpt_cmd_prune(const struct ckpt_cmd *cmd, int *exit_code)
{
    enum err rc = ERR_OK;
    struct lock *lock = NULL;
    json_t *removed = json_array();
    int64_t bytes = 0;
    char size[32];
    (void)exit_code;
    if (cmd->keep == 0 && cmd->keep_every == 0) {
        rc = err_set(ERR_USAGE,
                     "prune needs --keep K or --keep-every M; see --help");
        goto out;
    }
    TRY(ckpt_cmd_need_run(cmd->paths[0]));
    if (!cmd->dry_run)
        TRY(lock_acquire(cmd->paths[0], &lock));
    TRY(prune(cmd, removed, &bytes));
    units_bytes((double)bytes, size, sizeof size);
    if (cmd->json)
        rc = ckpt_cmd_print(json_pack("{s:b, s:I, s:O}", "dry_run",
                                      cmd->dry_run, "bytes", (json_int_t)bytes,
                                      "removed", removed));
    else
        printf("%zu checkpoints, %s%s\n", json_array_size(removed), size,
               cmd->dry_run ? " would be free" : " freed");
out:
    lock_release(lock);
    json_decref(removed);
    return rc;
}
