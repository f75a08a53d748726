/* Runs the commands of hooks.on_* one after the other on a thread of its own.
 * Nothing that a command does, or fails to do, comes back to the run. */
#pragma once

#include <stdint.h>

#include "src/base/err.h"

/* At most so many hooks. */
#define HOOK_RUNNER_MAX 16

struct hook_runner;

/* What has become of a hook's calls. */
struct hook_count {
    int64_t called;   /* was to be called */
    int64_t failed;   /* could not be started, or its exit status was not 0 */
    int64_t ended;    /* took longer than it may */
    int64_t replaced; /* by a later call, as it waited for its turn */
};

/* A call may take `timeout_s`; then its process group gets SIGTERM, and SIGKILL
 * a second later. */
enum err hook_runner_create(double timeout_s, struct hook_runner **out);

/* Hook `number` is to run `command` by sh -c, with `input` on its standard input
 * and the variable TESSERA_EVENT. What it writes goes to the run's stderr, by a
 * pipe, so that what it leaves behind holds nothing of the run open. Copies its
 * arguments and returns at once; calls run in their order, and where the hook's
 * last call still waits for its turn, this one takes its place. A failure is told in the log once. */
void hook_runner_call(struct hook_runner *runner, int number, const char *event,
                      const char *command, const char *input);

/* Waits until all of it has run, but for at most `wait_s`: then what runs is
 * ended, and what waits is left out but for the newest call, which has as long
 * again. Frees the runner. count[HOOK_RUNNER_MAX].
 * NULL: nothing happens. */
void hook_runner_destroy(struct hook_runner *runner, double wait_s,
                         struct hook_count *count);
