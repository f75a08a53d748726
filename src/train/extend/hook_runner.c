/* The thread that runs commands, and how one is run.
 *
 * Training must not wait for a command, and a command that hangs must not keep
 * others from running for ever. So there is one thread, and one place for each
 * hook in which a call waits; a newer call of the same hook takes its place and
 * its turn, which bounds what can pile up behind a slow command.
 *
 * A command is a process group of its own, so that what it starts ends with it.
 * It is looked at every NAP_MS, as three things are waited for at once: its end,
 * room for the rest of its input, and what it writes. Its end is looked for
 * without reaping it (WNOWAIT): until the group is killed its number must not
 * become another process's.
 *
 * At a run's end all that waits has `wait_s` together, then the newest call
 * alone, which tells of the end, as long again. */
#include "src/train/extend/hook_runner.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/base/process.h"

#define NAP_MS 10
#define GRACE_S 1.0
#define DRAIN_PARTS 16

struct call {
    char *event, *command, *input; /* NULL: nothing waits */
    int64_t turn;
};

struct hook_runner {
    double timeout_s;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock */
    struct call waiting[HOOK_RUNNER_MAX];
    struct hook_count count[HOOK_RUNNER_MAX];
    int64_t turns;
    bool closing;
    double end_s;  /* on this clock all is to be over; 0: no end yet */
    double last_s; /* the newest call gets so long then */
};

static void call_free(struct call *call)
{
    free(call->event);
    free(call->command);
    free(call->input);
    *call = (struct call){ 0 };
}

/* Variables of the run that are not its hooks': what a hook leaves behind or
 * submits is no process of the attempt, and a program of MPI in it no rank. */
