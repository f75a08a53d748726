/* Asks hosts whether they are there, by TCP connections that end as soon as they are
 * answered. Of an address that the name has several of the first counts. */
#include "src/job/reach.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/clock.h"

#define AT_ONCE 256

/* How long each time has. What has to be asked for a host's place in the network is sent anew
 * after a second, as is what gets lost on a busy one. */
static const double each_s[] = { 0.3, 1.0, 1.0 };
#define TIMES (int)(sizeof each_s / sizeof each_s[0])

static enum reach_answer answer_of(int error)
{
    return error == 0 || error == ECONNREFUSED ? REACH_HERE
           : error == ETIMEDOUT || error == EHOSTUNREACH || error == EHOSTDOWN
               ? REACH_SILENT
               : REACH_UNKNOWN;
}

/* A connection under way, -1: what comes of it is known. */
static int begin(struct reach_host *host, int port)
{
    const struct addrinfo wanted = { .ai_family = AF_UNSPEC,
                                     .ai_socktype = SOCK_STREAM,
                                     .ai_flags = AI_NUMERICSERV };
    struct addrinfo *found = NULL;
    char service[16];
    host->answer = REACH_UNKNOWN;
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(host->address, service, &wanted, &found) != 0)
        return -1;
    int fd =
        socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        bool done = connect(fd, found->ai_addr, found->ai_addrlen) == 0;
        host->answer = done                   ? REACH_HERE
                       : errno == EINPROGRESS ? REACH_SILENT
                                              : answer_of(errno);
        if (done || errno != EINPROGRESS) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    return fd;
}

/* What has come of a connection. */
static void end(struct reach_host *host, struct pollfd *wait)
{
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(wait->fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0)
        host->answer = answer_of(error);
    close(wait->fd);
    wait->fd = -1;
}

/* Names may take their time: that for answers begins behind the last. */
static void ask_some(struct reach_host **hosts, int count, int port,
                     double patience_s)
{
    struct pollfd waits[AT_ONCE];
    int left = 0;
    assert(count <= AT_ONCE);
    for (int i = 0; i < count; i++) {
        waits[i] =
            (struct pollfd){ .fd = begin(hosts[i], port), .events = POLLOUT };
        left += waits[i].fd >= 0;
    }
    double end_s = clock_now() + patience_s, left_s = patience_s;
    for (; left > 0 && left_s > 0; left_s = end_s - clock_now()) {
        if (poll(waits, (nfds_t)count, (int)(left_s * 1e3) + 1) <= 0)
            continue;
        for (int i = 0; i < count; i++)
            if (waits[i].fd >= 0 && waits[i].revents != 0) {
                end(hosts[i], &waits[i]);
                left--;
            }
    }
    for (int i = 0; i < count; i++)
        if (waits[i].fd >= 0)
            close(waits[i].fd);
}

void reach_ask(struct reach_host *hosts, int count, int port)
{
    for (int i = 0; i < count; i++)
        hosts[i].answer = REACH_SILENT;
    for (int t = 0; t < TIMES; t++) {
        double begin_s = clock_now();
        int silent = 0;
        for (int next = 0; next < count;) {
            struct reach_host *some[AT_ONCE];
            int n = 0;
            for (; next < count && n < AT_ONCE; next++)
                if (hosts[next].answer == REACH_SILENT)
                    some[n++] = &hosts[next];
            ask_some(some, n, port, each_s[t]);
        }
        for (int i = 0; i < count; i++)
            silent += hosts[i].answer == REACH_SILENT;
        /* a router may say at once that there is no such host */
        double left_s = begin_s + each_s[t] - clock_now();
        if (silent > 0 && left_s > 0)
            clock_sleep(left_s);
    }
}
