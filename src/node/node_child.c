/* fork() without exec() where there is no program to be called: this process has
 * one thread. */
#include "src/node/node_child.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/process.h"
#include "src/base/processes.h"

#define OUT_BYTES_MAX ((size_t)16 << 20)
#define REAP_S 0.5
/* What has no processor has its time so often. */
#define TURNS 4
#define OWNER_S 5.0

static void only_pipe(int fd)
{
    int null = open("/dev/null", O_RDONLY);
    (void)dup2(null, STDIN_FILENO);
    (void)dup2(fd, STDOUT_FILENO);
    (void)dup2(fd, STDERR_FILENO);
    if (close_range(STDERR_FILENO + 1, ~0U, 0) != 0)
        for (int other = STDERR_FILENO + 1; other < 1024; other++)
            close(other);
}

static int start_program(const struct node_child *child)
{
    for (int i = 0; child->environment != NULL && child->environment[i] != NULL;
         i++)
        if (strchr(child->environment[i], '=') != NULL)
            putenv(child->environment[i]);
        else
            unsetenv(child->environment[i]);
    execvp(child->argv[0], child->argv);
    int code = errno == ENOENT ? 127 : 126;
    fprintf(stderr, "%s: %s\n", child->argv[0], strerror(errno));
    fflush(stderr);
    return code;
}

_Noreturn static void run(const struct node_child *child, int fd)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    only_pipe(fd);
    if (child->uid != 0 &&
        (setgroups(0, NULL) != 0 ||
         setresgid(child->gid, child->gid, child->gid) != 0 ||
         setresuid(child->uid, child->uid, child->uid) != 0 ||
         prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || getuid() == 0))
        _exit(125);
    int code =
        child->argv != NULL ? start_program(child) : child->run(child->arg);
    fflush(stdout);
    _exit(code);
}

static void drop_nuls(struct buffer *out)
{
    size_t kept = 0;
    for (size_t i = 0; i < out->bytes; i++)
        if (out->data[i] != '\0')
            out->data[kept++] = out->data[i];
    out->bytes = kept;
}

/* Waits for a processor, or has one: whatever it does, it does not hang. */
static bool is_running(pid_t pid)
{
    char path[40], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    const char *state = processes_stat(path, text, sizeof text);
    return state != NULL && *state == 'R';
}

/* Its status; -1: it does not answer. */
static int collect(const struct node_child *child, pid_t pid, int fd,
                   struct buffer *out)
{
    for (int turn = 1;; turn++) {
        double end_s = clock_now() + child->seconds;
        if (process_collect(fd, end_s, OUT_BYTES_MAX, out))
            return process_reap(pid, end_s - clock_now());
        if (child->run == NULL || turn == TURNS || !is_running(pid))
            return -1;
    }
}

int node_child(const struct node_child *child, struct buffer *out)
{
    int fd[2], status = -1;
    assert((child->argv == NULL) != (child->run == NULL));
    out->bytes = 0;
    if (buffer_reserve(out, 1) != ERR_OK || child->seconds <= 0 ||
        pipe2(fd, O_CLOEXEC) != 0)
        return NODE_NO_ANSWER;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        run(child, fd[1]);
    close(fd[1]);
    if (pid > 0)
        setpgid(pid, pid);
    if (pid > 0)
        status = collect(child, pid, fd[0], out);
    close(fd[0]);
    if (pid > 0 && status == -1) {
        kill(-pid, SIGKILL);
        (void)process_reap(pid, REAP_S);
    }
    drop_nuls(out);
    while (out->bytes > 0 && out->data[out->bytes - 1] == '\n')
        out->bytes--;
    if (buffer_reserve(out, 1) != ERR_OK || status == -1)
        out->bytes = status == -1 ? out->bytes : 0;
    out->data[out->bytes] = '\0';
    if (status == -1)
        return NODE_NO_ANSWER;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int print_owner(void *arg)
{
    struct stat st;
    if (stat(arg, &st) != 0) {
        perror(arg);
        return 1;
    }
    if (st.st_uid == 0 && (st.st_mode & 022) == 0)
        return 0;
    printf("%s must belong to root and be writable by root only",
           (const char *)arg);
    return 1;
}

bool node_child_owned(const char *path, char *why, size_t size)
{
    struct buffer out = { 0 };
    struct node_child child = { NODE_CHILD(OWNER_S, print_owner,
                                           (void *)path) };
    int code = node_child(&child, &out);
    snprintf(why, size, "%s%s", code == NODE_NO_ANSWER ? path : "",
             code == NODE_NO_ANSWER ? " does not answer" : (char *)out.data);
    buffer_free(&out);
    return code == 0;
}
