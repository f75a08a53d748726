/* The results of an evaluation, as JSON and as a table.
 *
 *   {"tasks": [{"task": "piqa", "kind": "multiple_choice", "shots": 0,
 *               "examples": 100, "right": 62, "accuracy": 0.62}, ...],
 *    "perplexity": [{"dataset": PATH, "samples": N, "tokens": N, "nll": X,
 *                    "nll_per_token": X, "perplexity": X, "bytes": N,
 *                    "nll_per_byte": X}, ...],
 *    "gauntlet": {"weighting": "EQUAL", "categories": [...],
 *                 "averages": [...]}}
 *
 * A task with categories lists them, too. "shots" are those that are shown, of
 * the category that has most: as many as were asked for, or as there are. What is not known, or left out
 * because something is missing, is null. Numbers are those of the evaluation
 * alone, no times, so that the same evaluation gives the same bytes. */
#pragma once

#include <jansson.h>
#include <stdio.h>

#include "src/eval/gauntlet.h"
#include "src/eval/icl_set.h"
#include "src/eval/perplexity.h"

/* All lent. */
struct eval_report {
    const struct icl_task *tasks;
    int task_count;
    const struct icl_set *set; /* NULL: there are no tasks */
    const char *const *datasets;
    const struct perplexity *perplexities; /* of each data set */
    int dataset_count;
    const struct gauntlet *gauntlet; /* scored; NULL: none */
};

/* A new object; NULL: out of memory. */
json_t *eval_report_json(const struct eval_report *report);
/* One task: an element of "tasks". */
json_t *eval_report_task(const struct eval_report *report, int task);
json_t *eval_report_gauntlet(const struct gauntlet *gauntlet);

void eval_report_print(const struct eval_report *report, FILE *out);
