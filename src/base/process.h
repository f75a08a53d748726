/* Threads of this process, libraries that it opens while it runs, and whether
 * another process is still there. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "src/base/err.h"

/* pthread_create(), whose error it returns, of a thread that takes no signals:
 * they are for those threads that are there already. stack_bytes 0: as usual. */
int process_thread(pthread_t *thread, size_t stack_bytes, void *(*run)(void *),
                   void *arg);

/* waitpid()'s status of a child that ends within `seconds`; -1: it does not, as
 * one that waits in the kernel for a device or a file system, which takes no
 * signal, not even SIGKILL. To wait for that would make its trouble ours. */
int process_reap(pid_t pid, double seconds);

/* Whether a process of this machine may still write. *started: when it began,
 * in clock ticks since boot, which with its number tells it from all others; -1:
 * not known, as where /proc hides the processes of other users. */
bool process_lives(int64_t pid, int64_t *started);

/* A child's environment: ours but what `without` names, and `more`, "NAME=value".
 * The list is the caller's to free, its texts are not; NULL: no memory. */
char **process_environment(bool (*without)(const char *variable), char *more);

/* --- a library of somebody else's, so that a program starts where it is
 * missing: a structure of pointers to functions, filled by dlopen() and dlsym()
 * from a list of their names --- */

struct process_symbol {
    const char *symbol;
    size_t offset; /* of the pointer, in the structure */
    bool optional; /* NULL where the library is too old for it */
};

/* What is to be opened; its structure begins with what dlopen() gave. */
struct process_library {
    const char *name; /* begins the messages, "cuDNN: "; or "" */
    const char *file;
    const char *missing, *old; /* what to do about it */
    bool unloads; /* when it is closed; most have threads or memory of their own
                     that must not lose their code */
    const struct process_symbol *symbols;
    int count;
};

/* *table: zeros after a failure. ERR_UNSUPPORTED says what is missing. */
enum err process_library_open(const struct process_library *library,
                              void *table, size_t bytes);
/* Also one that is zeros; then it is. */
void process_library_close(void *table, size_t bytes);
