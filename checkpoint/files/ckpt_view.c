/* Writes and checks checkpoint.h5, which shows all shards as one HDF5 file. Its
 * bytes are made in ckpt_view_image.c; loads never read it. */
#include "checkpoint/files/ckpt_view.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/files/ckpt_crash.h"
#include "src/base/digest.h"
#include "src/base/fsio.h"

static enum err make_view(const struct ckpt_manifest *manifest, void **image,
                          struct ckpt_view *view)
{
    size_t bytes;
    TRY(ckpt_view_image(manifest, image, &bytes));
    *view = (struct ckpt_view){ (int64_t)bytes, crc32c(0, *image, bytes) };
    return ERR_OK;
}

/* Make the view and write it, where there is none (`fresh`) or over it; `want`:
 * only these bytes, if it has some. */
static enum err write_view(const char *checkpoint_dir, bool fresh,
                           const struct ckpt_manifest *manifest,
                           const struct ckpt_view *want, struct ckpt_view *view)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    void *image = NULL;
    TRY_OUT(fsio_path(path, "%s/%s", checkpoint_dir, CKPT_VIEW_FILE));
    TRY_OUT(make_view(manifest, &image, view));
    if (want->bytes > 0 &&
        (view->bytes != want->bytes || view->crc != want->crc))
        TRY_OUT(
            err_set(ERR_UNSUPPORTED,
                    "%s: another version of Tessera has written this "
                    "checkpoint: `tessera-ckpt reshard` makes a copy that has "
                    "the file",
                    path));
    size_t length = (size_t)view->bytes;
    TRY_OUT(fresh ? fsio_write_new(path, image, length, true)
                  : fsio_write_atomic(path, image, length));
out:
    free(image);
    return rc;
}

/* The names of shards below shards/NNN are durable; those in the folder itself
 * with the manifest. */
static enum err sync_folders(const char *checkpoint_dir,
                             const struct ckpt_manifest *manifest)
{
    char path[FSIO_PATH_MAX];
    const char *last = "", *end;
    size_t length = 0;
    for (int s = 0; s < manifest->shard_count; s++) {
        const char *file = manifest->shards[s].file;
        if ((end = strrchr(file, '/')) == NULL ||
            ((size_t)(end - file) == length &&
             strncmp(file, last, length) == 0))
            continue;
        last = file;
        length = (size_t)(end - file);
        TRY(fsio_path(path, "%s/%.*s", checkpoint_dir, (int)length, file));
        TRY(fsio_fsync_dir(path));
    }
    if (length == 0)
        return ERR_OK;
    TRY(fsio_path(path, "%s/%.*s", checkpoint_dir, (int)strcspn(last, "/"),
                  last));
    return fsio_fsync_dir(path);
}

enum err ckpt_view_seal(const char *checkpoint_dir,
                        struct ckpt_manifest_head *head,
                        const struct ckpt_shard *shards, int shard_count)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    char *text = NULL;
    size_t bytes;
    struct ckpt_manifest *check = NULL;
    TRY_OUT(fsio_path(path, "%s/%s", checkpoint_dir, CKPT_MANIFEST_FILE));
    /* Made twice. The first, without a view, goes through the reader that a
     * load uses: what that would refuse must not be committed, whoever's
     * mistake it is. The view is made of what the reader has found, and the
     * second manifest has its sum. */
    TRY_OUT(ckpt_manifest_format(head, shards, shard_count, &text, &bytes));
    TRY_OUT(ckpt_manifest_parse(text, bytes, path, &check));
    ckpt_crash_point("manifest-checked", 0);
    TRY_OUT(sync_folders(checkpoint_dir, check));
    /* A view of many takes long to make, and most checkpoints nobody looks into. */
    if (check->extents <= CKPT_VIEW_EXTENTS)
        TRY_OUT(
            write_view(checkpoint_dir, true, check, &check->view, &head->view));
    ckpt_crash_point("view-written", 0);
    free(text);
    TRY_OUT(ckpt_manifest_format(head, shards, shard_count, &text, &bytes));
    TRY_OUT(fsio_write_new(path, text, bytes, true));
    TRY_OUT(fsio_fsync_dir(checkpoint_dir));
out:
    ckpt_manifest_destroy(check);
    free(text);
    return rc;
}

enum err ckpt_view_mend(const char *checkpoint_dir,
                        const struct ckpt_manifest *manifest,
                        struct ckpt_view *view)
{
    return write_view(checkpoint_dir, false, manifest, &manifest->view, view);
}

/* What the file must be; 0 bytes: it need not be there, and is not. */
static enum err wanted_view(const char *path,
                            const struct ckpt_manifest *manifest,
                            struct ckpt_view *want)
{
    void *image = NULL;
    *want = manifest->view;
    if (want->bytes > 0 || !fsio_exists(path))
        return ERR_OK;
    enum err rc = make_view(manifest, &image, want);
    free(image);
    return rc;
}

enum err ckpt_view_check(const char *checkpoint_dir,
                         const struct ckpt_manifest *manifest)
{
    struct ckpt_view view;
    char path[FSIO_PATH_MAX];
    char *data = NULL;
    size_t bytes;
    struct stat status = { 0 };
    TRY(fsio_path(path, "%s/%s", checkpoint_dir, CKPT_VIEW_FILE));
    TRY(wanted_view(path, manifest, &view));
    if (view.bytes == 0)
        return ERR_OK;
    if (lstat(path, &status) != 0)
        return errno == ENOENT
                   ? err_set(ERR_CHECKPOINT, "%s: file is missing", path)
                   : err_errno("%s: stat", path);
    if (!S_ISREG(status.st_mode))
        return err_set(ERR_CHECKPOINT, "%s: is not a regular file", path);
    if (status.st_size != view.bytes)
        return err_set(ERR_CHECKPOINT,
                       "%s: damaged (%" PRId64 " bytes, must be %" PRId64 ")",
                       path, (int64_t)status.st_size, view.bytes);
    TRY(fsio_read_file(path, (size_t)view.bytes, &data, &bytes));
    uint32_t crc = crc32c(0, data, bytes);
    free(data);
    if (crc != view.crc)
        return err_set(ERR_CHECKPOINT,
                       "%s: damaged (CRC32C %08" PRIx32 ", must be %08" PRIx32
                       ")",
                       path, crc, view.crc);
    return ERR_OK;
}
