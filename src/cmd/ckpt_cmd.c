/* What the commands of tessera-ckpt share: JSON, forms of tensors, checks of
 * paths.
 *
 * People name the wrong one of four folders: the run, its folder checkpoints, one
 * checkpoint, or something else. Each of these is told apart here before a command
 * looks into it, and the message names the folder that was probably meant; "no
 * manifest" would be true of three of them and help with none. */
#include "src/cmd/ckpt_cmd.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/files/ckpt_manifest.h"
#include "src/base/jsontext.h"
#include "src/mirror/home.h"

enum err ckpt_cmd_print(json_t *value)
{
    char *text = NULL;
    enum err rc = jsontext_make(value, 2, &text);
    if (rc == ERR_OK)
        puts(text);
    json_decref(value);
    free(text);
    return rc;
}

json_t *ckpt_cmd_path(const char *path)
{
    char where[FSIO_PATH_MAX];
    return jsontext_string(home_where(path, where));
}

void ckpt_cmd_form(const struct ckpt_tensor *tensor, char *text, size_t size)
{
    assert(size > 0);
    int at = snprintf(text, size, "%s [", dtype_name(tensor->dtype));
    for (int d = 0; d < tensor->dims && at > 0 && (size_t)at < size; d++)
        at += snprintf(text + at, size - (size_t)at, "%s%" PRId64,
                       d == 0 ? "" : ", ", tensor->shape[d]);
    if (at > 0 && (size_t)at < size)
        snprintf(text + at, size - (size_t)at, "]");
}

enum err ckpt_cmd_need_run(const char *run_dir)
{
    return fsio_exists(run_dir)
               ? ERR_OK
               : err_set(ERR_USAGE, "%s: no such run directory", run_dir);
}

/* "a/run" of "a/run/checkpoints/"; empty: it does not end so. By the name alone:
 * the folder need not be there. */
static enum err above_root(const char *path, char run_dir[FSIO_PATH_MAX])
{
    static const char name[] = "checkpoints";
    size_t length = sizeof name - 1;
    TRY(fsio_path(run_dir, "%s", path));
    size_t end = strlen(run_dir);
    while (end > 0 && run_dir[end - 1] == '/')
        end--;
    bool so = end >= length &&
              strncmp(run_dir + end - length, name, length) == 0 &&
              (end == length || run_dir[end - length - 1] == '/');
    run_dir[so ? end - length : 0] = '\0';
    if (so && end == length)
        TRY(fsio_path(run_dir, "."));
    for (end = strlen(run_dir); end > 1 && run_dir[end - 1] == '/'; end--)
        run_dir[end - 1] = '\0';
    return ERR_OK;
}

enum err ckpt_cmd_need_root(const char *run_dir)
{
    char root[FSIO_PATH_MAX], ledger[FSIO_PATH_MAX];
    TRY(ckpt_cmd_need_run(run_dir));
    TRY(ckpt_index_root(root, run_dir));
    TRY(fsio_path(ledger, "%s/ledger.jsonl", run_dir));
    if (fsio_exists(root) || fsio_exists(ledger))
        return ERR_OK;
    TRY(above_root(run_dir, root));
    if (root[0] != '\0')
        return err_set(ERR_USAGE,
                       "%s: is in a run directory and none itself: give %s",
                       run_dir, root);
    return err_set(ERR_USAGE,
                   "%s: is no run directory: it has neither checkpoints nor "
                   "ledger.jsonl; give the run.dir of a run",
                   run_dir);
}

/* For a command that changes or copies one checkpoint: which one must be said. */
static enum err is_run(const char *run_dir)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX] = "";
    int64_t *steps = NULL;
    int count = 0;
    bool evidence;
    TRY_OUT(ckpt_index_steps(run_dir, &steps, &count, &evidence));
    if (count > 0)
        TRY_OUT(ckpt_index_path(path, run_dir, steps[count - 1]));
    rc = err_set(ERR_USAGE,
                 "%s: is a run directory; give one of its "
                 "checkpoints%s%s",
                 run_dir,
                 count > 0 ? ": the newest is " : ", of which it has none yet",
                 path);
out:
    free(steps);
    return rc;
}

/* Its folder has the manifest, or at least the name. */
static bool is_checkpoint(const char *path)
{
    char manifest[FSIO_PATH_MAX];
    return ckpt_manifest_step_of(path) >= 0 ||
           (fsio_path(manifest, "%s/%s", path, CKPT_MANIFEST_FILE) == ERR_OK &&
            fsio_exists(manifest));
}

enum err ckpt_cmd_need_checkpoint(const char *checkpoint_dir)
{
    char root[FSIO_PATH_MAX];
    if (!fsio_exists(checkpoint_dir))
        return err_set(ERR_USAGE, "%s: no such checkpoint folder",
                       checkpoint_dir);
    if (is_checkpoint(checkpoint_dir))
        return ERR_OK;
    TRY(ckpt_index_root(root, checkpoint_dir));
    return fsio_exists(root)
               ? is_run(checkpoint_dir)
               : err_set(ERR_USAGE,
                         "%s: no checkpoint: it has no %s; give a folder "
                         "RUN/checkpoints/step-*",
                         checkpoint_dir, CKPT_MANIFEST_FILE);
}

enum err ckpt_cmd_find_checkpoint(const char **path, char room[FSIO_PATH_MAX])
{
    TRY(ckpt_index_root(room, *path));
    if (is_checkpoint(*path) || !fsio_exists(room))
        return ckpt_cmd_need_checkpoint(*path);
    TRY(ckpt_index_newest(room, *path));
    assert(is_checkpoint(room));
    *path = room;
    return ERR_OK;
}
