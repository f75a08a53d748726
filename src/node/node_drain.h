/* Does on this node what src/control/drain.h says, by Slurm's programs. */
#pragma once

#include "src/control/drain.h"

/* Each decision is told before anything else is done. end_s is by clock_now().
 * Returns whether the node takes no jobs afterwards, and this is no dry run.
 * Slurm lets only root (or an operator) drain. */
bool node_drain(const struct drain_request *request,
                void (*say)(void *arg, const char *text), void *arg);
