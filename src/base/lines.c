/* Appending to files of lines. What a line says, and whether it must be
 * durable, is its writer's business. */
#include "src/base/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum err lines_open(const char *dir, const char *name, char path[FSIO_PATH_MAX],
                    int *fd)
{
    struct stat status;
    *fd = -1;
    TRY(fsio_path(path, "%s/%s", dir, name));
    *fd = open(
        path, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
        0666);
    if (*fd < 0 && errno == ELOOP)
        return err_set(ERR_SPACE,
                       "%s: is a link, which is not followed: move it away",
                       path);
    if (*fd < 0)
        return err_errno("%s: open", path);
    if (fstat(*fd, &status) == 0 && S_ISREG(status.st_mode))
        return ERR_OK;
    close(*fd);
    *fd = -1;
    return err_set(ERR_SPACE, "%s: is no regular file: move it away", path);
}

enum err lines_append(int fd, const char *path, const char *line)
{
    enum err rc = ERR_OK;
    char last = '\n';
    char *text = NULL;
    off_t end = lseek(fd, 0, SEEK_END); /* a pipe has none */
    if (end > 0 && pread(fd, &last, 1, end - 1) != 1)
        return err_errno("%s: read the last byte", path);
    int bytes = asprintf(&text, "%s%s\n", last != '\n' ? "\n" : "", line);
    if (bytes < 0)
        return err_set(ERR_MEMORY, "%s: no memory for a line", path);
    ssize_t written;
    do
        written = write(fd, text, (size_t)bytes);
    while (written < 0 && errno == EINTR);
    if (written < 0)
        rc = err_errno("%s: append", path);
    else if (written != bytes)
        rc = err_set(ERR_SPACE,
                     "%s: only %zd of %d bytes written; free some space", path,
                     written, bytes);
    free(text);
    return rc;
}
