/* What Slurm's environment says, and the questions to squeue and scontrol, each
 * with a deadline.
 *
 * squeue may hang for minutes when the controller is away, and a failed squeue
 * is not a finished job: both are told apart here. Other traps are in the
 * environment: a user's SQUEUE_FORMAT or SLURM_CLUSTERS changes what a command
 * answers or whom it asks, so such variables are left out; a task
 * of an array has the array's number in SLURM_JOB_ID, for which squeue lists all
 * tasks, so the number is looked for in the answer; and what is in the
 * environment was true when the job began, so the time limit is asked for. */
#include "src/job/slurm.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/clock.h"

#define SLURM_SQUEUE_TIMEOUT_S 10.0
#define SLURM_ANSWER_BYTES 512
#define SLURM_TEXT_BYTES 262144

extern char **environ;

static long slurm_env_long(const char *name, long preset)
{
    const char *text = getenv(name);
    if (text == NULL || *text == '\0')
        return preset;
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    return errno == 0 && *end == '\0' && value >= 0 ? value : preset;
}

static int slurm_env_int(const char *name, int preset)
{
    long value = slurm_env_long(name, preset);
    return value <= 0x7fffffff ? (int)value : preset;
}

void slurm_read(struct slurm *out)
{
    memset(out, 0, sizeof *out);
    out->job_id = slurm_env_long("SLURM_JOB_ID", 0);
    out->restart_count = slurm_env_int("SLURM_RESTART_COUNT", 0);
    out->nodes = slurm_env_int("SLURM_JOB_NUM_NODES", 1);
    out->procid = slurm_env_int("SLURM_PROCID", 0);
    out->step_id = slurm_env_int("SLURM_STEP_ID", 0);
    const char *node = getenv("SLURMD_NODENAME");
    if (node != NULL && *node != '\0')
        snprintf(out->node, sizeof out->node, "%s", node);
    else if (gethostname(out->node, sizeof out->node - 1) != 0)
        snprintf(out->node, sizeof out->node, "localhost");
    const char *cluster = getenv("SLURM_CLUSTER_NAME");
    snprintf(out->cluster, sizeof out->cluster, "%s",
             cluster != NULL ? cluster : "");
}

double slurm_parse_seconds(const char *text)
{
    long parts[4];
    int count = 0;
    long days = 0;
    for (const char *p = text;;) {
        if (*p < '0' || *p > '9' || count == 3)
            return -1;
        char *end;
        long value = strtol(p, &end, 10);
        if (value < 0 || value > 10000000)
            return -1;
        if (*end == '-' && count == 0 && days == 0 && p == text) {
            days = value;
            p = end + 1;
            continue;
        }
        parts[count++] = value;
        if (*end == '\0')
            break;
        if (*end != ':')
            return -1;
        p = end + 1;
    }
    if (count < 2)
        return -1;
    long hours = count == 3 ? parts[0] : 0;
    return (double)((days * 24 + hours) * 3600 + parts[count - 2] * 60 +
                    parts[count - 1]);
}

/* What makes Slurm's commands answer of another cluster or of other jobs, or in
 * another form; jobs/lib/slurm.sh does the same. */
static bool slurm_misleads(const char *variable)
{
    static const char *const begin[] = {
        "SLURM_CLUSTERS=", "SLURM_TIME_FORMAT=", "SLURM_BITSTR_LEN=", "SQUEUE_",
        "SCONTROL_"
    };
    for (size_t i = 0; i < sizeof begin / sizeof begin[0]; i++)
        if (strncmp(variable, begin[i], strlen(begin[i])) == 0)
            return true;
    return false;
}

/* malloc'ed; NULL: no memory. */
static char **slurm_environment(void)
{
    size_t count = 0, kept = 0;
    while (environ[count] != NULL)
        count++;
    char **list = malloc((count + 1) * sizeof *list);
    for (size_t i = 0; i <= count && list != NULL; i++)
        if (environ[i] == NULL || !slurm_misleads(environ[i]))
            list[kept++] = environ[i];
    return list;
}

static pid_t slurm_spawn(char *const *argv, int out_fd)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    pid_t pid = -1;
    char **list = slurm_environment();
    if (list == NULL)
        return -1;
    if (posix_spawn_file_actions_init(&actions) != 0) {
        free(list);
        return -1;
    }
    if (posix_spawnattr_init(&attributes) != 0) {
        posix_spawn_file_actions_destroy(&actions);
        free(list);
        return -1;
    }
    sigemptyset(&none);
    /* Both streams in one pipe: the error text tells an unknown job from a
     * controller that did not answer. */
    if (posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null",
                                         O_RDONLY, 0) != 0 ||
        posix_spawn_file_actions_adddup2(&actions, out_fd, STDOUT_FILENO) !=
            0 ||
        posix_spawn_file_actions_adddup2(&actions, out_fd, STDERR_FILENO) !=
            0 ||
        posix_spawnattr_setsigmask(&attributes, &none) != 0 ||
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK) != 0 ||
        posix_spawnp(&pid, argv[0], &actions, &attributes, argv, list) != 0)
        pid = -1;
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    free(list);
    return pid;
}

