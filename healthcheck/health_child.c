#include "healthcheck/health_child.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/clock.h"

/* How long a killed child may take to go before it is abandoned. */
#define CHILD_REAP_S 0.3

int health_child_isolate(int pipe_fd, pid_t parent)
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

bool health_child_computes(pid_t pid)
{
    char path[sizeof "/proc//task//stat" + 300];
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
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t bytes = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
        if (fd >= 0)
            close(fd);
        text[bytes > 0 ? bytes : 0] = '\0';
        const char *name_end = strrchr(text, ')');
        if (name_end != NULL && name_end[1] == ' ')
            computes |= strchr("RTt", name_end[2]) != NULL;
    }
    if (folder != NULL)
        closedir(folder);
    return computes;
}

bool health_child_wait(int fd, double deadline, void *result, size_t size,
                       size_t *bytes)
{
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
    double deadline = clock_now() + CHILD_REAP_S;
    int status = -1;
    for (;;) {
        pid_t got = waitpid(pid, &status, WNOHANG);
        if (got == pid)
            return status;
        if ((got < 0 && errno != EINTR) || clock_now() > deadline)
            return -1;
        clock_sleep(0.002);
    }
}
