/* May this node be drained, and the way there: a pure function of what has been
 * asked for, what is known and what came of the last thing done.
 *
 * A node that is sick is to be drained; many at once are no faults of nodes but
 * of what they share, and a cluster that drains itself is worse than a sick node.
 * So there are limits, and to hold them with a thousand nodes at it one decides
 * at a time, under a lock that is a reservation (cluster.h):
 *
 *     node -> lock -> marks -> shares -> mark -> drain -> unlock
 *               \-> marks: latched, or refused a moment ago: end;
 *                          else a pause, and again
 *
 *   floor      of the cluster, and of each partition that has the node, at most
 *              `percent` are out of service, for whatever reason, and one of a
 *              small one
 *   storm      `storm_nodes` drains for one code within `storm_s`, also of nodes
 *              that somebody has undrained meanwhile: the code is latched, and
 *              no node is drained for it until an administrator says so
 *
 * Whatever is not known (no answer, no state) leaves the node as it is. Who asks
 * and waits is the caller: it does what drain_next() says and hands back what
 * came of it. One that is out of time ends by itself, without the lock. Every
 * way through has one DRAIN_SAY with a decision, before anything that may take
 * time afterwards. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/control/cluster.h"

struct drain_request {
    const char *node;   /* as Slurm calls it */
    const char *reason; /* "CODE text", with or without CLUSTER_OURS */
    bool enforce;       /* else a dry run: Slurm is told nothing */
    const char *wrong;  /* settings that are wrong: nothing is drained; NULL */
    int percent;        /* 1 to 100 */
    int storm_nodes;    /* 0: no storm is looked for */
    double storm_s;
    double end_s;  /* by the caller's clock; the lock lives a minute */
    uint64_t seed; /* of the pauses: another for each node */
};

enum drain_what {
    DRAIN_NODE,     /* ask for this node: .node */
    DRAIN_LOCK,     /* make the reservation `text` of this node, one minute */
    DRAIN_MARKS,    /* ask for reservations: .marks */
    DRAIN_SHARES,   /* ask for all nodes: .shares */
    DRAIN_MARK,     /* make the reservation `text`, eight years ahead */
    DRAIN_MARK_NOW, /* the same from now on, one minute */
    DRAIN_UPDATE,   /* drain this node for the reason `text` */
    DRAIN_REMOVE,   /* delete the reservation `text` */
    DRAIN_PAUSE,    /* for `seconds` */
    DRAIN_SAY,      /* write `text` into the log */
    DRAIN_END,
    /* of the way back (undrain.h) */
    DRAIN_LOOK,   /* look at the node, drained for `text`: .sound */
    DRAIN_RESUME, /* let this node serve again */
};

struct drain_action {
    enum drain_what what;
    const char
        *outcome; /* of DRAIN_SAY: a word for programs (docs/events.md) */
    char text[320];
    double seconds;
};

/* What came of an action. `answered` false: there was no answer in time, and
 * what was asked for may still happen. */
struct drain_event {
    double now_s; /* the caller's clock */
    bool answered, done;
    const char *said; /* Slurm's words where it is not done; NULL: none */
    bool sound;       /* what was looked at */
    const struct cluster_node *node;
    const struct cluster_marks *marks;
    const struct cluster_shares *shares;
};

enum drain_state {
    DRAIN_AT_BEGIN,
    DRAIN_AT_NODE,
    DRAIN_AT_LOCK,
    DRAIN_AT_OTHERS_MARKS, /* somebody else has the lock */
    DRAIN_AT_PAUSE,
    DRAIN_AT_MARKS,
    DRAIN_AT_SHARES,
    DRAIN_AT_LATCH,
    DRAIN_AT_REFUSAL,
    DRAIN_AT_MARK,
    DRAIN_AT_UPDATE,
    DRAIN_AT_SAID,
    DRAIN_AT_OLD,
    DRAIN_AT_UNLOCK,
    DRAIN_AT_END,
};

struct drain {
    struct drain_request request;
    enum drain_state state;
    char reason[160]; /* with CLUSTER_OURS */
    char code[CLUSTER_NAME_BYTES];
    struct cluster_node node;
    double time;   /* slurmctld's clock, when the lock was made */
    double lock_s; /* the caller's clock, before it was asked for */
    char refused[CLUSTER_NAME_BYTES]; /* the share of which too much is out */
    char no_lock[120]; /* why there is none, where nobody else has it; "" */
    char old[8][192];  /* marks that nobody needs any more */
    int old_count;
    int tries;
    bool locked; /* by us, as far as is known */
    bool unlock; /* what was asked for under the lock is over */
    bool out;    /* the result: the node takes no jobs, and no dry run */
};

/* The request's texts stay the caller's and must outlive the drain. */
void drain_begin(struct drain *drain, const struct drain_request *request);
/* The first call has an event with nothing but the time. */
struct drain_action drain_next(struct drain *drain,
                               const struct drain_event *event);