static bool is_ours(const char *variable)
{
    static const char *const begins[] = { "TESSERA_EVENT=",
                                          "TESSERA_ATTEMPT_OF=",
                                          "OMPI_COMM_WORLD_",
                                          "PMIX_",
                                          "PMI_",
                                          "SLURM_STEP_",
                                          NULL };
    for (int i = 0; begins[i] != NULL; i++)
        if (strncmp(variable, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

/* -1: it could not be started. */
static pid_t spawn(const struct call *call, int input, int output)
{
    char event[64];
    char *argv[] = { (char[]){ "sh" }, (char[]){ "-c" }, call->command, NULL };
    pid_t pid = -1;
    snprintf(event, sizeof event, "TESSERA_EVENT=%.40s", call->event);
    char **env = process_environment(is_ours, event);
    const struct process_start start = { .argv = argv,
                                         .environment = env,
                                         .in = input,
                                         .out = output,
                                         .group = true };
    int failed = process_start(&start, &pid);
    free(env);
    return failed == 0 ? pid : -1;
}

/* Gives the command what it will read of the rest of its input. */
static void feed(int *fd, const char **rest)
{
    assert(*fd >= 0);
    size_t left = strlen(*rest);
    ssize_t sent =
        left > 0 ? send(*fd, *rest, left, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
    if (sent > 0)
        *rest += sent;
    bool full = sent < 0 && (errno == EAGAIN || errno == EINTR);
    if (**rest != '\0' && (sent >= 0 || full))
        return;
    close(*fd);
    *fd = -1;
}

/* What a command that runs is connected by. */
struct line {
    pid_t pid;
    int in, out;      /* -1: closed */
    const char *rest; /* of its input */
};

/* What it has written goes to the log, at most so much at a time: who writes
 * without end must not keep the clock from being looked at. */
static void drain(int fd)
{
    char part[4096];
    for (int i = 0; i < DRAIN_PARTS; i++) {
        ssize_t got = read(fd, part, sizeof part);
        if (got <= 0 || write(STDERR_FILENO, part, (size_t)got) < 0)
            return;
    }
}

static double end_of(struct hook_runner *runner, double deadline)
{
    pthread_mutex_lock(&runner->lock);
    double end_s = runner->end_s;
    pthread_mutex_unlock(&runner->lock);
    return end_s > 0 && end_s < deadline ? end_s : deadline;
}

/* It is not waited for yet, so that its number stays its own. */
static bool has_ended(const struct line *line)
{
    siginfo_t info = { 0 };
    return waitid(P_PID, (id_t)line->pid, &info, WEXITED | WNOHANG | WNOWAIT) ==
               0 &&
           info.si_pid == line->pid;
}

/* Has it ended by `deadline`, and before all is to be over? */
static bool wait_until(struct hook_runner *runner, struct line *line,
                       double deadline)
{
    for (;;) {
        if (line->in >= 0)
            feed(&line->in, &line->rest);
        drain(line->out);
        if (has_ended(line))
            return true;
        if (clock_now() >= end_of(runner, deadline))
            return false;
        (void)poll(NULL, 0, NAP_MS);
    }
}

enum outcome { RAN, FAILED, ENDED };

/* Waits for what was started, or ends it. */
static enum outcome attend(struct hook_runner *runner, struct line *line,
                           int *status)
{
    assert(line->pid > 0); /* kill(-1) would be everybody */
    bool ended = wait_until(runner, line, clock_now() + runner->timeout_s);
    double grace = clock_now() + GRACE_S;
    if (!ended)
        kill(-line->pid, SIGTERM);
    while (!ended && clock_now() < grace && !has_ended(line)) {
        drain(line->out);
        (void)poll(NULL, 0, NAP_MS);
    }
    kill(-line->pid, SIGKILL); /* what it has left behind, too */
    while (waitpid(line->pid, status, 0) < 0 && errno == EINTR)
        ;
    drain(line->out);
    if (!ended)
        return ENDED;
    return WIFEXITED(*status) && WEXITSTATUS(*status) == 0 ? RAN : FAILED;
}

static enum outcome run(struct hook_runner *runner, const struct call *call,
                        int *status)
{
    enum outcome outcome = FAILED;
    int in[2], out[2];
    struct line line = { .pid = -1, .rest = call->input };
    *status = -1;
    /* a socket, as writing to a pipe that nobody reads raises a signal */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) != 0)
        return FAILED;
    if (pipe2(out, O_CLOEXEC) != 0) {
        close(in[0]);
        close(in[1]);
        return FAILED;
    }
    (void)fcntl(out[0], F_SETFL, O_NONBLOCK);
    line.pid = spawn(call, in[1], out[1]);
    line.in = in[0];
    line.out = out[0];
    close(in[1]);
    close(out[1]);
    if (line.pid >= 0)
        outcome = attend(runner, &line, status);
    fsio_close(line.in);
    close(line.out);
    return outcome;
}

static void tell(const struct call *call, enum outcome outcome, int status,
                 double timeout_s)
{
    if (outcome == ENDED)
        log_warn("hooks.on_%s took longer than hooks.timeout_s, %g s, and was "
                 "ended",
                 call->event, timeout_s);
    else if (status >= 0 && WIFEXITED(status))
        log_warn("hooks.on_%s ended with exit status %d", call->event,
                 WEXITSTATUS(status));
    else if (status >= 0 && WIFSIGNALED(status))
        log_warn("hooks.on_%s was ended by signal %d", call->event,
                 WTERMSIG(status));
    else
        log_warn("hooks.on_%s could not be started", call->event);
}

/* The call whose turn it is, by hook; -1: none waits. */
static int first(const struct hook_runner *runner)
{
    int next = -1;
    for (int i = 0; i < HOOK_RUNNER_MAX; i++)
        if (runner->waiting[i].command != NULL &&
            (next < 0 || runner->waiting[i].turn < runner->waiting[next].turn))
            next = i;
    return next;
}

/* There is no time left for what waits, but for the newest call, which has
 * something to say of the end: it gets as much time again. */
static void leave_out(struct hook_runner *runner)
{
    int newest = -1;
    assert(runner->closing && runner->end_s > 0);
    for (int i = 0; i < HOOK_RUNNER_MAX && runner->last_s > 0; i++)
        if (runner->waiting[i].command != NULL &&
            runner->waiting[i].turn == runner->turns)
            newest = i;
    for (int i = 0; i < HOOK_RUNNER_MAX; i++)
        if (runner->waiting[i].command != NULL && i != newest) {
            runner->count[i].replaced++;
            call_free(&runner->waiting[i]);
        }
    runner->end_s = clock_now() + runner->last_s;
    runner->last_s = 0;
}

static void *work(void *arg)
{
    struct hook_runner *runner = arg;
    pthread_mutex_lock(&runner->lock);
    for (;;) {
        if (runner->end_s > 0 && clock_now() >= runner->end_s)
            leave_out(runner);
        int number = first(runner);
        if (number < 0 && runner->closing)
            break;
        if (number < 0) {
            pthread_cond_wait(&runner->changed, &runner->lock);
            continue;
        }
        struct call call = runner->waiting[number];
        struct hook_count *count = &runner->count[number];
        int status = 0;
        runner->waiting[number] = (struct call){ 0 };
        pthread_mutex_unlock(&runner->lock);
        enum outcome outcome = run(runner, &call, &status);
        pthread_mutex_lock(&runner->lock);
        if (outcome != RAN && count->failed + count->ended == 0)
            tell(&call, outcome, status, runner->timeout_s);
        count->failed += outcome == FAILED;
        count->ended += outcome == ENDED;
        assert(count->failed + count->ended + count->replaced <= count->called);
        call_free(&call);
    }
    pthread_mutex_unlock(&runner->lock);
    return NULL;
}

enum err hook_runner_create(double timeout_s, struct hook_runner **out)
{
    struct hook_runner *runner = NULL;
    TRY(new_zeroed(&runner, 1));
    runner->timeout_s = timeout_s;
    pthread_mutex_init(&runner->lock, NULL);
    pthread_cond_init(&runner->changed, NULL);
    int failed = process_thread(&runner->thread, 0, work, runner);
    if (failed != 0) {
        free(runner);
        return err_set(ERR_MEMORY, "hooks: thread: %s", strerror(failed));
    }
    *out = runner;
    return ERR_OK;
}

void hook_runner_call(struct hook_runner *runner, int number, const char *event,
                      const char *command, const char *input)
{
    struct call call = { strdup(event), strdup(command), strdup(input), 0 };
    assert(number >= 0 && number < HOOK_RUNNER_MAX);
    pthread_mutex_lock(&runner->lock);
    assert(!runner->closing);
    runner->count[number].called++;
    if (call.event == NULL || call.command == NULL || call.input == NULL) {
        runner->count[number].failed++;
        call_free(&call);
    } else {
        bool waits = runner->waiting[number].command != NULL;
        call.turn = waits ? runner->waiting[number].turn : ++runner->turns;
        runner->count[number].replaced += waits;
        call_free(&runner->waiting[number]);
        runner->waiting[number] = call;
        pthread_cond_signal(&runner->changed);
    }
    pthread_mutex_unlock(&runner->lock);
}

void hook_runner_destroy(struct hook_runner *runner, double wait_s,
                         struct hook_count *count)
{
    if (runner == NULL)
        return;
    pthread_mutex_lock(&runner->lock);
    runner->closing = true;
    runner->end_s = clock_now() + wait_s;
    runner->last_s = wait_s;
    pthread_cond_signal(&runner->changed);
    pthread_mutex_unlock(&runner->lock);
    pthread_join(runner->thread, NULL);
    memcpy(count, runner->count, sizeof runner->count);
    pthread_cond_destroy(&runner->changed);
    pthread_mutex_destroy(&runner->lock);
    free(runner);
}
