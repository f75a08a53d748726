/* Who is there: hosts that refuse a connection or take one, and one that says nothing, as
 * a machine that is off; who cannot be asked is not silent. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/job/reach.h"
#include "tests/tap.h"

#define MANY 700

/* A socket that nobody accepts from: its port; once `fill` connections wait there Linux
 * answers no other. */
static int open_port(int fill)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(fd, (struct sockaddr *)&address, size) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0 ||
        listen(fd, fill > 0 ? 0 : 100) != 0)
        return -1;
    for (int i = 0; i < fill; i++) {
        int to = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(to, (struct sockaddr *)&address, size);
        clock_sleep(0.01);
    }
    return ntohs(address.sin_port);
}

static enum reach_answer ask(const char *address, int port)
{
    struct reach_host host = { .name = "n1", .address = address };
    reach_ask(&host, 1, port);
    return host.answer;
}

int main(void)
{
    int open = open_port(0), full = open_port(4), closed = open_port(0);
    static struct reach_host many[MANY];
    tap_ok(open > 0 && full > 0 && closed > 0, "ports");
    tap_is_int(ask("127.0.0.1", open), REACH_HERE, "a port that is open");
    tap_is_int(ask("localhost", REACH_PORT), REACH_HERE, "one that refuses");
    tap_is_int(ask("nobody.invalid", open), REACH_UNKNOWN, "no such name");
    double begin_s = clock_now();
    tap_is_int(ask("127.0.0.1", full), REACH_SILENT, "one that says nothing");
    double took_s = clock_now() - begin_s;
    tap_ok(took_s >= 2.3, "three times: %.2f s", took_s);
    for (int i = 0; i < MANY; i++)
        many[i] = (struct reach_host){ .name = "n", .address = "127.0.0.1" };
    reach_ask(many, MANY, REACH_PORT);
    int here = 0;
    for (int i = 0; i < MANY; i++)
        here += many[i].answer == REACH_HERE;
    tap_is_int(here, MANY, "many");
    reach_ask(many, 0, REACH_PORT);
    return tap_done();
}
