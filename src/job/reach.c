/* Asks hosts whether they are there, by TCP connections that end as soon as they are
 * answered. Of an address that the name has several of the first counts. */
#include "src/job/reach.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/clock.h"

#define AT_ONCE 256

/* A connection under way, -1: the host has answered, or cannot be asked. */
static int begin(const struct reach_host *host, int port)
{
    const struct addrinfo wanted = { .ai_family = AF_UNSPEC,
                                     .ai_socktype = SOCK_STREAM,
                                     .ai_flags = AI_NUMERICSERV };
    struct addrinfo *found = NULL;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(host->address, service, &wanted, &found) != 0)
        return -1;
    int fd =
        socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool waits = fd >= 0 &&
                 connect(fd, found->ai_addr, found->ai_addrlen) != 0 &&
                 errno == EINPROGRESS;
    freeaddrinfo(found);
    if (fd >= 0 && !waits)
        close(fd);
    return waits ? fd : -1;
}

/* What has come of a connection: no word from the host, or from a router that it is
 * not there, is silence. */
static bool is_silent(int fd)
{
    int error = 0;
    socklen_t size = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 &&
           (error == ETIMEDOUT || error == EHOSTUNREACH || error == EHOSTDOWN);
}

static void ask_some(struct reach_host **hosts, int count, int port,
                     double each_s)
{
    struct pollfd waits[AT_ONCE];
    double end_s = clock_now() + each_s, left_s;
    int left = 0;
    assert(count <= AT_ONCE);
    for (int i = 0; i < count; i++) {
        waits[i] =
            (struct pollfd){ .fd = begin(hosts[i], port), .events = POLLOUT };
        hosts[i]->silent = waits[i].fd >= 0;
        left += waits[i].fd >= 0;
    }
    while (left > 0 && (left_s = end_s - clock_now()) > 0) {
        if (poll(waits, (nfds_t)count, (int)(left_s * 1e3) + 1) <= 0)
            continue;
        for (int i = 0; i < count; i++)
            if (waits[i].fd >= 0 && waits[i].revents != 0) {
                hosts[i]->silent = is_silent(waits[i].fd);
                close(waits[i].fd);
                waits[i].fd = -1;
                left--;
            }
    }
    for (int i = 0; i < count; i++)
        if (waits[i].fd >= 0)
            close(waits[i].fd);
}

void reach_ask(struct reach_host *hosts, int count, int port, int tries,
               double each_s)
{
    for (int i = 0; i < count; i++)
        hosts[i].silent = true;
    for (int t = 0; t < tries; t++)
        for (int next = 0; next < count;) {
            struct reach_host *some[AT_ONCE];
            int n = 0;
            for (; next < count && n < AT_ONCE; next++)
                if (hosts[next].silent)
                    some[n++] = &hosts[next];
            ask_some(some, n, port, each_s);
        }
}
