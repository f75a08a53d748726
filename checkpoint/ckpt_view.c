/* Writes and checks checkpoint.h5, which shows all shards as one HDF5 file. Its
 * bytes are made in ckpt_view_image.c; loads never read it. */
#include "checkpoint/ckpt_view.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/ckpt_view_image.h"
#include "src/base/crc32c.h"
#include "src/base/fsio.h"

#define READ_BYTES ((size_t)1 << 20)

/* Size and CRC of the open file, read to its end. */
static enum err file_crc(int fd, const char *path, struct ckpt_view *view)
{
    enum err rc = ERR_OK;
    char *buffer = malloc(READ_BYTES);
    if (buffer == NULL)
        return err_set(ERR_MEMORY, "%s: out of memory", path);
    *view = (struct ckpt_view){ 0 };
    for (;;) {
        ssize_t n = read(fd, buffer, READ_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = err_errno("%s: read", path);
        if (n <= 0)
            break;
        view->crc = crc32c(view->crc, buffer, (size_t)n);
        view->bytes += n;
    }
    free(buffer);
    return rc;
}

enum err ckpt_view_write(const char *checkpoint_dir,
                         const struct ckpt_manifest *manifest,
                         struct ckpt_view *view)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    void *image = NULL;
    size_t bytes;
    TRY_OUT(fsio_path(path, "%s/%s", checkpoint_dir, CKPT_VIEW_FILE));
    TRY_OUT(ckpt_view_image(manifest, &image, &bytes));
    *view = (struct ckpt_view){ (int64_t)bytes, crc32c(0, image, bytes) };
    TRY_OUT(fsio_write_atomic(path, image, bytes));
out:
    free(image);
    return rc;
}

enum err ckpt_view_mend(const char *checkpoint_dir,
                        const struct ckpt_manifest *manifest)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    void *image = NULL;
    size_t bytes;
    TRY_OUT(fsio_path(path, "%s/%s", checkpoint_dir, CKPT_VIEW_FILE));
    TRY_OUT(ckpt_view_image(manifest, &image, &bytes));
    if ((int64_t)bytes != manifest->view.bytes ||
        crc32c(0, image, bytes) != manifest->view.crc) {
        rc = err_set(ERR_UNSUPPORTED,
                     "%s: another version of Tessera has written this "
                     "checkpoint: `tessera-ckpt reshard` makes a copy that has "
                     "the file",
                     path);
        goto out;
    }
    TRY_OUT(fsio_write_atomic(path, image, bytes));
out:
    free(image);
    return rc;
}

/* ERR_CHECKPOINT for what is no file; `missing` says whether it is there. */
static enum err check_kind(const char *path, bool *missing)
{
    struct stat status = { 0 };
    bool found = lstat(path, &status) == 0;
    *missing = !found && errno == ENOENT;
    if (!found && !*missing)
        return err_errno("%s: stat", path);
    return *missing || S_ISREG(status.st_mode)
               ? ERR_OK
               : err_set(ERR_CHECKPOINT, "%s: is not a regular file", path);
}

enum err ckpt_view_check(const char *checkpoint_dir,
                         const struct ckpt_manifest *manifest)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    bool missing;
    int fd = -1;
    struct ckpt_view found = { 0 };
    if (manifest->view.bytes == 0)
        goto out;
    TRY_OUT(fsio_path(path, "%s/%s", checkpoint_dir, CKPT_VIEW_FILE));
    TRY_OUT(check_kind(path, &missing));
    if (missing) {
        rc = err_set(ERR_CHECKPOINT, "%s: file is missing", path);
        goto out;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        rc = err_errno("%s: open", path);
        goto out;
    }
    TRY_OUT(file_crc(fd, path, &found));
    if (found.bytes != manifest->view.bytes || found.crc != manifest->view.crc)
        rc = err_set(ERR_CHECKPOINT,
                     "%s: damaged (%" PRId64 " bytes, CRC32C %08" PRIx32
                     ", must be %" PRId64 ", %08" PRIx32 ")",
                     path, found.bytes, found.crc, manifest->view.bytes,
                     manifest->view.crc);
out:
    if (fd >= 0)
        close(fd);
    return rc;
}
