/* What the mains of several programs share. Most are a struct of options with its
 * rows and a function, which cmd_main() calls; those that must start ranks between
 * the two, or end otherwise, call its two halves. */
#pragma once

#include "src/base/settings/options.h"

struct cmd_main {
    const struct options_program *program;
    void *into; /* the struct of the options, with its defaults */
    /* May set *exit_code (0 before) where its result is no error. */
    enum err (*run)(const struct options *options, int *exit_code);
};

struct comm;

/* The log, --help, --version, usage without arguments; then reads the command
 * line, runs it, and tells its error on stderr. The exit code. */
int cmd_main(const struct cmd_main *cmd, int argc, char **argv);

/* Reads the command line; true: all is done, and *exit_code is there, as after
 * --help, --version, and errors of usage, which are told. */
bool cmd_main_options(const struct cmd_main *cmd, int argc, char **argv,
                      struct options *options, int *exit_code);
/* Tells an error, also that standard output could not be written; the exit
 * code: that of the error, or this one. */
int cmd_main_end(const struct cmd_main *cmd, enum err rc, int exit_code);

/* Runs it alone, or on the ranks that mpirun or srun has started, each of which has read
 * the command line: rank 0 speaks for all, and one that has lost the others for itself,
 * and ends them all, since nobody can be asked any more. The exit code. Ranks wait for
 * each other as long as it takes. */
int cmd_main_ranks(const struct cmd_main *cmd, int argc, char **argv,
                   enum err (*run)(const void *into, struct comm *comm));
