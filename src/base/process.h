/* A library of somebody else's that is opened while a program runs, so that the
 * program starts where it is missing: a structure of pointers to functions,
 * filled by dlopen() and dlsym() from a list of their names. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "src/base/err.h"

struct library_member {
    const char *symbol;
    size_t offset; /* of the pointer, in the structure */
    bool optional; /* NULL where the library is too old for it */
};

/* What is to be opened; its structure begins with what dlopen() gave. */
struct library {
    const char *name; /* begins the messages, "cuDNN: "; or "" */
    const char *file;
    const char *missing, *old; /* what to do about it */
    bool unloads; /* when it is closed; most have threads or memory of their own
                     that must not lose their code */
    const struct library_member *members;
    int count;
};

/* *table: zeros after a failure. ERR_UNSUPPORTED says what is missing. */
enum err library_open(const struct library *library, void *table, size_t bytes);
/* Also one that is zeros; then it is. */
void library_close(void *table, size_t bytes);
