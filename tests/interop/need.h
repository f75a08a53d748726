/* The programs that are compared with Python's end at their first error. */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/err.h"

static inline void need(enum err rc)
{
    if (rc == ERR_OK)
        return;
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, err_text());
    exit(1);
}
