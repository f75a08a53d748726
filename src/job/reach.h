/* Which hosts of a cluster are there? Slurm learns of a node that is cut off or has
 * lost its power minutes later (SlurmdTimeout), and whatever is started on it
 * meanwhile waits for it. A host that is there answers a connection at once, be it that it
 * refuses it. */
#pragma once

#include <stdbool.h>

struct reach_host {
    const char *name, *address; /* the caller's */
    /* no answer in time, each time: neither a connection nor a refusal. Not where this
     * machine cannot ask: no such address, no network of its own, no descriptors. */
    bool silent;
};

/* Where nobody listens, so that no service has to log it. */
#define REACH_PORT 9 /* discard */

/* Asks all hosts at once, some hundred at a time, and whoever does not answer
 * `tries` times, `each_s` seconds each. */
void reach_ask(struct reach_host *hosts, int count, int port, int tries,
               double each_s);
