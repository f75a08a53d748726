/* Warns, or refuses by hardware.fallback, when a kernel of ours has to do what
 * a library was meant to do faster. A run that is twice as slow for want of a
 * file is right and yet not what anybody wants: who waits for days would rather
 * be told at once. */
#include "kernels/cuda/libraries/cuda_fallback.h"

#include <stdarg.h>
#include <stdio.h>

#include "src/base/log.h"

static bool refused;
static int count;

void cuda_fallback_allow(bool allow)
{
    refused = !allow;
}

enum err cuda_fallback(const char *format, ...)
{
    char what[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    if (refused)
        return err_set(ERR_UNSUPPORTED,
                       "%s; hardware.fallback = \"warn\" lets slower kernels "
                       "of our own do it",
                       what);
    count++;
    log_warn("%s: a slower kernel of our own does it", what);
    return ERR_OK;
}

int cuda_fallback_count(void)
{
    return count;
}
