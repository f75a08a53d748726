/* Runs a measurement in a forked process and brings its numbers back. */
#include "tests/bench/bench_child.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILD_VALUES_MAX 96

struct child_reply {
    enum err rc;
    char text[512];
    double values[CHILD_VALUES_MAX];
};

enum err bench_child(enum err (*work)(const void *arg, double *values),
                     const void *arg, double *values, int count)
{
    struct child_reply reply = { 0 };
    int ends[2];
    assert(count <= CHILD_VALUES_MAX);
    if (pipe(ends) != 0)
        return err_errno("pipe");
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        reply.rc = work(arg, reply.values);
        snprintf(reply.text, sizeof reply.text, "%s", err_text());
        /* smaller than PIPE_BUF: one piece or nothing */
        ssize_t n = write(ends[1], &reply, sizeof reply);
        _exit(n == (ssize_t)sizeof reply ? 0 : 1);
    }
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return err_errno("fork");
    }
    ssize_t n = read(ends[0], &reply, sizeof reply);
    close(ends[0]);
    waitpid(child, NULL, 0);
    if (n != (ssize_t)sizeof reply)
        return err_set(ERR_MEMORY, "a measuring process has died: are 2 GiB of "
                                   "memory free?");
    if (reply.rc != ERR_OK)
        return err_set(reply.rc, "%s", reply.text);
    memcpy(values, reply.values, (size_t)count * sizeof values[0]);
    return ERR_OK;
}
