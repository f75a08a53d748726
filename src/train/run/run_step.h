/* The step at hand: what it trains on, what it has come to, and what becomes of
 * the run after it. Begun and filled in by the loop. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/train/run/rollback.h"
#include "src/train/run/step_record.h"

struct comm_request;

/* Stops within the batch at hand (trainer_stop.c). Zeroed: nobody looks. */
struct run_stop {
    int every, looks;             /* a look each so many microsteps; how many */
    int64_t asked;                /* by the look in flight */
    struct comm_request *request; /* NULL: none */
    int agreed; /* as stop_requested(), of all ranks: the batch is given up */
};

struct run_step {
    int64_t seq_len, samples;  /* as algorithms have left them (algorithm.h) */
    const bool *left_out;      /* likewise, lent */
    bool told_empty;           /* a step without labels was warned of */
    struct step_record record; /* for listeners, and the last step's figures */
    struct step_rank *of_rank; /* [ranks] the record's */
    struct run_stop stop;

    struct rollback_cause back; /* a listener has asked in this step that the
                                   run goes back; the same on all ranks */
    int stop_signal; /* agreed by all ranks (src/job/stop.h); 0: go on */
    bool finished;   /* max_duration reached, or ended_early; agreed */
    bool incomplete; /* another attempt must finish the run, though; agreed */
};
