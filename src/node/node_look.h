/* A look at the node, by the check beside this program (node-health PHASE) or by
 * the probes of jobs (TESSERA_PROBES); both are children with a limit. What was
 * found is in node->state, reason, codes and bad, and what is not ok is said. */
#pragma once

#include "src/node/node_known.h"

/* What is said of what was bad, with its reason, and is not any more. */
#define NODE_NOT_TWICE                                                         \
    "bad at first, but not at a second look: left as it is: %s"

/* What is bad is bad again after a pause, and what users have left does not
 * count. */
void node_look(struct node *node, int seconds);
/* By these probes, where nobody else computes on the node; NODE_UNKNOWN where they
 * cannot run. What root would run must be root's alone. */
void node_probe(struct node *node, const char *checks, double seconds);
