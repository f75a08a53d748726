/* Failing calls, one after the other: an operation is run with its first call
 * for memory failing, then its second, and so on, and the same with its calls of
 * files. Each time it has to end with an error of the right kind or with the
 * right result, to give back all memory and descriptors, to leave what was there
 * as it was, and to succeed when it is asked again.
 *
 * An operation is a command line of tessera-data, tessera-ckpt or tessera-hf
 * ("data verify set"), or a function. It runs in a folder of the test's own,
 * and writes below "work" alone, which is made anew before each run. Calls that
 * fail are those of the program itself, and for memory those of its libraries
 * but a few that cannot go on without (faults_calls.c). FAULTS_TRACE=1 tells on stderr
 * where each call that failed was made. */
#pragma once

#include <stdbool.h>

#include "src/base/err.h"

struct faults_row {
    const char *name;       /* NULL: the line */
    const char *line;       /* a command line; or */
    enum err (*call)(void); /* a function, which judges its result */
    const char
        *copy; /* a folder or file that work gets a copy of; NULL: none */
    const char *then; /* a command line that has to succeed after a success */
    unsigned also;    /* kinds of errors, 1 << ERR_DATA, that are right besides
                       * ERR_MEMORY and ERR_IO */
    bool leaves;      /* after a failure work has something of its own; asked
                       * again, it goes on with that */
    bool varies;      /* what it makes is another each time */
    int most; /* runs of each kind of failure; 0: FAULTS_MOST. All of the
                       * first half of them, then as many of the rest */
};

#define FAULTS_MOST 80

/* Makes the folder and goes there. */
void faults_begin(void);
/* Runs a command line with nothing failing; ends the test if it fails. */
void faults_need(const char *line);
/* From here on nothing fails in this run: a function's own look at a result. */
void faults_rest(void);
/* A test point for each row and kind of failure. An argument of the program is
 * a part of the names of those that are run. */
void faults_sweep(const struct faults_row *rows, int count, int argc,
                  char **argv);
/* Removes the folder; the process's exit status. */
int faults_done(void);
