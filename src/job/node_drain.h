/* Does on this node what src/control/drain.h says, by Slurm's programs. */
#pragma once

#include <stdio.h>

#include "src/control/drain.h"

/* Each decision is a line of `out`, flushed before anything else is done.
 * end_s is by clock_now(). Returns whether the node takes no jobs afterwards,
 * and this is no dry run. Slurm lets only root (or an operator) drain. */
bool node_drain(const struct drain_request *request, FILE *out);
