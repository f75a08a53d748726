/* Which ranks share a node: what an exchange in levels is planned by
 * (src/parallel/route.h). Ranks are node-major, whatever the launcher did
 * (comm_create()): those of a node are neighbours, and a rank's place is how many
 * of its node's come before it. */
#pragma once

#include "src/base/err.h"

struct comm;

struct topology {
    int ranks, nodes;
    int least, most; /* ranks of a node */
    int *first;      /* [nodes + 1] rank of each node, and behind the last */
    int *node;       /* [ranks] */
};

/* By the hosts, which every rank knows of all: the same everywhere, without a
 * message. */
enum err topology_create(const struct comm *comm, struct topology **out);
/* counts[nodes]: ranks of each, at least 1, together at most INT_MAX. */
enum err topology_describe(const int *counts, int nodes, struct topology **out);
/* Nodes of `each` ranks, a divisor of them. */
enum err topology_alike(int ranks, int each, struct topology **out);
/* The first rank of the first group of `degree` neighbours that is on more nodes than so
 * many ranks must be; -1: there is none. */
int topology_torn(const struct topology *topology, int degree);
/* The most neighbours of which no group is on two nodes: they divide the ranks of every
 * node. */
int topology_group(const struct topology *topology);
/* NULL is fine. */
void topology_destroy(struct topology *topology);

static inline int topology_place(const struct topology *topology, int rank)
{
    return rank - topology->first[topology->node[rank]];
}

/* Ranks of a node where several nodes have as many each; else 1. */
static inline int topology_row(const struct topology *topology)
{
    return topology->nodes > 1 && topology->least == topology->most
               ? topology->most
               : 1;
}

static inline int topology_count(const struct topology *topology, int node)
{
    return topology->first[node + 1] - topology->first[node];
}
