/* Which hosts of a cluster are there? Slurm learns of a node that is cut off or has
 * lost its power minutes later (SlurmdTimeout), and whatever is started on it
 * meanwhile waits for it. A host that is there answers a connection at once, be it that it
 * refuses it; a firewall on the way may say nothing for it, or that there is no such
 * host. */
#pragma once

enum reach_answer {
    REACH_UNKNOWN, /* cannot be asked: no such address, no network of our own */
    REACH_HERE,
    REACH_SILENT, /* no answer, each time */
};

struct reach_host {
    const char *name, *address; /* the caller's */
    enum reach_answer answer;
};

/* Where nobody listens, so that no service has to log it. */
#define REACH_PORT 9 /* discard */

/* Asks all hosts at once, some hundred at a time, and those that do not answer again, three
 * times in all: 2.3 s for hosts that are silent. */
void reach_ask(struct reach_host *hosts, int count, int port);
