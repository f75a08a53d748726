/* How often a run may help itself: updates left out and rollbacks within the
 * last steps, as many as train.spike_budget in train.spike_window. Updates that
 * were left out are in every checkpoint (state["spike_budget"]), rollbacks in
 * state and ledger (rollback.h), so that the count is the same in all attempts. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/train/run/rollback.h"
#include "src/train/settings/train_settings.h"

struct spike_budget {
    int64_t limit, window; /* the settings', in steps */
    int64_t left_out;      /* updates, since the run began */
    int count;
    int64_t skips[TRAIN_SPIKE_BUDGET_MAX]; /* [count] completed steps before
                                              the last of them, oldest first */
};

/* What of it is used up when a step is judged after so many completed ones. */
int64_t spike_budget_used(const struct spike_budget *budget,
                          const struct rollbacks *rollbacks, int64_t step);
/* An update is left out. */
void spike_budget_skip(struct spike_budget *budget, int64_t step);
/* What was done in the window, the newest first: "left out step 7; back from
 * step 5 to 3". */
void spike_budget_text(const struct spike_budget *budget,
                       const struct rollbacks *rollbacks, int64_t step,
                       char *text, size_t size);

/* None is stored where no update was left out; limit and window stay. */
enum err spike_budget_store(const struct spike_budget *budget, json_t *state);
enum err spike_budget_restore(struct spike_budget *budget, const json_t *state);
