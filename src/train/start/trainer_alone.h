/* Work that rank 0 does for all, which may take longer than any deadline of a
 * wait. While a thread of rank 0 is at it, the others hear several times per
 * deadline that rank 0 lives: so they wait as long as it does, and name it when
 * it has stopped. */
#pragma once

#include "src/base/err.h"
#include "src/comm/comm.h"

/* All ranks return the code of rank 0's work(arg). It must not use comm, and
 * what belongs to a thread, as the use of a device, it has to do itself.
 * Collective. */
enum err trainer_alone(struct comm *comm, enum err (*work)(void *arg),
                       void *arg);
