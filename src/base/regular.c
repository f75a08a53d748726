/* Opens, sizes and reads regular files, and says what else a path may be. */
#include "src/base/regular.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/fsio.h"

static const char *regular_kind(mode_t mode)
{
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

static enum err regular_check(const char *path, const struct stat *status,
                              int64_t *bytes)
{
    if (!S_ISREG(status->st_mode))
        return err_set(ERR_DATA, "%s: is %s, not a regular file", path,
                       regular_kind(status->st_mode));
    *bytes = (int64_t)status->st_size;
    return ERR_OK;
}

enum err regular_size(const char *path, int64_t *bytes)
{
    struct stat status;
    if (stat(path, &status) == 0)
        return regular_check(path, &status, bytes);
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

enum err regular_open(const char *path, int *fd, int64_t *bytes)
{
    enum err rc = ERR_OK;
    struct stat status;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (*fd < 0) {
        int number = errno;
        TRY(regular_size(path, bytes)); /* says it better, if it can */
        errno = number;
        return err_errno("%s: open", path);
    }
    if (fstat(*fd, &status) != 0)
        rc = err_errno("%s: stat", path);
    else
        rc = regular_check(path, &status, bytes);
    if (rc != ERR_OK) {
        close(*fd);
        *fd = -1;
    }
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

enum err regular_limit(int64_t *files)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return err_errno("limit of open files");
    rlim_t wanted =
        limit.rlim_max < REGULAR_LIMIT ? limit.rlim_max : REGULAR_LIMIT;
    if (limit.rlim_cur < wanted) {
        limit.rlim_cur = wanted;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
            return err_errno("limit of open files: raise to %llu",
                             (unsigned long long)wanted);
    }
    rlim_t most = limit.rlim_cur / 4;
    *files = most < 1 ? 1 : most > INT32_MAX ? INT32_MAX : (int64_t)most;
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
