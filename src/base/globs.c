/* Matches names against lists of globs. fnmatch() without its flags for paths, as
 * the names are those of tensors and files: "*" stands for any characters, and one
 * pattern is enough for all layers. */
#include "src/base/globs.h"

#include <assert.h>
#include <ctype.h>
#include <fnmatch.h>
#include <string.h>

bool globs_next(const char **rest, char glob[GLOBS_GLOB_MAX])
{
    const char *from = *rest;
    size_t length = 0;
    while (isspace((unsigned char)*from))
        from++;
    while (from[length] != '\0' && !isspace((unsigned char)from[length]))
        length++;
    *rest = from + length;
    glob[0] = '\0';
    if (length < GLOBS_GLOB_MAX) {
        memcpy(glob, from, length);
        glob[length] = '\0';
    }
    return length > 0;
}

bool globs_match(const char *globs, const char *name)
{
    char glob[GLOBS_GLOB_MAX];
    assert(globs != NULL && name != NULL);
    while (globs_next(&globs, glob))
        if (fnmatch(glob, name, 0) == 0)
            return true;
    return false;
}
