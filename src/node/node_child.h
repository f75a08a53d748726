/* A child that does what may hang. Its output is read for so long, a function's up to
 * four times as long while it waits for a processor; then it, and what it has started,
 * is killed, and left behind if it does not die of that, as one that waits in the kernel
 * for a file system. It has nothing open of ours but its pipe: slurmd waits for the last
 * writer to our own stderr. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "src/base/array.h"

#define NODE_NO_ANSWER (-1)

struct node_child {
    double seconds;
    /* what it does: its exit status is what that returns; it writes to stdout */
    int (*run)(void *arg);
    void *arg;
    /* or a program that is on the PATH, NULL-terminated, and beside our own
     * environment these NAME=VALUE, of which NAME alone removes one */
    char *const *argv;
    char *const *environment;
    /* 0: root. Else with that user's rights and no others; cannot be ended or
     * watched by their other processes while it does what is not in argv */
    uid_t uid;
    gid_t gid;
};
#define NODE_CHILD(seconds_, run_, arg_)                                       \
    .seconds = (seconds_), .run = (run_), .arg = (arg_)

/* Returns the exit status, 128 and more for a signal, 126 or 127 for a program
 * that cannot be started (out says why), or NODE_NO_ANSWER. `out` has what came on
 * stdout and stderr, without '\0' but for the one behind it, up to a limit. */
int node_child(const struct node_child *child, struct buffer *out);

/* Whether that program is root's, and writable by root only, as what root runs must
 * be. It may lie on a file system that hangs. False: `why`, with its path. */
bool node_child_owned(const char *path, char *why, size_t size);
