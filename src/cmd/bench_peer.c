/* Starts a peer (another BLAS library in a process of its own) and asks it for
 * products and times. The other end is bench_peer_serve.c. */
#include "src/cmd/bench_peer.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/cmd/bench_peer_wire.h"

/* A library that is loaded in an address space that is too small for it may
 * never end; a product of a slow one may take seconds. */
#define ANSWER_S 60.0

extern char **environ;

struct bench_peer {
    struct bench_blas_choice choice;
    struct bench_blas_about about;
    pid_t process;
    int socket;
    struct bench_product product; /* prepared last */
};

static bool has_name(const char *variable, const char *name)
{
    size_t length = strlen(name);
    return strncmp(variable, name, length) == 0 && variable[length] == '=';
}

/* This process's environment with the choice's settings in it; one piece of
 * memory, which the caller frees. */
static char **make_environment(const struct bench_blas_choice *choice)
{
    struct bench_blas_setting settings[BENCH_BLAS_SETTINGS];
    size_t count = 0, used = 0, bytes = 0;
    bench_blas_settings(choice, settings);
    while (environ[count] != NULL)
        count++;
    for (int i = 0; i < BENCH_BLAS_SETTINGS; i++)
        if (settings[i].value != NULL)
            bytes += strlen(settings[i].name) + strlen(settings[i].value) + 2;
    size_t table = (count + BENCH_BLAS_SETTINGS + 1) * sizeof(char *);
    char **out = calloc(1, table + bytes);
    if (out == NULL)
        return NULL;
    for (size_t v = 0; v < count; v++) {
        bool ours = false;
        for (int i = 0; i < BENCH_BLAS_SETTINGS; i++)
            ours = ours || has_name(environ[v], settings[i].name);
        if (!ours)
            out[used++] = environ[v];
    }
    char *text = (char *)out + table;
    for (int i = 0; i < BENCH_BLAS_SETTINGS; i++) {
        if (settings[i].value == NULL)
            continue;
        out[used++] = text;
        text += sprintf(text, "%s=%s", settings[i].name, settings[i].value) + 1;
    }
    return out;
}

/* Its stdin is the socket; what libraries print goes to stderr. */
static enum err spawn(struct bench_peer *peer, int end)
{
    enum err rc = ERR_OK;
    char program[FSIO_PATH_MAX], name[] = "tessera-bench", job[] = "gemm-peer";
    char *argv[] = { name, job, NULL };
    char **environment = NULL;
    posix_spawn_file_actions_t actions;
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 0)
        return err_errno("/proc/self/exe");
    program[length] = '\0';
    if (posix_spawn_file_actions_init(&actions) != 0)
        return err_set(ERR_MEMORY, "out of memory");
    environment = make_environment(&peer->choice);
    if (environment == NULL ||
        posix_spawn_file_actions_adddup2(&actions, end, STDIN_FILENO) != 0 ||
        posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO,
                                         STDOUT_FILENO) != 0) {
        rc = err_set(ERR_MEMORY, "out of memory");
        goto out;
    }
    errno =
        posix_spawn(&peer->process, program, &actions, NULL, argv, environment);
    if (errno != 0) {
        rc = err_errno("start of %s", program);
        peer->process = 0;
    }
out:
    free(environment);
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

static enum err send_all(int socket, const void *data, size_t bytes)
{
    /* some hundred bytes, which a socket takes whole */
    if (send(socket, data, bytes, MSG_NOSIGNAL) != (ssize_t)bytes)
        return err_set(ERR_UNSUPPORTED, "its process has ended");
    return ERR_OK;
}

static enum err receive_all(int socket, void *data, size_t bytes)
{
    double end_s = clock_now() + ANSWER_S;
    char *at = data;
    while (bytes > 0) {
        struct pollfd wait = { .fd = socket, .events = POLLIN };
        double left_s = end_s - clock_now();
        if (left_s <= 0.0)
            return err_set(ERR_UNSUPPORTED, "it gave no answer in %.0f s",
                           ANSWER_S);
        if (poll(&wait, 1, (int)(left_s * 1e3) + 1) <= 0)
            continue;
        ssize_t n = recv(socket, at, bytes, 0);
        if (n <= 0)
            return err_set(ERR_UNSUPPORTED, "its process has ended");
        at += n;
        bytes -= (size_t)n;
    }
    return ERR_OK;
}

static enum err ask(struct bench_peer *peer, int calls, double *seconds)
{
    enum err rc = ERR_OK;
    struct bench_peer_reply reply;
    struct bench_peer_request request;
    memset(&request, 0, sizeof request); /* what lies between members, too */
    request.product = peer->product;
    request.calls = calls;
    TRY(send_all(peer->socket, &request, sizeof request));
    TRY(receive_all(peer->socket, &reply, sizeof reply));
    peer->about = reply.about;
    *seconds = reply.seconds;
    if (reply.rc != ERR_OK)
        rc = err_set(reply.rc, "%s", reply.text);
    return rc;
}

enum err bench_peer_start(const struct bench_blas_choice *choice,
                          struct bench_peer **out)
{
    enum err rc = ERR_OK;
    int ends[2] = { -1, -1 };
    struct bench_peer *peer = calloc(1, sizeof *peer);
    *out = NULL;
    if (peer == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    peer->choice = *choice;
    peer->socket = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        rc = err_errno("socketpair");
        goto out;
    }
    peer->socket = ends[0];
    TRY_OUT(spawn(peer, ends[1]));
    TRY_OUT(send_all(peer->socket, choice, sizeof *choice));
    *out = peer;
    peer = NULL;
out:
    if (ends[1] >= 0)
        close(ends[1]);
    bench_peer_stop(peer);
    return rc;
}

/* It holds nothing that must be put in order, and may hang. */
void bench_peer_stop(struct bench_peer *peer)
{
    if (peer == NULL)
        return;
    if (peer->process > 0) {
        kill(peer->process, SIGKILL);
        while (waitpid(peer->process, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    if (peer->socket >= 0)
        close(peer->socket);
    free(peer);
}

enum err bench_peer_prepare(struct bench_peer *peer,
                            const struct bench_product *product)
{
    double seconds;
    peer->product = *product;
    return ask(peer, 0, &seconds);
}

enum err bench_peer_time(struct bench_peer *peer, int calls, double *seconds)
{
    return ask(peer, calls, seconds);
}

const struct bench_blas_about *bench_peer_about(const struct bench_peer *peer)
{
    return &peer->about;
}
