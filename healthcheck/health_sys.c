/* Reads small files of /sys, each in one read, as sysfs gives them. */
#include "healthcheck/health_sys.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/fsio.h"

static bool sys_read(char *out, size_t bytes, const char *format,
                     va_list arguments)
{
    char path[FSIO_PATH_MAX];
    ssize_t got = -1;
    int length = vsnprintf(path, sizeof path, format, arguments);
    int fd = length < 0 || (size_t)length >= sizeof path
                 ? -1
                 : open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) {
        got = read(fd, out, bytes - 1);
        close(fd);
    }
    out[got > 0 ? got : 0] = '\0';
    if (got > 0 && out[got - 1] == '\n')
        out[got - 1] = '\0';
    return got > 0;
}

bool health_sys_text(char *out, size_t bytes, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    bool known = sys_read(out, bytes, format, arguments);
    va_end(arguments);
    return known;
}

double health_sys_number(const char *format, ...)
{
    char text[64], *end;
    va_list arguments;
    va_start(arguments, format);
    bool known = sys_read(text, sizeof text, format, arguments);
    va_end(arguments);
    double number = strtod(text, &end);
    return known && end != text ? number : -1;
}

void health_sys_find(const char *root, const char *pattern, glob_t *out)
{
    char path[FSIO_PATH_MAX];
    memset(out, 0, sizeof *out);
    if (fsio_path(path, "%s%s", root, pattern) == ERR_OK)
        (void)glob(path, 0, NULL, out);
}

const char *health_sys_name(const char *path)
{
    return strrchr(path, '/') + 1;
}
