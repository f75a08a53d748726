/* What an attempt has to know of a copy that may go: whether it is one, how good, and
 * whether it is pinned. The run directory may have been lost, so the mirror says so
 * itself: the loss is in its manifest, a pin is an object beside that. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/mirror/mirror.h"

#define PIN_BYTES_MAX 4096

static enum err fetch(struct store *store, const char *run_dir,
                      const struct mirror_folder *one, struct mirror_step *out)
{
    char path[FSIO_PATH_MAX];
    struct err_kept kept;
    TRY(ckpt_index_tmp_path(path, run_dir, one->step, "mirror"));
    TRY(ckpt_index_begin(run_dir, path, "mirror"));
    enum err rc = mirror_get_manifest(store, one->folder, path);
    err_keep(&kept, rc == ERR_OK ? mirror_step_of(path, out) : rc);
    (void)ckpt_index_discard(run_dir, path);
    return err_again(&kept);
}

/* A damaged one has none. */
static enum err take_loss(enum err rc, const struct mirror_step *step,
                          struct mirror_folder *one)
{
    one->loss = rc == ERR_OK ? step->loss : NAN;
    memcpy(one->of, step->of, sizeof one->of);
    if (rc != ERR_CHECKPOINT && rc != ERR_UNSUPPORTED)
        return rc;
    log_warn("checkpoint.mirror: %s is passed over, whatever its loss: %s",
             one->folder, err_text());
    return ERR_OK;
}

/* Puts the pin that the run directory has, or takes back one that it has no more. */
static enum err follow(struct store *store, const char *path, const char *pin,
                       bool pinned)
{
    static const char longer[] = "for a reason that is too long to go along";
    char file[FSIO_PATH_MAX], *reason = NULL;
    size_t bytes;
    if (!pinned)
        return store_remove(store, pin, pin);
    TRY(fsio_path(file, "%s/" CKPT_INDEX_PINNED, path));
    enum err rc = fsio_read_file(file, PIN_BYTES_MAX, &reason, &bytes);
    if (rc == ERR_DATA)
        rc = store_put(store, pin, longer, sizeof longer - 1);
    else if (rc == ERR_OK)
        rc = store_put(store, pin, reason, bytes);
    free(reason);
    return rc;
}

enum err mirror_look(struct store *store, const char *run_dir, bool losses,
                     struct mirror_folder *one)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX], pin[FSIO_PATH_MAX];
    int64_t bytes = -1;
    bool whole = one->is == MIRROR_WHOLE, new = one->is == MIRROR_UNSEEN;
    struct mirror_step here;
    TRY(ckpt_index_path(path, run_dir, one->step));
    TRY(fsio_path(pin, "%.63s/" CKPT_INDEX_PINNED, one->folder));
    if (new) {
        TRY(mirror_is_whole(store, one->folder, &whole));
        TRY(store_size(store, pin, &bytes));
        one->pinned = bytes >= 0;
    }
    bool pinned = ckpt_index_pinned(path);
    if (!whole)
        one->is = MIRROR_PART;
    if (!whole || (!new &&pinned == one->pinned))
        return ERR_OK;
    bool known = mirror_step_of(path, &here) == ERR_OK;
    bool same = known && strcmp(here.folder, one->folder) == 0;
    if (new &&losses && !same) {
        mirror_step_free(&here);
        rc = fetch(store, run_dir, one, &here);
    }
    if (new &&losses)
        TRY_OUT(take_loss(rc, &here, one));
    one->is = MIRROR_WHOLE;
    if (same && pinned != one->pinned)
        TRY_OUT(follow(store, path, pin, pinned));
    /* where that is not known it may be */
    one->pinned = same ? pinned : one->pinned || (pinned && !known);
out:
    mirror_step_free(&here);
    return rc;
}
