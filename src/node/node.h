/* What root does on a node before a job begins on it, after one has left it, and
 * every few minutes between: Slurm's prolog, epilog and HealthCheckProgram ("quick").
 * It looks, has looked again what is bad, cleans what
 * users have left, and has a node that is certainly sick drained.
 *
 * slurmd drains a node whose prolog or epilog fails or takes more than a minute,
 * so a mistake here would empty a cluster. Whatever may hang (a file system,
 * slurmctld, a GPU, syslog) is therefore asked by a child (node_child.h) that is
 * left behind when it does not answer; all of it together has NODE_END_S; and all
 * that is not known for certain leaves the node as it is, and is said. This process
 * itself opens only files of /proc and of /run.
 *
 * Nothing that a user can write decides about a node: a verdict of theirs says
 * which of our own probes to run, and what is theirs is read and removed with
 * their rights. */
#pragma once

#include "src/node/node_known.h"

/* From the environment that slurmd gives, and the settings. False, and said: there
 * is nothing to do. `phase` and `settings` stay the caller's. */
bool node_begin(struct node *node, const char *phase, const char *settings);
/* Whether no other copy of "quick" runs for this node; this one then keeps them away
 * as long as it lives. slurmd starts the next one whether or not the last has ended. */
bool node_quick_alone(void);
/* The exit status: 1 where the prolog's node takes no jobs now, else 0; of what an
 * administrator asks (node_admin.h) as that says. */
int node_act(struct node *node);
/* Whether there is such a phase. */
bool node_known_act(const char *name);
