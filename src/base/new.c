/* Allocates, and says what for where there is no memory. The text of an error has the
 * place as the source writes it, "&model->layers", and the file: with how many bytes
 * were asked for that tells a setting that is too large from a node that is full. */
#include "src/base/new.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static enum err new_refuse(size_t count, size_t bytes, const char *what)
{
    const char *name = what[0] == '&' ? what + 1 : what;
    if (bytes > 1)
        return err_set(ERR_MEMORY, "out of memory: %zu times %zu bytes for %s",
                       count, bytes, name);
    return err_set(ERR_MEMORY, "out of memory: %zu bytes for %s", count, name);
}

enum err new_memory(void *place, size_t count, size_t bytes, bool zeroed,
                    const char *what)
{
    assert(place != NULL && bytes > 0);
    void *memory = NULL;
    if (zeroed)
        memory = calloc(count, bytes);
    else if (count <= SIZE_MAX / bytes)
        memory = malloc(count * bytes);
    /* `place` is the address of a pointer of any type */
    memcpy(place, &memory, sizeof memory);
    /* cppcheck-suppress memleak ; it is the caller's */
    return memory != NULL ? ERR_OK : new_refuse(count, bytes, what);
}

enum err new_text_copy(char **place, const char *text, size_t bytes_max,
                       const char *what)
{
    assert(place != NULL && text != NULL);
    *place = strndup(text, bytes_max);
    if (*place != NULL)
        return ERR_OK;
    return new_refuse(strnlen(text, bytes_max) + 1, 1, what);
}
