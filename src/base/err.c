/* Codes and texts of errors.
 *
 * Error texts are kept per thread, so that a worker's failure does not
 * overwrite the one being reported. A text is made beside the stored one and
 * then copied over it, because the stored one may be among the arguments: that
 * is how a caller puts its own words around what it was told. */
#include "src/base/err.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/clean.h"

static _Thread_local char err_buffer[ERR_TEXT_BYTES];

enum err err_set(enum err code, const char *format, ...)
{
    assert(code != ERR_OK);
    char text[ERR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    clean_paths(text, sizeof text);
    /* what comes from a file or a user may hold line ends, and more that a
     * terminal obeys */
    clean_text(text, false);
    memcpy(err_buffer, text, sizeof text);
    return code;
}

enum err err_errno(const char *format, ...)
{
    int saved = errno;
    char text[ERR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    enum err code = ERR_IO;
    if (saved == ENOSPC || saved == EDQUOT)
        code = ERR_FULL;
    else if (saved == EROFS || saved == ENOTDIR || saved == EISDIR ||
             saved == ENAMETOOLONG || saved == ELOOP || saved == EACCES ||
             saved == EPERM)
        code = ERR_SPACE;
    else if (saved == ENOMEM)
        code = ERR_MEMORY;
    return err_set(code, "%s: %s", text, strerror(saved));
}

enum err err_prefix(enum err code, const char *format, ...)
{
    char prefix[ERR_TEXT_BYTES];
    char old[ERR_TEXT_BYTES];
    va_list args;
    if (code == ERR_OK)
        return ERR_OK;
    va_start(args, format);
    vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    memcpy(old, err_buffer, sizeof old);
    return err_set(code, "%s: %s", prefix, old);
}

const char *err_text(void)
{
    return err_buffer;
}

void err_keep(struct err_kept *kept, enum err code)
{
    kept->code = code;
    snprintf(kept->text, sizeof kept->text, "%s",
             code != ERR_OK ? err_text() : "");
}

enum err err_again(const struct err_kept *kept)
{
    return kept->code == ERR_OK ? ERR_OK
                                : err_set(kept->code, "%s", kept->text);
}

const char *err_name(enum err code)
{
    static const char *const names[ERR_COUNT] = {
        [ERR_OK] = "ok",
        [ERR_USAGE] = "usage",
        [ERR_DATA] = "data",
        [ERR_CHECKPOINT] = "checkpoint",
        [ERR_SPACE] = "space",
        [ERR_FULL] = "full",
        [ERR_IO] = "io",
        [ERR_MEMORY] = "memory",
        [ERR_COMM] = "comm",
        [ERR_NUMERIC] = "numeric",
        [ERR_BUSY] = "busy",
        [ERR_UNSUPPORTED] = "unsupported",
        [ERR_INTERNAL] = "internal",
    };
    assert((int)code >= 0 && code < ERR_COUNT);
    return names[code];
}

int err_exit_code(enum err code)
{
    switch (code) {
    case ERR_OK:
        return 0;
    case ERR_USAGE:
        return 64;
    case ERR_IO:
    case ERR_FULL:
    case ERR_COMM:
        return 75;
    default:
        return 93;
    }
}
