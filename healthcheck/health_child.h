/* Processes that may hang: what a check looks at, or what its parts look at,
 * may never answer. They are killed at a deadline and abandoned when they do
 * not go. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* In the child: whoever reads our output waits for its last writer, and a child
 * may have to be abandoned, so it keeps no descriptor but its pipe, whose
 * number is returned. The process ends if its parent does, or already has. */
int health_child_isolate(int pipe_fd, pid_t parent);

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
