/* What computes where a library that should do it is missing or has nothing for
 * a shape: kernels of our own, which are slower, and which the user must have
 * allowed (hardware.fallback). */
#pragma once

#include <stdbool.h>

#include "src/base/err.h"

/* Set for the process, before the first op; true until somebody says
 * otherwise. */
void cuda_fallback_allow(bool allow);

/* To be asked before kernels of our own take over, with what was to be done and
 * why it can't be. ERR_OK where that is allowed, and the log says so once more;
 * else ERR_UNSUPPORTED, which says what to do. */
enum err cuda_fallback(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* How often that was allowed. */
int cuda_fallback_count(void);
