/* A stop amid a step: between the microsteps of a batch the ranks agree to give
 * it up, so that a run whose steps take long is saved soon after a signal, with
 * the state of its last finished step.
 *
 * They look about once a second, by the time of the step before, which all ranks
 * know: a step of less than a second is finished, and so is any where ranks
 * compute together (experts or sequences that are shared), and where there are
 * plug-ins, which have heard of the step already. On several ranks what one look
 * has asked the next one hears, so that nobody waits. A device's microsteps are
 * enqueued faster than they are computed: there it is the batch's end. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"

struct comm_request;
struct trainer;

/* Stops within the batch at hand. Zeroed: nobody looks. */
struct trainer_stop {
    int every, looks;             /* a look each so many microsteps; how many */
    int64_t asked;                /* by the look in flight */
    struct comm_request *request; /* NULL: none */
    int agreed; /* as stop_requested(), of all ranks: the batch is given up */
};

/* The batch that follows may be given up, or not. */
void trainer_stop_begin(struct trainer *trainer, bool may);
/* Before each microstep, and after the last. Collective. */
enum err trainer_stop_look(struct trainer *trainer, int microstep);
enum err trainer_stop_end(struct trainer *trainer);
