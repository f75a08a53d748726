/* The child has a pipe for both streams and nothing else of ours. The deadline
 * counts for reading and for ending together. */
#include "src/job/slurm_run.h"

#include <assert.h>
#include <fcntl.h>
#include <signal.h>
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

/* -1: it could not be started. */
static pid_t slurm_spawn(char *const *argv, int out_fd)
{
    pid_t pid = -1;
    char utc[] = "TZ=UTC";
    char **list = process_environment(slurm_misleads, utc);
    const struct process_start start = {
        .argv = argv, .environment = list, .in = -1, .out = out_fd
    };
    int failed = process_start(&start, &pid);
    free(list);
    return failed == 0 ? pid : -1;
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
    bool ended = pid > 0 &&
                 process_collect(pipe_fd[0], deadline, most + 1, text) &&
                 text->bytes <= most;
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
