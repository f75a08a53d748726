/* Threads of this process, its children, libraries that it opens while it runs,
 * and whether another process is still there. */
#pragma once

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "src/base/array.h"
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

/* How a program begins, which is found on the PATH: nothing of ours is open in it
 * but these. */
struct process_start {
    char *const *argv;        /* NULL ends it, as that */
    char *const *environment; /* NULL: there was no memory for one */
    int in, out;          /* stdin, -1: empty; stdout and stderr, -1: ours */
    const sigset_t *mask; /* NULL: no signal is blocked or ignored */
    bool group;           /* a process group of its own */
};
/* 0 or errno. */
int process_start(const struct process_start *start, pid_t *pid);

/* Reads what it writes, up to `most` bytes of it, whatever more there is, since a
 * program whose pipe is full never ends. False: there was no end of it before the
 * deadline on clock_now(), or no memory. */
bool process_collect(int fd, double deadline, size_t most, struct buffer *text);

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
#define PROCESS_LIBRARY(name_, file_, symbols_)                                \
    .name = (name_), .file = (file_), .symbols = (symbols_),                   \
    .count = sizeof(symbols_) / sizeof(symbols_)[0]

/* *table: zeros after a failure. ERR_UNSUPPORTED says what is missing. */
enum err process_library_open(const struct process_library *library,
                              void *table, size_t bytes);
/* Also one that is zeros; then it is. */
void process_library_close(void *table, size_t bytes);
