#include "checkpoint/ckpt_pin.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/ckpt_manifest.h"
#include "src/base/fsio.h"

#define PIN_FILE "PINNED"

/* PINNED of a folder that is a checkpoint, good or not. */
static enum err pin_path(const char *checkpoint_dir, char path[FSIO_PATH_MAX])
{
    enum err rc = ERR_OK;
    TRY(fsio_path(path, "%s/%s", checkpoint_dir, CKPT_MANIFEST_FILE));
    if (!fsio_exists(path)) {
        rc = err_set(ERR_CHECKPOINT, "%s: no checkpoint is there",
                     checkpoint_dir);
        goto out;
    }
    TRY(fsio_path(path, "%s/%s", checkpoint_dir, PIN_FILE));
out:
    return rc;
}

enum err ckpt_index_pin(const char *checkpoint_dir, const char *reason)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    TRY(pin_path(checkpoint_dir, path));
    TRY(fsio_write_atomic(path, reason, strlen(reason)));
out:
    return rc;
}

enum err ckpt_index_unpin(const char *checkpoint_dir)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    TRY(pin_path(checkpoint_dir, path));
    if (unlink(path) == 0)
        TRY(fsio_fsync_dir(checkpoint_dir));
    else if (errno != ENOENT)
        rc = err_errno("%s: remove", path);
out:
    return rc;
}

bool ckpt_index_pinned(const char *checkpoint_dir)
{
    char path[FSIO_PATH_MAX];
    return fsio_path(path, "%s/%s", checkpoint_dir, PIN_FILE) == ERR_OK &&
           fsio_exists(path);
}
