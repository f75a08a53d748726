/* How many threads a rank computes with: the processors of its affinity mask
 * divided by the ranks of this node that have the same mask. So a launcher that
 * binds each rank to its own cores and one that binds nothing both end up with
 * about one thread per processor. */
#pragma once

#include "src/base/err.h"
#include "src/comm/comm.h"

/* requested > 0 is taken as it is: with a warning where it is more than there
 * are processors, ERR_USAGE for more than eight times as many. Collective. */
enum err trainer_threads(struct comm *comm, int requested, int *threads);
