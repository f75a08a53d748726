/* Processes that may hang: what a check looks at, or what its parts look at,
 * may never answer. They are killed at a deadline and abandoned when they do
 * not go. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* fork() with a pipe, of which *fd is the end to read from; -1: errno says why not.
 * In the child, 0, it is the one to write to, and nothing else is open; the child
 * ends if its parent does, or already has. */
pid_t health_child_start(int *fd);
/* The child's end, with the bytes of its result. */
_Noreturn void health_child_end(int fd, const void *result, size_t bytes);

/* Whether any thread of the process runs, wants to run, or was stopped by
 * somebody: then a missed deadline does not mean that it hangs. */
bool health_child_computes(pid_t pid);

/* The same, looked at several times within a quarter of a second, where also
 * processor time, page faults that read or a change of state mean that it does
 * not hang: who waits in short bits mostly sleeps. */
bool health_child_moves(pid_t pid);

/* False: the deadline (of clock_now()) came first; what is in the pipe already
 * is never late. *bytes: how much of the result came through the pipe. */
bool health_child_wait(int fd, double deadline, void *result, size_t size,
                       size_t *bytes);

/* The wait status; -1: it did not go and was abandoned. */
int health_child_reap(pid_t pid);
