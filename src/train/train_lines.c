#include "src/train/train_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* A crash can leave half a line; the next object must start on its own. */
static enum err heal_last_line(int fd, const char *path)
{
    char last = '\n';
    off_t size = lseek(fd, 0, SEEK_END);
    if (size <= 0)
        return ERR_OK;
    if (pread(fd, &last, 1, size - 1) != 1)
        return err_errno("%s: read", path);
    return last == '\n' ? ERR_OK : train_lines_append(fd, path, "\n", 1);
}

enum err train_lines_open(const char *run_dir, const char *name,
                          char path[FSIO_PATH_MAX], int *fd)
{
    enum err rc = ERR_OK;
    *fd = -1;
    TRY_OUT(fsio_path(path, "%s/%s", run_dir, name));
    *fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (*fd < 0)
        return err_errno("%s: open", path);
    rc = heal_last_line(*fd, path);
    if (rc != ERR_OK) {
        close(*fd);
        *fd = -1;
    }
out:
    return rc;
}

enum err train_lines_append(int fd, const char *path, const char *line,
                            size_t bytes)
{
    ssize_t written;
    do
        written = write(fd, line, bytes);
    while (written < 0 && errno == EINTR);
    if (written >= 0 && (size_t)written < bytes)
        errno = ENOSPC; /* a short write to a file says nothing else */
    return written == (ssize_t)bytes ? ERR_OK : err_errno("%s: write", path);
}
