/* file:// as a store: a folder of a file system that is too slow to be read
 * sample by sample. Copied by pieces, so that a stop and the deadline are
 * looked at in between. */
#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/new.h"
#include "src/base/regular.h"
#include "src/data/remote/store_impl.h"

#define STORE_FILE_PIECE ((size_t)1 << 20)

static enum err store_file_open(struct store *store)
{
    struct store_url *url = &store->url;
    if (url->place[0] != '\0' && strcmp(url->place, "localhost") != 0)
        return err_set(ERR_USAGE,
                       "%s: file:// has no host: write file:///FOLDER",
                       store->address);
    if (url->path[0] == '\0')
        return err_set(ERR_USAGE, "%s: names no folder", store->address);
    return store_url_decode(url->path);
}

/* What a copy has come to; a call of the system that hangs is beyond it. */
static enum err store_file_check(struct store *store, const char *from,
                                 int64_t at, int64_t bytes, double begin)
{
    assert(at >= 0 && at <= bytes);
    double spent = clock_now() - begin;
    double most = store->options.deadline_s + (double)bytes / (double)(1 << 20);
    if (atomic_load(&store->stopped))
        return err_set(ERR_IO, "%s: given up, the program ends", from);
    if (spent > most)
        return err_set(ERR_IO,
                       "%s: too slow: %lld of %lld bytes in %.1f s "
                       "(data.remote_deadline = %g)",
                       from, (long long)at, (long long)bytes, spent,
                       store->options.deadline_s);
    return ERR_OK;
}

static enum err store_file_copy(struct store *store, int in, const char *from,
                                const char *path, int64_t bytes)
{
    enum err rc = ERR_OK;
    double begin = clock_now();
    uint8_t *piece = NULL;
    int fd =
        open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_errno("%s: open", path);
    TRY_OUT(new_room(&piece, STORE_FILE_PIECE));
    for (int64_t at = 0; at < bytes;) {
        size_t count = bytes - at < (int64_t)STORE_FILE_PIECE
                           ? (size_t)(bytes - at)
                           : STORE_FILE_PIECE;
        TRY_OUT(store_file_check(store, from, at, bytes, begin));
        TRY_OUT(fsio_pread(in, piece, count, at, from));
        TRY_OUT(fsio_pwrite(fd, piece, count, at, path));
        at += (int64_t)count;
    }
out:
    free(piece);
    if (close(fd) != 0 && rc == ERR_OK)
        rc = err_errno("%s: close", path);
    return rc;
}

static enum err store_file_get(struct store *store, const char *name,
                               const char *path, int64_t expected,
                               int64_t *bytes)
{
    int fd = -1;
    char from[FSIO_PATH_MAX];
    TRY(fsio_path(from, "%s/%s", store->url.path, name));
    TRY(regular_open(from, &fd, bytes));
    int64_t most = expected >= 0 ? expected : STORE_BYTES_MAX;
    enum err rc = ERR_OK;
    if (*bytes > most || (expected >= 0 && *bytes != expected))
        rc = err_set(ERR_DATA,
                     "%s: has %lld bytes, %s %lld; copy the data set again",
                     from, (long long)*bytes,
                     expected >= 0 ? "but the index says" : "more than",
                     (long long)most);
    if (rc == ERR_OK)
        rc = store_file_copy(store, fd, from, path, *bytes);
    close(fd);
    return rc;
}

const struct store_scheme store_file_scheme = {
    .name = "file",
    .open = store_file_open,
    .get = store_file_get,
};
