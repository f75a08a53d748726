/* Compares a file with what its index says. */
#include "src/data/mds_check.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/data/checksum.h"
#include "src/data/regular.h"

/* Bytes that checksums take at once. */
#define MDS_CHECK_BYTES ((size_t)1 << 20)

enum err mds_check_size(const char *path, const struct mds_file *file)
{
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
                              const struct mds_file *file, int count,
                              struct checksum *const *sums,
                              const struct dataset_watch *watch, bool *whole)
{
    enum err rc = ERR_OK;
    *whole = true;
    uint8_t *piece = malloc(MDS_CHECK_BYTES);
    if (piece == NULL)
        return err_set(ERR_MEMORY, "%s: out of memory", path);
    for (int64_t at = 0; at < file->bytes;) {
        int64_t left = file->bytes - at;
        if (watch != NULL && !watch->go_on(watch->self)) {
            *whole = false;
            break;
        }
        size_t bytes =
            left < (int64_t)MDS_CHECK_BYTES ? (size_t)left : MDS_CHECK_BYTES;
        TRY_OUT(mds_check_pread(fd, path, file, piece, bytes, at));
        for (int c = 0; c < count; c++)
            if (sums[c] != NULL)
                TRY_OUT(checksum_update(sums[c], piece, bytes));
        at += (int64_t)bytes;
    }
out:
    free(piece);
    return rc;
}

static enum err mds_check_compare(const char *path, const struct mds_hash *hash,
                                  struct checksum *sum)
{
    char hex[CHECKSUM_TEXT_BYTES];
    TRY(checksum_finish(sum, hex));
    if (strcmp(hex, hash->hex) != 0)
        return err_set(ERR_DATA,
                       "%s: its %s should be %s and is %s; the file is damaged "
                       "or was replaced: copy the data set again",
                       path, hash->name, hash->hex, hex);
    return ERR_OK;
}

enum err mds_check_hashes(int fd, const char *path, const struct mds_file *file,
                          const struct dataset_watch *watch)
{
    enum err rc = ERR_OK;
    bool whole = false;
    int known = 0, count = file->hashes;
    if (count == 0)
        return ERR_OK;
    struct checksum **sums = calloc((size_t)count, sizeof(*sums));
    if (sums == NULL)
        return err_set(ERR_MEMORY, "%s: out of memory", path);
    for (int h = 0; h < count; h++) {
        if (checksum_digits(file->hash[h].name) == 0)
            continue;
        known++;
        TRY_OUT(checksum_create(file->hash[h].name, &sums[h]));
    }
    if (known > 0)
        TRY_OUT(mds_check_sum(fd, path, file, count, sums, watch, &whole));
    for (int h = 0; h < count && whole; h++)
        if (sums[h] != NULL)
            TRY_OUT(mds_check_compare(path, &file->hash[h], sums[h]));
out:
    for (int h = 0; h < count; h++)
        checksum_destroy(sums[h]);
    free(sums);
    return rc;
}

enum err mds_check_sha256(int fd, const char *path, const struct mds_file *file,
                          char hex[65])
{
    enum err rc = ERR_OK;
    char text[CHECKSUM_TEXT_BYTES];
    struct checksum *sum = NULL;
    bool whole = false;
    TRY_OUT(checksum_create("sha256", &sum));
    TRY_OUT(mds_check_sum(fd, path, file, 1, &sum, NULL, &whole));
    TRY_OUT(checksum_finish(sum, text));
    memcpy(hex, text, 65);
out:
    checksum_destroy(sum);
    return rc;
}
