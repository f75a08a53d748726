/* Pins of checkpoints, and the retention that deletes those beyond the newest
 * few. Only good ones are counted among these, or damaged steps would push out
 * the last that can be loaded. */
#include "checkpoint/files/ckpt_index_private.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REASON_BYTES_MAX 4096

/* --- pins --- */

static enum err pin_path(char out[FSIO_PATH_MAX], const char *checkpoint_dir)
{
    return fsio_path(out, "%s/%s", checkpoint_dir, CKPT_INDEX_PINNED);
}

static enum err check_folder(const char *checkpoint_dir)
{
    char path[FSIO_PATH_MAX];
    TRY(fsio_path(path, "%s/%s", checkpoint_dir, CKPT_MANIFEST_FILE));
    if (!fsio_exists(path))
        return err_set(ERR_CHECKPOINT, "%s: no checkpoint is there",
                       checkpoint_dir);
    return ERR_OK;
}

enum err ckpt_index_pin(const char *checkpoint_dir, const char *reason)
{
    char path[FSIO_PATH_MAX];
    TRY(check_folder(checkpoint_dir));
    TRY(pin_path(path, checkpoint_dir));
    return fsio_write_atomic(path, reason, strlen(reason));
}

enum err ckpt_index_unpin(const char *checkpoint_dir)
{
    char path[FSIO_PATH_MAX];
    TRY(check_folder(checkpoint_dir));
    TRY(pin_path(path, checkpoint_dir));
    if (unlink(path) == 0)
        TRY(fsio_fsync_dir(checkpoint_dir));
    else if (errno != ENOENT)
        return err_errno("%s: remove", path);
    return ERR_OK;
}

bool ckpt_index_pinned(const char *checkpoint_dir)
{
    char path[FSIO_PATH_MAX];
    /* what cannot be looked at may be */
    return pin_path(path, checkpoint_dir) == ERR_OK &&
           (access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR));
}

enum err ckpt_index_pin_inherit(const char *from_dir, const char *to_dir)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    char *reason = NULL;
    size_t bytes;
    TRY_OUT(pin_path(path, from_dir));
    TRY_OUT(fsio_read_file(path, REASON_BYTES_MAX, &reason, &bytes));
    TRY_OUT(ckpt_index_pin(to_dir, reason));
out:
    free(reason);
    return rc;
}

/* --- retention --- */

void ckpt_index_know(struct ckpt_index_known *known, int64_t step)
{
    known->steps[known->count++ % CKPT_INDEX_KNOWN] = step;
}

static bool is_known(const struct ckpt_index_known *known, int64_t step)
{
    for (size_t i = 0;
         known != NULL && i < known->count && i < CKPT_INDEX_KNOWN; i++)
        if (known->steps[i] == step)
            return true;
    return false;
}

static bool is_good(const char *run_dir, int64_t step,
                    struct ckpt_index_known *known)
{
    char path[FSIO_PATH_MAX];
    if (is_known(known, step))
        return true;
    if (ckpt_index_path(path, run_dir, step) != ERR_OK ||
        ckpt_index_quick_check(path, NULL, NULL) != ERR_OK)
        return false;
    if (known != NULL)
        ckpt_index_know(known, step);
    return true;
}

/* steps[0 .. result) are older than the keep-th newest good one. */
static int older_count(const char *run_dir, const int64_t *steps, int count,
                       const struct ckpt_retention *retention)
{
    assert(retention->keep > 0);
    int good = 0;
    for (int i = count - 1; i >= 0; i--)
        if (is_good(run_dir, steps[i], retention->known) &&
            ++good == retention->keep)
            return i;
    return 0;
}

enum err ckpt_index_prunable(const char *run_dir,
                             const struct ckpt_retention *retention,
                             int64_t step, int64_t **steps, int *count)
{
    enum err rc = ERR_OK;
    int64_t *list = NULL;
    int64_t best = -1;
    int found;
    assert(retention->keep_every >= 0);
    *steps = NULL;
    *count = 0;
    if (retention->keep <= 0)
        return ERR_OK;
    TRY_OUT(ckpt_index_steps(run_dir, &list, &found, NULL));
    if (retention->keep_best)
        TRY_OUT(ckpt_index_best(run_dir, true, &best));
    int older = older_count(run_dir, list, found, retention);
    for (int i = 0; i < older && list[i] < step; i++) {
        char path[FSIO_PATH_MAX];
        TRY_OUT(ckpt_index_path(path, run_dir, list[i]));
        /* without a manifest nobody can tell whose it is */
        bool stays = (retention->keep_every > 0 &&
                      list[i] % retention->keep_every == 0) ||
                     list[i] == best || list[i] == retention->spare ||
                     ckpt_index_pinned(path) ||
                     (!is_known(retention->known, list[i]) &&
                      check_folder(path) != ERR_OK);
        if (!stays)
            list[(*count)++] = list[i];
    }
    if (*count > 0) {
        *steps = list;
        list = NULL;
    }
out:
    free(list);
    return rc;
}

enum err ckpt_index_prune(const char *run_dir,
                          const struct ckpt_retention *retention, int64_t step,
                          char trash[FSIO_PATH_MAX])
{
    enum err rc = ERR_OK;
    int64_t *steps = NULL;
    int count;
    if (trash != NULL)
        trash[0] = '\0';
    TRY_OUT(ckpt_index_prunable(run_dir, retention, step, &steps, &count));
    for (int i = 0; i < count; i++) {
        char path[FSIO_PATH_MAX];
        TRY_OUT(ckpt_index_path(path, run_dir, steps[i]));
        if (trash != NULL && i == count - 1)
            TRY_OUT(ckpt_index_retire(run_dir, path, trash));
        else
            TRY_OUT(ckpt_index_discard(run_dir, path));
    }
out:
    free(steps);
    return rc;
}