/* Reads until end of file or the deadline; false: the deadline came first. */
static bool slurm_collect(int fd, char *text, size_t bytes)
{
    double deadline = clock_now() + SLURM_SQUEUE_TIMEOUT_S;
    size_t used = 0;
    text[0] = '\0';
    for (;;) {
        double left_s = deadline - clock_now();
        struct pollfd waiting = { .fd = fd, .events = POLLIN };
        if (left_s <= 0)
            return false;
        if (poll(&waiting, 1, (int)(left_s * 1000) + 1) <= 0)
            continue;
        char part[256];
        ssize_t got = read(fd, part, sizeof part);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got <= 0)
            return got == 0;
        size_t keep = (size_t)got;
        if (keep > bytes - 1 - used)
            keep = bytes - 1 - used;
        assert(used + keep < bytes);
        memcpy(text + used, part, keep);
        used += keep;
        text[used] = '\0';
    }
}

/* Runs a command of Slurm; its exit status, or -1 when it could not run or did
 * not end in time. */
static int slurm_run(char *const *argv, char *text, size_t bytes)
{
    int pipe_fd[2];
    if (pipe2(pipe_fd, O_CLOEXEC) != 0)
        return -1;
    pid_t pid = slurm_spawn(argv, pipe_fd[1]);
    close(pipe_fd[1]);
    if (pid < 0) {
        close(pipe_fd[0]);
        return -1;
    }
    bool ended = slurm_collect(pipe_fd[0], text, bytes);
    close(pipe_fd[0]);
    if (!ended)
        kill(pid, SIGKILL);
    int status = -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return ended && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The rest of the line that begins with the job's number: one task of an array
 * has the array's, for which all tasks are listed. */
static const char *slurm_line(char *text, long job_id)
{
    char *rest;
    assert(job_id > 0);
    for (char *line = strtok_r(text, "\r\n", &rest); line != NULL;
         line = strtok_r(NULL, "\r\n", &rest)) {
        char *end;
        if (strtol(line, &end, 10) == job_id && end != line && *end == ' ')
            return end + 1;
    }
    return "";
}

/* `squeue -h -t all -j ID -o "%A FORMAT"`: what it says of this job, or what it
 * printed if it failed. */
static int slurm_squeue(long job_id, const char *format, char *text,
                        size_t bytes)
{
    char id[32];
    char form[16];
    char *answer = malloc(SLURM_TEXT_BYTES);
    char *argv[] = { (char[]){ "squeue" },
                     (char[]){ "-h" },
                     (char[]){ "-t" },
                     (char[]){ "all" },
                     (char[]){ "-j" },
                     id,
                     (char[]){ "-o" },
                     form,
                     NULL };
    assert(job_id > 0 && strlen(format) < sizeof form - strlen("%A "));
    snprintf(id, sizeof id, "%ld", job_id);
    snprintf(form, sizeof form, "%%A %s", format);
    int status =
        answer == NULL ? -1 : slurm_run(argv, answer, SLURM_TEXT_BYTES);
    /* a list that was cut tells nothing of a job that is not in it */
    bool cut = status >= 0 && strlen(answer) == SLURM_TEXT_BYTES - 1;
    if (status >= 0)
        snprintf(text, bytes, "%s",
                 status == 0 ? slurm_line(answer, job_id) : answer);
    free(answer);
    return cut && text[0] == '\0' ? -1 : status;
}

void slurm_ask_cluster(char *name, size_t bytes)
{
    char *argv[] = { (char[]){ "scontrol" }, (char[]){ "show" },
                     (char[]){ "config" }, NULL };
    char *text = malloc(SLURM_TEXT_BYTES);
    name[0] = '\0';
    if (text != NULL && slurm_run(argv, text, SLURM_TEXT_BYTES) == 0) {
        const char *line = strstr(text, "\nClusterName");
        const char *value = line == NULL ? NULL : strchr(line, '=');
        if (value != NULL) {
            value += 1 + strspn(value + 1, " ");
            snprintf(name, bytes, "%.*s", (int)strcspn(value, " \r\n"), value);
        }
    }
    free(text);
}

double slurm_seconds_left(long job_id)
{
    char text[SLURM_ANSWER_BYTES];
    if (job_id <= 0 || slurm_squeue(job_id, "%L", text, sizeof text) != 0)
        return -1;
    if (strcmp(text, "UNLIMITED") == 0)
        return INFINITY;
    return slurm_parse_seconds(text);
}

enum slurm_job_state slurm_job_state(long job_id)
{
    static const char *const ended[] = {
        "PENDING",   "COMPLETED",     "CANCELLED",    "FAILED",
        "TIMEOUT",   "NODE_FAIL",     "PREEMPTED",    "DEADLINE",
        "BOOT_FAIL", "OUT_OF_MEMORY", "SPECIAL_EXIT", "REVOKED",
        "REQUEUED",  "REQUEUE_HOLD",  "REQUEUE_FED",
    };
    char text[SLURM_ANSWER_BYTES];
    assert(job_id > 0);
    int status = slurm_squeue(job_id, "%T", text, sizeof text);
    if (status != 0)
        return status > 0 && strstr(text, "Invalid job id") != NULL
                   ? SLURM_JOB_ABSENT
                   : SLURM_JOB_UNKNOWN;
    if (text[0] == '\0')
        return SLURM_JOB_ABSENT;
    for (size_t i = 0; i < sizeof ended / sizeof ended[0]; i++)
        if (strcmp(text, ended[i]) == 0)
            return SLURM_JOB_ENDED;
    return SLURM_JOB_RUNNING;
}
