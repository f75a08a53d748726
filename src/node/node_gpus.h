/* How many GPUs this node must have, to tell one that is not even on the bus any
 * more: the most that the driver has ever had here (/var/lib/tessera/gpus), but no
 * more than Slurm's Gres, which is asked for this node alone and not twice a day
 * (/run/tessera/gpus). Where the driver itself is gone that holds as well. */
#pragma once

#include "src/node/node_known.h"

/* Sets node->gpus, 0: not known. More in Gres than ever were is said. */
void node_gpus_find(struct node *node);
/* GPUs in sinfo's %G; what looks like a slice of MIG is none. Pure. */
int node_gpus_of_gres(const char *gres);
