/* What the mains of several programs share. */
#pragma once

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "src/base/err.h"

struct cmd_main {
    const char *name; /* behind "tessera-" */
    void (*usage)(FILE *out);
    bool commands; /* the first argument is one, and --help may follow it */
    /* May set *exit_code (0 before) where its result is no error. */
    enum err (*run)(int argc, char **argv, int *exit_code);
};

/* The log, --help, --version, usage without arguments; then runs it, and tells
 * its error on stderr. The exit code. */
int cmd_main(const struct cmd_main *program, int argc, char **argv);

/* The row of a table whose rows begin with a name, `const char *`; ERR_USAGE:
 * there is no command of this name. */
enum err cmd_main_command(const char *name, const void *table, size_t count,
                          size_t row_bytes, const void **row);

/* ERR_USAGE: "WHAT GIVEN; did you mean NAME?", of names that NULL ends. */
enum err cmd_main_unknown(const char *what, const char *given,
                          const char *const *names);
/* The same of long options; `what` is such as "no option ". */
enum err cmd_main_no_option(const char *what, const char *given,
                            const struct option *options);
