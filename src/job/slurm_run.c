/* The child has a pipe for both streams and nothing else of ours. It is read to
 * its end, whatever is kept of it, since a program whose pipe is full never
 * ends; and the deadline counts for reading and for ending together. */
#include "src/job/slurm_run.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/process.h"

/* How long a killed one may take to go. */
#define REAP_S 0.5

static bool slurm_misleads(const char *variable)
{
    static const char *const begin[] = { "SLURM_CLUSTERS=",
                                         "SLURM_TIME_FORMAT=",
                                         "SLURM_BITSTR_LEN=",
                                         "SQUEUE_",
                                         "SCONTROL_",
                                         "SINFO_",
                                         "TZ=" };
    for (size_t i = 0; i < sizeof begin / sizeof begin[0]; i++)
        if (strncmp(variable, begin[i], strlen(begin[i])) == 0)
            return true;
    return false;
}

static pid_t slurm_spawn(char *const *argv, int out_fd)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    pid_t pid = -1;
    char utc[] = "TZ=UTC";
    char **list = process_environment(slurm_misleads, utc);
    bool acts = list != NULL && posix_spawn_file_actions_init(&actions) == 0;
    bool made = acts && posix_spawnattr_init(&attributes) == 0;
    sigemptyset(&none);
    if (made &&
        (posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null",
                                          O_RDONLY, 0) != 0 ||
         posix_spawn_file_actions_adddup2(&actions, out_fd, STDOUT_FILENO) !=
             0 ||
         posix_spawn_file_actions_adddup2(&actions, out_fd, STDERR_FILENO) !=
             0 ||
         posix_spawnattr_setsigmask(&attributes, &none) != 0 ||
         posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK) != 0 ||
         posix_spawnp(&pid, argv[0], &actions, &attributes, argv, list) != 0))
        pid = -1;
    if (made)
        posix_spawnattr_destroy(&attributes);
    if (acts)
        posix_spawn_file_actions_destroy(&actions);
    free(list);
    return pid;
}

/* Reads until end of file or the deadline; false: the deadline came first, or
 * there was too much. */
static bool slurm_collect(int fd, double deadline, size_t most,
                          struct buffer *text)
{
    bool whole = true;
    for (;;) {
        double left_s = deadline - clock_now();
        struct pollfd waiting = { .fd = fd, .events = POLLIN };
        if (left_s <= 0)
            return false;
        if (poll(&waiting, 1, (int)(left_s * 1000) + 1) <= 0)
            continue;
        char part[4096];
        ssize_t got = read(fd, part, sizeof part);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got <= 0)
            return got == 0 && whole;
        whole = whole && text->bytes + (size_t)got <= most &&
                buffer_add(text, part, (size_t)got) == ERR_OK;
    }
}

int slurm_run(char *const *argv, double seconds, size_t most,
              struct buffer *text)
{
    double deadline = clock_now() + seconds;
    int pipe_fd[2], status = -1;
    assert(seconds > 0 && most > 0);
    text->bytes = 0;
    if (pipe2(pipe_fd, O_CLOEXEC) != 0)
        return -1;
    pid_t pid = slurm_spawn(argv, pipe_fd[1]);
    close(pipe_fd[1]);
    bool ended = pid > 0 && slurm_collect(pipe_fd[0], deadline, most, text);
    close(pipe_fd[0]);
    if (ended)
        status = process_reap(pid, deadline - clock_now());
    if (pid > 0 && status == -1) {
        kill(pid, SIGKILL);
        (void)process_reap(pid, REAP_S);
    }
    if (buffer_add(text, "", 1) != ERR_OK)
        return -1;
    text->bytes--;
    return status != -1 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
