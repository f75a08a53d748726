/* Reads small files of /sys and /proc, each in one read, as the kernel gives them. */
#include "src/base/sysfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/fsio.h"

static bool read_once(char *out, size_t bytes, const char *format,
                      va_list arguments)
{
    char path[FSIO_PATH_MAX];
    ssize_t got = -1;
    errno = ENAMETOOLONG;
    int length = vsnprintf(path, sizeof path, format, arguments);
    int fd = length < 0 || (size_t)length >= sizeof path
                 ? -1
                 : open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) {
        errno = ENODATA;
        got = read(fd, out, bytes - 1);
        close(fd);
    }
    out[got > 0 ? got : 0] = '\0';
    if (got > 0 && out[got - 1] == '\n')
        out[got - 1] = '\0';
    return got > 0;
}

bool sysfile_text(char *out, size_t bytes, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    bool known = read_once(out, bytes, format, arguments);
    va_end(arguments);
    return known;
}

double sysfile_number(const char *format, ...)
{
    char text[64], *end;
    va_list arguments;
    va_start(arguments, format);
    bool known = read_once(text, sizeof text, format, arguments);
    va_end(arguments);
    double number = strtod(text, &end);
    return known && end != text ? number : -1;
}

void sysfile_find(const char *root, const char *pattern, glob_t *out)
{
    char path[FSIO_PATH_MAX];
    memset(out, 0, sizeof *out);
    if (fsio_path(path, "%s%s", root, pattern) == ERR_OK)
        (void)glob(path, 0, NULL, out);
}

const char *sysfile_name(const char *path)
{
    return strrchr(path, '/') + 1;
}
