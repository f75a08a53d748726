/* The thread that runs commands, and how one is run. */
#include "src/train/hook_runner.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/log.h"

extern char **environ;

#define NAP_MS 10
#define GRACE_S 1.0

struct call {
    char *event, *command, *input; /* NULL: nothing waits */
};

struct hook_runner {
    double timeout_s;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock */
    struct call waiting[HOOK_RUNNER_MAX];
    struct hook_count count[HOOK_RUNNER_MAX];
    bool closing;
};

static void call_free(struct call *call)
{
    free(call->event);
    free(call->command);
    free(call->input);
    *call = (struct call){ 0 };
}

/* The run's environment with TESSERA_EVENT; the list is malloc'ed. */
static char **environment(char *event)
{
    size_t count = 0, kept = 0;
    while (environ[count] != NULL)
        count++;
    char **list = malloc((count + 2) * sizeof *list);
    for (size_t i = 0; i < count && list != NULL; i++)
        if (strncmp(environ[i], "TESSERA_EVENT=", 14) != 0)
            list[kept++] = environ[i];
    if (list != NULL) {
        list[kept++] = event;
        list[kept] = NULL;
    }
    return list;
}

/* In a process group of its own, with no signal blocked or ignored; -1: it
 * could not be started. */
static pid_t spawn(const struct call *call, int input)
{
    char event[64];
    char *argv[] = { (char[]){ "sh" }, (char[]){ "-c" }, call->command, NULL };
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    pid_t pid = -1;
    snprintf(event, sizeof event, "TESSERA_EVENT=%.40s", call->event);
    char **env = environment(event);
    if (posix_spawn_file_actions_init(&actions) != 0) {
        free(env);
        return -1;
    }
    if (posix_spawnattr_init(&attributes) != 0) {
        posix_spawn_file_actions_destroy(&actions);
        free(env);
        return -1;
    }
    sigemptyset(&none);
    sigfillset(&all);
    if (env == NULL ||
        posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO) != 0 ||
        posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO,
                                         STDOUT_FILENO) != 0 ||
        posix_spawnattr_setsigmask(&attributes, &none) != 0 ||
        posix_spawnattr_setsigdefault(&attributes, &all) != 0 ||
        posix_spawnattr_setpgroup(&attributes, 0) != 0 ||
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK |
                                                  POSIX_SPAWN_SETSIGDEF |
                                                  POSIX_SPAWN_SETPGROUP) != 0 ||
        posix_spawn(&pid, "/bin/sh", &actions, &attributes, argv, env) != 0)
        pid = -1;
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    free(env);
    return pid;
}

/* Gives the command what it will read of the rest of its input. */
static void feed(int *fd, const char **rest)
{
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

/* Has it ended by `deadline`? What it reads is fed to it meanwhile. It is not
 * waited for yet, so that its number stays its own. */
static bool wait_until(pid_t pid, double deadline, int *fd, const char **rest)
{
    for (;;) {
        siginfo_t info = { 0 };
        if (*fd >= 0)
            feed(fd, rest);
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            info.si_pid == pid)
            return true;
        if (clock_now() >= deadline)
            return false;
        (void)poll(NULL, 0, NAP_MS);
    }
}

enum outcome { RAN, FAILED, ENDED };

static enum outcome run(const struct call *call, double timeout_s, int *status)
{
    int pair[2];
    const char *rest = call->input;
    *status = -1;
    /* a socket, as writing to a pipe that nobody reads raises a signal */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return FAILED;
    pid_t pid = spawn(call, pair[1]);
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return FAILED;
    }
    bool ended = wait_until(pid, clock_now() + timeout_s, &pair[0], &rest);
    if (!ended) {
        kill(-pid, SIGTERM);
        (void)wait_until(pid, clock_now() + GRACE_S, &pair[0], &rest);
    }
    kill(-pid, SIGKILL); /* what it has left behind, too */
    while (waitpid(pid, status, 0) < 0 && errno == EINTR)
        ;
    if (pair[0] >= 0)
        close(pair[0]);
    if (!ended)
        return ENDED;
    return WIFEXITED(*status) && WEXITSTATUS(*status) == 0 ? RAN : FAILED;
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

/* The first call that waits, by hook; -1: none. */
static int first(const struct hook_runner *runner)
{
    for (int i = 0; i < HOOK_RUNNER_MAX; i++)
        if (runner->waiting[i].command != NULL)
            return i;
    return -1;
}

static void *work(void *arg)
{
    struct hook_runner *runner = arg;
    pthread_mutex_lock(&runner->lock);
    for (;;) {
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
        enum outcome outcome = run(&call, runner->timeout_s, &status);
        pthread_mutex_lock(&runner->lock);
        if (outcome != RAN && count->failed + count->ended == 0)
            tell(&call, outcome, status, runner->timeout_s);
        count->failed += outcome == FAILED;
        count->ended += outcome == ENDED;
        call_free(&call);
    }
    pthread_mutex_unlock(&runner->lock);
    return NULL;
}

enum err hook_runner_create(double timeout_s, struct hook_runner **out)
{
    sigset_t all, before;
    struct hook_runner *runner = calloc(1, sizeof *runner);
    if (runner == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    runner->timeout_s = timeout_s;
    pthread_mutex_init(&runner->lock, NULL);
    pthread_cond_init(&runner->changed, NULL);
    /* the run's own thread answers signals */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&runner->thread, NULL, work, runner);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
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
    struct call call = { strdup(event), strdup(command), strdup(input) };
    pthread_mutex_lock(&runner->lock);
    runner->count[number].called++;
    if (call.event == NULL || call.command == NULL || call.input == NULL) {
        runner->count[number].failed++;
        call_free(&call);
    } else {
        runner->count[number].replaced +=
            runner->waiting[number].command != NULL;
        call_free(&runner->waiting[number]);
        runner->waiting[number] = call;
        pthread_cond_signal(&runner->changed);
    }
    pthread_mutex_unlock(&runner->lock);
}

void hook_runner_destroy(struct hook_runner *runner, struct hook_count *count)
{
    if (runner == NULL)
        return;
    pthread_mutex_lock(&runner->lock);
    runner->closing = true;
    pthread_cond_signal(&runner->changed);
    pthread_mutex_unlock(&runner->lock);
    pthread_join(runner->thread, NULL);
    memcpy(count, runner->count, sizeof runner->count);
    pthread_cond_destroy(&runner->changed);
    pthread_mutex_destroy(&runner->lock);
    free(runner);
}
