/* Where a run stands: what every checkpoint has of it besides tensors, and what
 * of the ledger belongs to that. Written by the loop at a step's end, and by
 * whoever restores a state. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "src/parallel/optimizer/optimizer.h"
#include "src/train/run/rollback.h"

struct run_position {
    int64_t step;            /* completed steps */
    int64_t tokens_left_out; /* of their samples', by algorithms */
    double elapsed_s; /* training time of all attempts up to the last commit */
    double lr0;       /* peak rate of the run's first start */
    double groups_lr0[OPTIMIZER_GROUPS]; /* the groups' (trainer_groups.h) */
    struct rollbacks rollbacks; /* which batches of the data are left out */
    bool ended_early; /* by a listener (ASK_FINISH), now or in an attempt that
                         had the same max_duration */

    /* Not in a checkpoint: one of the trainers before this one has asked that
     * the run goes back (trainer_data.h); the same on all ranks. */
    struct rollback_cause came_back;
    json_t *rollback_events; /* the ledger's; NULL: not read yet */
};
