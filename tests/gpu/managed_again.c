#include "tests/gpu/managed_again.h"

#include <stdint.h>
#include <stdlib.h>

#include "tests/gpu/managed.h"

/* What the linker's --wrap makes of free(). */
void __real_free(void *memory);

static int turns(void)
{
    const char *text = getenv("TESSERA_GPU_REPEAT");
    int number = text != NULL ? atoi(text) : 1;
    return number > 1 ? number : 1;
}

/* Whole allocations are kept and compared, with what tests have poisoned for the
 * sanitizer around their operands: neither it nor its memcpy() may look. */
#ifdef __SANITIZE_ADDRESS__
#define WITH_POISON                                                            \
    __attribute__((no_sanitize_address, noinline,                              \
                   optimize("no-tree-loop-distribute-patterns")))
#else
#define WITH_POISON
#endif

WITH_POISON static void copy(char *to, const char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        to[i] = from[i];
}

WITH_POISON static bool equal(const char *a, const char *b, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (a[i] != b[i])
            return false;
    return true;
}

static bool is_known(const struct managed_again *again, const char *memory)
{
    for (int i = 0; i < again->count; i++)
        if (again->pieces[i].memory == memory)
            return true;
    return false;
}

void managed_again_begin(struct managed_again *again,
                         const void *const *operands, size_t count)
{
    *again = (struct managed_again){ .left = turns() - 1, .first = true };
    for (size_t i = 0; i < count && again->left > 0; i++) {
        size_t bytes = 0;
        char *memory = managed_piece(operands[i], &bytes);
        if (memory == NULL || bytes == 0 || is_known(again, memory))
            continue;
        int at = again->count++;
        again->pieces[at].memory = memory;
        again->pieces[at].bytes = bytes;
        again->pieces[at].before = malloc(bytes);
        again->pieces[at].after = malloc(bytes);
        if (again->pieces[at].before == NULL || again->pieces[at].after == NULL)
            abort();
        copy(again->pieces[at].before, memory, bytes);
    }
}

bool managed_again_next(struct managed_again *again, const char *op)
{
    bool same = true;
    if (again->left == 0 && again->first)
        return false;
    if (managed_source.noise != NULL && !again->first)
        managed_source.noise(false);
    for (int i = 0; i < again->count; i++) {
        char *memory = again->pieces[i].memory;
        size_t bytes = again->pieces[i].bytes;
        if (again->first)
            copy(again->pieces[i].after, memory, bytes);
        else
            same = same && equal(again->pieces[i].after, memory, bytes);
        if (again->left > 0)
            copy(memory, again->pieces[i].before, bytes);
    }
    again->first = false;
    if (!same) {
        (void)err_set(ERR_INTERNAL, "the same op on the same operands has "
                                    "other bits");
        managed_source.failed(op);
        return false;
    }
    if (again->left == 0)
        return false;
    again->left--;
    if (managed_source.noise != NULL)
        managed_source.noise(true);
    return true;
}

void managed_again_end(struct managed_again *again)
{
    for (int i = 0; i < again->count; i++) {
        __real_free(again->pieces[i].before);
        __real_free(again->pieces[i].after);
    }
    again->count = 0;
}
