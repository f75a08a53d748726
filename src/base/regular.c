/* Opens, sizes, reads and extends regular files, and says what else a path may
 * be. */
#include "src/base/regular.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/fsio.h"

const char *regular_kind(mode_t mode)
{
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

static enum err regular_check(const char *path, const struct stat *status)
{
    return S_ISREG(status->st_mode)
               ? ERR_OK
               : err_set(ERR_DATA, "%s: is %s, not a regular file", path,
                         regular_kind(status->st_mode));
}

enum err regular_size(const char *path, int64_t *bytes)
{
    struct stat status;
    if (stat(path, &status) == 0) {
        *bytes = (int64_t)status.st_size;
        return regular_check(path, &status);
    }
    if (errno == ENOENT || errno == ENOTDIR)
        return err_set(ERR_DATA, "%s: no such file", path);
    return err_errno("%s: stat", path);
}

enum err regular_readable(const char *path)
{
    struct stat status;
    int64_t bytes;
    if (fsio_is_given(path) && stat(path, &status) == 0 &&
        !S_ISDIR(status.st_mode))
        return ERR_OK;
    enum err rc = regular_size(path, &bytes);
    return rc == ERR_DATA ? err_set(ERR_USAGE, "%s", err_text()) : rc;
}

/* What stands where nobody may lay anything but a file. */
static enum err regular_refuse(const char *path, int flags, const char *wrong)
{
    bool reads = (flags & O_ACCMODE) == O_RDONLY;
    return err_set(reads ? ERR_DATA : ERR_SPACE, "%s: is %s: move it away",
                   path, wrong);
}

/* The open of it has failed: what the name is says it better, if it can. */
static enum err regular_cannot(int at, const char *name, int flags,
                               enum regular_links links, const char *path)
{
    int number = errno;
    struct stat status;
    if (links == REGULAR_NO_LINK && number == ELOOP)
        return regular_refuse(path, flags, "a link, which is not followed");
    if (links == REGULAR_FOLLOW && fstatat(at, name, &status, 0) == 0)
        TRY(regular_check(path, &status));
    if (links == REGULAR_FOLLOW && (flags & O_CREAT) == 0 &&
        (number == ENOENT || number == ENOTDIR))
        return err_set(ERR_DATA, "%s: no such file", path);
    errno = number;
    return err_errno("%s: open", path);
}

enum err regular_open_at(int at, const char *name, int flags,
                         enum regular_links links, const char *path, int *fd)
{
    struct stat status;
    assert(name[0] != '\0' && (flags & O_TRUNC) == 0);
    flags |= O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    *fd = openat(at, name, flags | (links == REGULAR_NO_LINK ? O_NOFOLLOW : 0),
                 0666);
    if (*fd < 0)
        return regular_cannot(at, name, flags, links, path);
    enum err rc = ERR_OK;
    if (fstat(*fd, &status) != 0)
        rc = err_errno("%s: stat", path);
    else if (links == REGULAR_FOLLOW)
        rc = regular_check(path, &status);
    else if (!S_ISREG(status.st_mode))
        rc = regular_refuse(path, flags, "no regular file");
    if (rc != ERR_OK) {
        close(*fd);
        *fd = -1;
    }
    return rc;
}

enum err regular_open(const char *path, int *fd, int64_t *bytes)
{
    struct stat status;
    TRY(regular_open_at(AT_FDCWD, path, O_RDONLY, REGULAR_FOLLOW, path, fd));
    if (fstat(*fd, &status) == 0) {
        *bytes = (int64_t)status.st_size;
        return ERR_OK;
    }
    enum err rc = err_errno("%s: stat", path);
    close(*fd);
    *fd = -1;
    return rc;
}

enum err regular_stream(const char *path, FILE **file)
{
    int fd = -1;
    int64_t bytes;
    *file = NULL;
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return ERR_OK;
    TRY(regular_open(path, &fd, &bytes));
    *file = fdopen(fd, "r");
    if (*file != NULL)
        return ERR_OK;
    enum err rc = err_errno("%s: open", path);
    close(fd);
    return rc;
}

enum err regular_limit(int64_t wanted, int64_t *files)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return err_errno("limit of open files");
    assert(wanted > 0);
    if (wanted > REGULAR_LIMIT_MAX / 4)
        wanted = REGULAR_LIMIT_MAX / 4;
    rlim_t most =
        wanted < REGULAR_LIMIT / 4 ? REGULAR_LIMIT : 4 * (rlim_t)wanted;
    if (most > limit.rlim_max)
        most = limit.rlim_max;
    if (limit.rlim_cur < most) {
        limit.rlim_cur = most;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
            return err_errno("limit of open files: raise to %llu",
                             (unsigned long long)most);
    }
    most = limit.rlim_cur / 4;
    *files = most < 1 ? 1 : most > (rlim_t)wanted ? wanted : (int64_t)most;
    return ERR_OK;
}

enum err regular_read(const char *path, size_t bytes_max, char **data,
                      size_t *bytes)
{
    int64_t size = 0;
    *data = NULL;
    *bytes = 0;
    TRY(regular_size(path, &size));
    return fsio_read_file(path, bytes_max, data, bytes);
}

enum err regular_local(const char *path)
{
    size_t scheme = strcspn(path, ":/");
    if (scheme == 0 || strncmp(path + scheme, "://", 3) != 0)
        return ERR_OK;
    return err_set(ERR_USAGE,
                   "%s is not in this machine's file systems; copy the data "
                   "set to a folder, and name that",
                   path);
}

enum err regular_folder(const char *path, int *fd)
{
    *fd = -1;
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return err_errno("%s: make the folder", path);
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *fd >= 0 ? ERR_OK : err_errno("%s: open the folder", path);
}

enum err regular_append(int fd, const char *path, const void *data,
                        size_t bytes)
{
    assert(fd >= 0 && (data != NULL || bytes == 0));
    off_t end = lseek(fd, 0, SEEK_END);
    if (end < 0)
        return err_errno("%s: seek", path);
    enum err rc = fsio_pwrite(fd, data, bytes, end, path);
    if (rc == ERR_OK)
        return ERR_OK;
    struct err_kept kept;
    err_keep(&kept, rc);
    if (ftruncate(fd, end) != 0)
        return err_errno("%s: cut off what was written in part", path);
    return err_again(&kept);
}
