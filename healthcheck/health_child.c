/* Starts processes that may hang, waits for them with a deadline, and tells a
 * hang from slow work. What they check is in the files of the checks.
 *
 * A process that waits in the kernel for a sick device (state D) takes no
 * signal, not even SIGKILL, until the device answers; so a check that may meet
 * one can neither be interrupted nor always be killed. All that is left is to
 * have it somewhere else, to look at it from outside, by /proc, and to go on
 * without it. Such a child is abandoned: it stays until the device answers or
 * the node is rebooted, and holds nothing of ours.
 *
 * A deadline that is missed proves a hang only if nothing moved: a node that is
 * busy makes everything late. So before a verdict a child is looked at for a
 * quarter of a second, by its threads' states, its processor time and the page
 * faults for which it had to read. */
#include "healthcheck/health_child.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/process.h"
#include "src/base/processes.h"

/* How long a killed child may take to go before it is abandoned. */
#define CHILD_REAP_S 0.3
#define CHILD_WATCH_S 0.25
#define CHILD_LOOKS 5

/* The child's end of the pipe, all else closed: whoever reads our output waits for
 * its last writer, and a child may have to be abandoned.
 *
 * A session of its own, so that signals for the terminal's group do not meet it;
 * nothing open but the pipe; and it ends with its parent. That may have ended
 * before the kernel was asked for this, which a look at the parent's number
 * afterwards finds out. */
static int isolate(int pipe_fd, pid_t parent)
{
    int null = open("/dev/null", O_RDWR);
    setsid();
    for (int fd = 0; fd < 3 && null >= 0; fd++)
        dup2(null, fd);
    int fd = dup2(pipe_fd, 3);
    close_range(4, ~0U, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    return fd;
}

pid_t health_child_start(int *fd)
{
    int pipe_fd[2];
    pid_t parent = getpid();
    if (pipe2(pipe_fd, O_CLOEXEC) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        *fd = isolate(pipe_fd[1], parent);
        return 0;
    }
    close(pipe_fd[1]);
    *fd = pipe_fd[0];
    if (pid < 0)
        close(pipe_fd[0]);
    return pid;
}

_Noreturn void health_child_end(int fd, const void *result, size_t bytes)
{
    _exit(write(fd, result, bytes) == (ssize_t)bytes ? 0 : 1);
}

bool health_child_computes(pid_t pid)
{
    char path[sizeof "/proc//task//stat" + 300];
    assert(pid > 0);
    bool computes = false;
    snprintf(path, sizeof path, "/proc/%ld/task", (long)pid);
    DIR *folder = opendir(path);
    const struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        char text[512];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/%ld/task/%s/stat", (long)pid,
                 entry->d_name);
        const char *state = processes_stat(path, text, sizeof text);
        if (state != NULL && *state != '\0')
            computes |= strchr("RTt", *state) != NULL;
    }
    if (folder != NULL)
        closedir(folder);
    return computes;
}

struct child_work {
    char state;
    unsigned long long faults, user, system;
};

static struct child_work child_work(pid_t pid)
{
    struct child_work work = { .state = '?' };
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    const char *fields = processes_stat(path, text, sizeof text);
    if (fields != NULL)
        sscanf(fields, "%c %*d %*d %*d %*d %*d %*u %*u %*u %llu %*u %llu %llu",
               &work.state, &work.faults, &work.user, &work.system);
    return work;
}

bool health_child_moves(pid_t pid)
{
    struct child_work first = child_work(pid);
    for (int look = 0; look < CHILD_LOOKS; look++) {
        if (health_child_computes(pid))
            return true;
        clock_sleep(CHILD_WATCH_S / CHILD_LOOKS);
        struct child_work now = child_work(pid);
        if (now.state != first.state || now.faults != first.faults ||
            now.user != first.user || now.system != first.system)
            return true;
    }
    return false;
}

/* Reads what is there before it looks at the clock: a result that came while
 * the parent had no processor is in time. */
bool health_child_wait(int fd, double deadline, void *result, size_t size,
                       size_t *bytes)
{
    assert(fd >= 0 && size > 0);
    *bytes = 0;
    while (*bytes < size) {
        struct pollfd waiting = { .fd = fd, .events = POLLIN };
        double left_s = deadline - clock_now();
        if (poll(&waiting, 1, (int)ceil(fmax(left_s, 0) * 1000)) <= 0) {
            if (left_s <= 0)
                return false;
            continue;
        }
        ssize_t got = read(fd, (char *)result + *bytes, size - *bytes);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        *bytes += (size_t)got;
    }
    return true;
}

int health_child_reap(pid_t pid)
{
    return process_reap(pid, CHILD_REAP_S);
}
