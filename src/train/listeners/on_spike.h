/* Listener: steps whose loss or gradient is far beyond those before, or no
 * number, judged before the update, on all ranks alike, by global sums.
 *
 * A spike is a loss of more than train.spike_loss times the median of the last
 * ON_SPIKE_STEPS steps, and ON_SPIKE_NATS more than it, so that the small
 * losses of a fine-tuning run are not watched too closely; or a gradient norm,
 * before clipping, of more than train.spike_norm times the median. It is judged
 * from the second step of a run on. A spike becomes part of the history like
 * any other step: the median hardly moves by one, and a level that stays is no
 * spike any more after half the window. The history is in every checkpoint, so
 * that a step that is replayed is judged as it was the first time.
 *
 * What follows is train.on_spike: a warning; or the end of the run, before the
 * update (ERR_NUMERIC); or no update, which the checkpoint remembers like any
 * other step, by its effect; or a rollback (rollback.h), which begins behind the
 * data that led there, as the same steps would give the same bits.
 *
 * Of a loss or a norm that is no number (train.on_nan) nothing becomes part of
 * the history, of moments or of what else is learned from a batch.
 *
 * Updates left out and rollbacks are in the ledger, and limited
 * (spike_budget.h): a run that needs more of them ends with ERR_NUMERIC. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "src/base/err.h"

#define ON_SPIKE_STEPS 32
#define ON_SPIKE_NATS 0.5

/* Zeroed: nothing has been seen. */
struct on_spike {
    double loss[ON_SPIKE_STEPS], norm[ON_SPIKE_STEPS]; /* oldest first */
    int count;
};

/* Whether this step is a spike, and why, as a part of a sentence; it is part of
 * the history then. A factor of 0 is no bound. */
bool on_spike_judge(struct on_spike *spike, double loss_factor,
                    double norm_factor, double loss, double norm, char *text,
                    size_t size);

/* The medians of the history; how many steps it has. NaN where it is empty. */
int on_spike_medians(const struct on_spike *spike, double *loss, double *norm);

/* The history, exactly, to and from a checkpoint's state; none is stored where
 * nothing has been seen, and where none is stored nothing has. */
enum err on_spike_store(const struct on_spike *spike, json_t *state);
enum err on_spike_restore(struct on_spike *spike, const json_t *state);
