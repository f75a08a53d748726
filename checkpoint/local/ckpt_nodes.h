/* The nodes of a communicator, in the order of their lowest ranks, and the
 * place of every rank on its node. Computed by each rank alone, the same on
 * all. */
#pragma once

#include <stdbool.h>

#include "src/base/err.h"
#include "src/comm/comm.h"

struct ckpt_nodes {
    int count;   /* nodes */
    int *node;   /* [ranks] */
    int *place;  /* [ranks], from 0 */
    int *lowest; /* [nodes]: rank */
    int *ranks;  /* [nodes]: how many */
};

/* To be freed after an error too. */
enum err ckpt_nodes_create(const struct comm *comm, struct ckpt_nodes *out);
void ckpt_nodes_free(struct ckpt_nodes *nodes);

/* The rank at this place of a node, counted round where it has fewer. */
int ckpt_nodes_rank_at(const struct ckpt_nodes *nodes, int node, int place);

/* Whether this rank is the lowest of its node: it does what is done once. */
bool ckpt_nodes_leads(const struct comm *comm);
