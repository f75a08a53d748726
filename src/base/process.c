/* Starts threads and programs, opens libraries, and asks /proc for other
 * processes.
 *
 * A signal is given to any thread that does not block it, and whoever is in the
 * middle of a write would see it fail. So a thread is born with all signals
 * blocked: the mask that holds at its start is inherited, and there is no moment
 * at which it had another.
 *
 * A process whose first thread has ended is called a zombie although another of
 * its threads may still be inside a write: it lives until that has ended, too. */
#include "src/base/process.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/processes.h"

#define STAT_BYTES 4096

/* Sockets of MPI may have no close-on-exec, and would be held open. */
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
#define CLOSE_OTHERS(actions)                                                  \
    posix_spawn_file_actions_addclosefrom_np(actions, 3)
#else
#define CLOSE_OTHERS(actions) 0
#endif

int process_thread(pthread_t *thread, size_t stack_bytes, void *(*run)(void *),
                   void *arg)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    assert(thread != NULL && run != NULL);
    sigfillset(&all);
    pthread_attr_init(&attributes);
    if (stack_bytes > 0)
        pthread_attr_setstacksize(&attributes, stack_bytes);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(thread, &attributes, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return failed;
}

/* 0 or the first error. */
static int start_files(const struct process_start *start,
                       posix_spawn_file_actions_t *actions)
{
    int failed = start->in < 0
                     ? posix_spawn_file_actions_addopen(
                           actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
                     : posix_spawn_file_actions_adddup2(actions, start->in,
                                                        STDIN_FILENO);
    for (int to = STDOUT_FILENO; to <= STDERR_FILENO && start->out >= 0; to++)
        if (failed == 0)
            failed = posix_spawn_file_actions_adddup2(actions, start->out, to);
    return failed != 0 ? failed : CLOSE_OTHERS(actions);
}

int process_start(const struct process_start *start, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    int flags = POSIX_SPAWN_SETSIGMASK;
    flags |= start->mask == NULL ? POSIX_SPAWN_SETSIGDEF : 0;
    flags |= start->group ? POSIX_SPAWN_SETPGROUP : 0;
    if (start->environment == NULL)
        return ENOMEM;
    int failed = posix_spawn_file_actions_init(&actions);
    if (failed != 0)
        return failed;
    failed = posix_spawnattr_init(&attributes);
    if (failed == 0) {
        sigemptyset(&none);
        sigfillset(&all);
        posix_spawnattr_setsigmask(&attributes,
                                   start->mask != NULL ? start->mask : &none);
        posix_spawnattr_setsigdefault(&attributes, &all);
        posix_spawnattr_setpgroup(&attributes, 0);
        posix_spawnattr_setflags(&attributes, (short)flags);
        failed = start_files(start, &actions);
        if (failed == 0)
            failed = posix_spawnp(pid, start->argv[0], &actions, &attributes,
                                  start->argv, start->environment);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

bool process_collect(int fd, double deadline, size_t most, struct buffer *text)
{
    char part[4096];
    for (;;) {
        double left_s = deadline - clock_now();
        struct pollfd waiting = { .fd = fd, .events = POLLIN };
        if (left_s <= 0)
            return false;
        if (poll(&waiting, 1, (int)(left_s * 1000) + 1) <= 0)
            continue;
        ssize_t got = read(fd, part, sizeof part);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got <= 0)
            return got == 0;
        size_t room = most - text->bytes;
        if (buffer_add(text, part, (size_t)got < room ? (size_t)got : room) !=
            ERR_OK)
            return false;
    }
}

int process_reap(pid_t pid, double seconds)
{
    assert(pid > 0); /* others would be waited for */
    double deadline = clock_now() + seconds;
    for (;;) {
        int status = -1;
        pid_t got = waitpid(pid, &status, WNOHANG);
        if (got == pid)
            return status;
        if ((got < 0 && errno != EINTR) || clock_now() > deadline)
            return -1;
        clock_sleep(0.002);
    }
}

bool process_lives(int64_t pid, int64_t *started)
{
    char path[64], text[STAT_BYTES], state = '?';
    long threads = 0;
    *started = -1;
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    const char *rest = processes_stat(path, text, sizeof text);
    if (rest == NULL)
        return pid > 0 && (kill((pid_t)pid, 0) == 0 || errno != ESRCH);
    if (sscanf(rest,
               "%c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d "
               "%*d %*d %ld %*d %" SCNd64,
               &state, &threads, started) != 3)
        *started = -1;
    return state != 'X' && (state != 'Z' || threads > 1);
}

char **process_environment(bool (*without)(const char *variable), char *more)
{
    size_t count = 0, kept = 0;
    while (environ[count] != NULL)
        count++;
    char **list = calloc(count + 2, sizeof *list);
    for (size_t i = 0; i < count && list != NULL; i++)
        if (!without(environ[i]))
            list[kept++] = environ[i];
    if (list != NULL)
        list[kept] = more;
    return list;
}

enum err process_library_open(const struct process_library *library,
                              void *table, size_t bytes)
{
    int keep = library->unloads ? 0 : RTLD_NODELETE;
    memset(table, 0, bytes);
    void *opened = dlopen(library->file, RTLD_NOW | RTLD_LOCAL | keep);
    if (opened == NULL)
        return err_set(ERR_UNSUPPORTED, "%s%s; %s", library->name, dlerror(),
                       library->missing);
    memcpy(table, &opened, sizeof opened);
    for (int i = 0; i < library->count; i++) {
        const struct process_symbol *wanted = &library->symbols[i];
        void *found = dlsym(opened, wanted->symbol);
        assert(wanted->offset >= sizeof opened &&
               wanted->offset + sizeof found <= bytes);
        memcpy((char *)table + wanted->offset, &found, sizeof found);
        if (found != NULL || wanted->optional)
            continue;
        process_library_close(table, bytes);
        return err_set(ERR_UNSUPPORTED, "%s%s lacks %s; %s", library->name,
                       library->file, wanted->symbol, library->old);
    }
    return ERR_OK;
}

void process_library_close(void *table, size_t bytes)
{
    void *opened;
    memcpy(&opened, table, sizeof opened);
    if (opened != NULL)
        (void)dlclose(opened);
    memset(table, 0, bytes);
}
