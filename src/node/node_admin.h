/* What an administrator asks of a node, as root on it: node-health --act recheck,
 * undrain or selftest. What is found is said on stdout, decisions as always. */
#pragma once

#include "src/node/node_known.h"

/* Looks twice at a node that we have drained, also with the probe that it was
 * drained for, and lets it serve again if both found it sound (`undrain`), or says
 * that it would. Returns the exit status: 0 where it serves now. */
int node_recheck(struct node *node, bool undrain);
/* Tries all that prolog and epilog need: a line each. The exit status: 1 where
 * something is wrong. */
int node_selftest(struct node *node);
