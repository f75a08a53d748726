/* Opens and extends the files of sinks. A run directory may be writable for a
 * group; a link in it must not lead a run into other files. */
#include "src/tracking/tracking_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/fsio.h"

enum err tracking_file_folder(const char *path, int *fd)
{
    *fd = -1;
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return err_errno("%s: make the folder", path);
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *fd >= 0 ? ERR_OK : err_errno("%s: open the folder", path);
}

enum err tracking_file_open(int at, const char *name, int flags,
                            const char *path, int *fd)
{
    assert(name[0] != '\0');
    struct stat status;
    *fd = openat(at, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (*fd < 0)
        return err_errno("%s: open", path);
    if (fstat(*fd, &status) == 0 && S_ISREG(status.st_mode))
        return ERR_OK;
    close(*fd);
    *fd = -1;
    return err_set(ERR_SPACE, "%s: is no regular file: move it away", path);
}

enum err tracking_file_append(int fd, const char *path, const void *data,
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
