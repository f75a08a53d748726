/* What the runs of a sweep have come to: their quality, its cost, and which of
 * them nobody beats in both. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "src/cmd/sweep_plan.h"

enum sweep_state {
    SWEEP_ABSENT,
    SWEEP_BEGUN,
    SWEEP_FAILED,
    SWEEP_OTHER, /* of other settings, so there are no figures */
    SWEEP_FINISHED
};

struct sweep_result {
    enum sweep_state state;
    char reason[160]; /* of a failure */
    int64_t steps;
    double quality;   /* the best; NaN: none */
    double seconds;   /* in attempts */
    double to_target; /* seconds in attempts; NaN: not reached, or not known */
    double energy_j;  /* 0: not told */
    bool front; /* no other is as good at less cost, or better at the same */
};

/* From what is in the run's directory. ERR_USAGE: the run is finished, and has
 * nothing that is called as the metric is. */
enum err sweep_result(const struct sweep *sweep, int64_t number,
                      struct sweep_result *out);

/* Sets `front` of all: quality against seconds. */
void sweep_front(const struct sweep *sweep, struct sweep_result *results);

/* As a table, the best first. */
enum err sweep_print(const struct sweep *sweep,
                     const struct sweep_result *results, FILE *out);
/* As JSON; the caller sees to errors of the file. */
enum err sweep_json(const struct sweep *sweep,
                    const struct sweep_result *results, FILE *out);
