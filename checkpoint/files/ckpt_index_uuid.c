/* The file RUN_UUID and the rules that say whose run a checkpoints folder is.
 *
 * The nodes' own folders outlive a run directory that somebody deletes to begin
 * anew: without a name of the run its old steps, being newer, would win over a
 * fresh start. The file is written after a load, when it is known whether a run
 * goes on or begins. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/files/ckpt_index_private.h"
#include "src/base/log.h"

/* What the newest checkpoint that can be read says; "" if none does. */
static void uuid_of_newest(const char *run_dir, char uuid[CKPT_UUID_BYTES])
{
    int64_t *steps = NULL;
    int count = 0;
    uuid[0] = '\0';
    if (ckpt_index_steps(run_dir, &steps, &count, NULL) != ERR_OK)
        return;
    for (int i = count - 1; i >= 0 && uuid[0] == '\0'; i--) {
        char path[FSIO_PATH_MAX];
        struct ckpt_manifest *manifest = NULL;
        if (ckpt_index_path(path, run_dir, steps[i]) != ERR_OK ||
            ckpt_manifest_read(path, NULL, NULL, &manifest) != ERR_OK)
            continue;
        const char *text =
            json_string_value(json_object_get(manifest->state, "run_uuid"));
        if (text != NULL && ckpt_manifest_uuid_valid(text))
            snprintf(uuid, CKPT_UUID_BYTES, "%s", text);
        ckpt_manifest_destroy(manifest);
    }
    free(steps);
}

/* "" if there is no file; *damaged if there is no uuid in it. */
static enum err uuid_stored(const char *run_dir, char uuid[CKPT_UUID_BYTES],
                            bool *damaged)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    char *text = NULL;
    size_t bytes;
    struct stat status;
    uuid[0] = '\0';
    *damaged = false;
    TRY_OUT(fsio_path(path, "%s/checkpoints/%s", run_dir, CKPT_INDEX_UUID));
    if (lstat(path, &status) != 0) {
        rc = errno == ENOENT ? ERR_OK : err_errno("%s: stat", path);
        goto out;
    }
    if (!S_ISREG(status.st_mode))
        TRY_OUT(
            err_set(ERR_CHECKPOINT,
                    "%s: must be a file with the uuid of the run: remove it, "
                    "and it is made again",
                    path));
    rc = fsio_read_file(path, CKPT_UUID_BYTES, &text, &bytes);
    if (rc == ERR_DATA)
        rc = ERR_OK;
    else if (rc != ERR_OK)
        goto out;
    if (text != NULL)
        text[strcspn(text, "\n")] = '\0';
    *damaged = text == NULL || !ckpt_manifest_uuid_valid(text);
    if (!*damaged)
        snprintf(uuid, CKPT_UUID_BYTES, "%s", text);
out:
    free(text);
    return rc;
}

enum err ckpt_index_uuid_read(const char *run_dir, char uuid[CKPT_UUID_BYTES])
{
    bool damaged;
    enum err rc = uuid_stored(run_dir, uuid, &damaged);
    if (rc != ERR_OK || !damaged)
        return rc;
    uuid_of_newest(run_dir, uuid);
    log_warn("%s/checkpoints/%s is damaged; by the newest checkpoint the run "
             "is %s",
             run_dir, CKPT_INDEX_UUID, uuid[0] != '\0' ? uuid : "unknown");
    return ERR_OK;
}

enum err ckpt_index_uuid_write(const char *run_dir, const char *uuid)
{
    char path[FSIO_PATH_MAX], root[FSIO_PATH_MAX], known[CKPT_UUID_BYTES];
    bool damaged;
    if (!ckpt_manifest_uuid_valid(uuid))
        return err_set(
            ERR_CHECKPOINT,
            "%s: the checkpoint names the run '%s', which is no uuid: "
            "go on from an older one",
            run_dir, uuid);
    TRY(uuid_stored(run_dir, known, &damaged));
    if (strcmp(known, uuid) == 0)
        return ERR_OK;
    TRY(ckpt_index_root(root, run_dir));
    TRY(fsio_mkdirs(root));
    TRY(fsio_path(path, "%s/%s", root, CKPT_INDEX_UUID));
    return fsio_write_atomic(path, uuid, strlen(uuid));
}
