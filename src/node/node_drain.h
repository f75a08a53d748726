/* Does on this node what src/control/drain.h and undrain.h say, by Slurm's
 * programs, as root: Slurm lets nobody else but an operator. */
#pragma once

#include "src/control/drain.h"
#include "src/control/undrain.h"

struct node_drain_calls {
    /* each decision, before anything else is done */
    void (*say)(void *arg, const char *outcome, const char *text);
    /* a look at a node that was drained for that; of an undrain only */
    bool (*sound)(void *arg, const char *reason);
    void *arg;
};

/* end_s is by clock_now(). Returns whether the node takes no jobs afterwards, and
 * this is no dry run. */
bool node_drain(const struct drain_request *request,
                const struct node_drain_calls *calls);
/* Returns whether the node serves again. */
bool node_undrain(const struct undrain_request *request, double end_s,
                  const struct node_drain_calls *calls);
