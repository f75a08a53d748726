/* Which call of a program fails, for tests/faults.c: calls of one kind, memory or
 * files, are counted while they are armed, and the nth fails, or all from it on. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

enum faults_mode {
    MEMORY_ONCE,
    MEMORY_ON,
    FILES_ONCE,
    FILES_ON,
    FILES_SHORT,
    MODES
};

extern struct faults_calls {
    atomic_bool armed;
    enum faults_mode mode;
    long nth; /* from 1; 0: only counted */
    atomic_long calls, blocks;
    bool tracing;    /* tells where the call was made, */
    int errors;      /* on this descriptor */
    char about[256]; /* the run at hand */
} faults_calls;

/* Looks where the libraries lie whose calls are spared. */
void faults_calls_begin(void);
