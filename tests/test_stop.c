/* Each case runs in a child: the flag is never cleared within a process. */
#include "src/job/stop.h"

#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>

#include "src/base/clock.h"
#include "src/job/ledger.h"
#include "tests/tap.h"

/* Its exit code, or 1000 + the signal that ended it. */
static int ended(pid_t pid)
{
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return -1;
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int run_child(const int *signals, int count, bool outlive)
{
    pid_t pid = fork();
    if (pid == 0) {
        if (stop_install() != ERR_OK || stop_requested() != 0 ||
            (outlive && stop_outlive_readers() != ERR_OK))
            _exit(99);
        for (int i = 0; i < count; i++)
            raise(signals[i]);
        _exit(stop_requested());
    }
    return ended(pid);
}

/* A run of training: SIGINTs, each a second after the one before. */
static int run_watched(const char *dir, int interrupts)
{
    pid_t pid = fork();
    if (pid == 0) {
        if (stop_install() != ERR_OK || stop_watch() != ERR_OK)
            _exit(99);
        stop_watch_run(dir, 7);
        for (int i = 0; i < interrupts; i++) {
            if (i > 0)
                clock_sleep(1.2);
            /* from a terminal and its parents, while the answer is written */
            for (double from = clock_now(); clock_now() - from < 0.1;)
                raise(SIGINT);
        }
        if (interrupts > 2)
            clock_sleep(60);
        _exit(stop_requested());
    }
    return ended(pid);
}

static void test_watched(void)
{
    const char *dir = tap_folder();
    json_t *stops = NULL;
    tap_is_int(run_watched(dir, 2), SIGINT, "two interrupts of a run save it");
    tap_ok(ledger_events(dir, "stop", &stops) == ERR_OK &&
               json_array_size(stops) == 0,
           "and are no end yet");
    json_decref(stops);
    tap_is_int(run_watched(dir, 3), 1000 + SIGINT, "the third ends it");
    tap_ok(ledger_events(dir, "stop", &stops) == ERR_OK &&
               json_array_size(stops) == 1 &&
               json_integer_value(
                   json_object_get(json_array_get(stops, 0), "code")) == 130 &&
               json_integer_value(
                   json_object_get(json_array_get(stops, 0), "attempt")) == 7,
           "with a line in the ledger");
    json_decref(stops);
}

int main(void)
{
    static const struct {
        const char *name;
        int count;
        int signals[3];
        int want; /* the flag, or 1000 + the signal that ended the child */
    } cases[] = {
        { "nothing happened", 0, { 0 }, 0 },
        { "time is nearly up", 1, { SIGUSR1 }, SIGUSR1 },
        { "preemption", 1, { SIGTERM }, SIGTERM },
        { "one interrupt", 1, { SIGINT }, SIGINT },
        { "the first signal counts", 2, { SIGUSR1, SIGTERM }, SIGUSR1 },
        { "many terms do no harm", 3, { SIGTERM, SIGTERM, SIGTERM }, SIGTERM },
        { "term, then one interrupt", 2, { SIGTERM, SIGINT }, SIGTERM },
        { "second interrupt ends", 2, { SIGINT, SIGINT }, 1000 + SIGINT },
        { "a closed terminal", 1, { SIGHUP }, SIGHUP },
        { "nobody reads", 1, { SIGPIPE }, 1000 + SIGPIPE },
        { "others keep their action", 1, { SIGUSR2 }, 1000 + SIGUSR2 },
    };
    signal(SIGHUP, SIG_DFL); /* whoever started the tests may ignore it */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        tap_is_int(run_child(cases[i].signals, cases[i].count, false),
                   cases[i].want, "%s", cases[i].name);

    signal(SIGHUP, SIG_IGN);
    static const int hangup = SIGHUP;
    tap_is_int(run_child(&hangup, 1, false), 0,
               "under nohup a closed terminal is none");

    static const int pipes[] = { SIGPIPE, SIGPIPE };
    tap_is_int(run_child(pipes, 2, true), 0, "nobody reads, outlived");

    test_watched();

    tap_is_int(stop_requested(), 0, "not requested in this process");
    stop_request(SIGUSR1);
    stop_request(SIGTERM);
    tap_is_int(stop_requested(), SIGUSR1, "request without a signal");
    return tap_done();
}
