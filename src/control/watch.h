/* Is an attempt alive? A pure function of what is seen of it at each tick.
 *
 * Steps are the only sign of life that costs nobody anything, and silence the only
 * suspicion. Slurm, which knows of dead nodes, is asked once a minute while steps
 * come as they came before; else soon, and the longer nothing has come the more
 * seldom: a death that Slurm learns of is heard of an eighth of the silence later.
 * A start is silent when it takes twice as long as those before it.
 * A tick that comes late means that who watches stood still, suspended by an
 * administrator or waiting for storage, and the ranks with it: that time does not
 * count. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct watch {
    double start_s, hang_s; /* how long there may be no start, no step */
    double tick_s;          /* between two looks, as they are meant */
    double took_s;          /* the longest start so far; 0: there was none */
    /* state, zeros at first */
    bool begun, started;
    double tick_at_s, asked_at_s;
    double quiet_s, gap_s; /* since the last step; between the last two */
    uint64_t beat;
    bool beaten;    /* there was one */
    double apart_s; /* since the ranks have lost each other */
    double still_s; /* stood still for, up to this tick; 0: it did not */
};

struct watch_seen {
    double now_s;
    uint64_t beat; /* another one with each step */
    bool started;  /* the training has opened its run */
    bool apart;    /* its ranks have lost each other, and leave */
};

enum watch_what {
    WATCH_ON,
    WATCH_ASK,   /* Slurm, for the nodes that the job has */
    WATCH_START, /* end it: it did not start in time */
    WATCH_HANG,  /* end it: no step came in time */
    WATCH_APART, /* end it: its ranks have left, and a node that is gone keeps it */
};

/* How long a start may take, at most `most_s`: four times as long as the longest of its
 * job so far, `took_s` (0: there was none), and some seconds for a spare that begins cold;
 * twice that behind each that has failed since. */
double watch_start_s(double most_s, double took_s, int failed);

enum watch_what watch_tick(struct watch *watch, const struct watch_seen *seen);
