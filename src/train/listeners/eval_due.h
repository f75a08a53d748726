/* When the model is evaluated: what the listeners on_eval.c and on_tasks.c share.
 * Every interval of theirs and at the end, each step once in all attempts: what
 * a stop signal has kept from being done after the last step is made up for by
 * the next attempt. */
#pragma once

#include <stdbool.h>

#include "src/train/run/run.h"

#define EVAL_DUE_FILE "eval.jsonl" /* in the run directory */

struct eval_due {
    struct run *run;
    enum ask ask; /* to evaluate */
    struct duration interval;
    const char *before, *behind; /* a step's number in a line of the file */
    /* Evaluates; *done: to the end, so that there is a line. */
    enum err (*evaluate)(void *self, bool *done);
    void *self;
    double since;      /* rank 0's clock when the interval began */
    int64_t last_step; /* evaluated last, in any attempt; -1: never */
};

/* The events after_load, fit_start, batch_ask, batch_end and fit_end.
 * Collective. */
enum err eval_due_handle(struct eval_due *due, enum event event,
                         const struct step_record *step, struct asks *asks);
