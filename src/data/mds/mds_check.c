/* Compares a file with what its index says: there, regular, as long, and of the
 * same checksums. Each message says which of these it was and what to do, since
 * "damaged" alone would send people to the wrong disk. */
#include "src/data/mds/mds_index.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/new.h"
#include "src/data/codec/checksum.h"
#include "src/data/codec/file_sums.h"
#include "src/base/regular.h"

/* Bytes that checksums take at once. */
#define MDS_CHECK_BYTES ((size_t)1 << 20)

enum err mds_check_size(const char *path, const struct mds_file *file)
{
    assert(path != NULL && file != NULL);
    int64_t bytes = 0;
    enum err rc = regular_size(path, &bytes);
    if (rc == ERR_DATA && !fsio_exists(path))
        return err_set(ERR_DATA,
                       "%s: no such file, but the index names it; copy the "
                       "data set again",
                       path);
    if (rc == ERR_OK && bytes != file->bytes)
        return err_set(ERR_DATA,
                       "%s: has %lld bytes, but the index says %lld; copy the "
                       "data set again",
                       path, (long long)bytes, (long long)file->bytes);
    return rc;
}

enum err mds_check_pread(int fd, const char *path, const struct mds_file *file,
                         void *data, size_t bytes, int64_t offset)
{
    enum err rc = fsio_pread(fd, data, bytes, offset, path);
    if (rc != ERR_DATA)
        return rc;
    return err_set(ERR_DATA,
                   "%s: was cut short while it was in use: it ends before "
                   "byte %lld, and the index says %lld; copy the data set "
                   "again, then start again",
                   path, (long long)offset + (long long)bytes,
                   (long long)file->bytes);
}

/* These checksums, in one pass; *whole: the watch did not end it. */
static enum err mds_check_sum(int fd, const char *path,
                              const struct mds_file *file,
                              struct file_sums *sums,
                              const struct dataset_watch *watch, bool *whole)
{
    enum err rc = ERR_OK;
    *whole = true;
    uint8_t *piece = NULL;
    TRY(new_room(&piece, MDS_CHECK_BYTES));
    for (int64_t at = 0; at < file->bytes;) {
        int64_t left = file->bytes - at;
        /* a MiB at a time is some milliseconds: so soon a signal is heard */
        if (watch != NULL && !watch->go_on(watch->self)) {
            *whole = false;
            break;
        }
        size_t bytes =
            left < (int64_t)MDS_CHECK_BYTES ? (size_t)left : MDS_CHECK_BYTES;
        TRY_OUT(mds_check_pread(fd, path, file, piece, bytes, at));
        TRY_OUT(file_sums_update(sums, piece, bytes));
        at += (int64_t)bytes;
    }
out:
    free(piece);
    return rc;
}

enum err mds_check_hashes(int fd, const char *path, const struct mds_file *file,
                          const struct dataset_watch *watch)
{
    enum err rc = ERR_OK;
    bool whole = false;
    struct file_sums *sums = NULL;
    TRY(file_sums_create(file->hash, file->hashes, &sums));
    if (!file_sums_is_empty(sums))
        TRY_OUT(mds_check_sum(fd, path, file, sums, watch, &whole));
    if (whole)
        rc = file_sums_compare(sums);
    if (rc == ERR_DATA)
        rc = err_set(ERR_DATA,
                     "%s: %s; the file is damaged or was replaced: copy the "
                     "data set again",
                     path, err_text());
out:
    file_sums_destroy(sums);
    return rc;
}

enum err mds_check_sha256(int fd, const char *path, const struct mds_file *file,
                          char hex[65])
{
    enum err rc = ERR_OK;
    /* a checksum without a value to compare with: it is computed alone */
    char name[] = "sha256", text[CHECKSUM_TEXT_BYTES];
    const struct file_sum hash = { name, NULL };
    struct file_sums *sums = NULL;
    bool whole = false;
    TRY(file_sums_create(&hash, 1, &sums));
    TRY_OUT(mds_check_sum(fd, path, file, sums, NULL, &whole));
    TRY_OUT(file_sums_finish(sums, 0, text));
    memcpy(hex, text, 65);
out:
    file_sums_destroy(sums);
    return rc;
}
