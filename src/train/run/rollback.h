/* The rollbacks of a run, and which batches of its data they leave out.
 *
 * A rollback takes a run from a step that was judged, after `from` completed
 * ones, back to `to` completed steps, and the batches that the steps between
 * have read, that of the judged one among them, are left out for good. So step
 * k reads the k-th batch, counted from 0, of those that are not left out: what
 * went before a rollback's step stays as it was, and a run that begins again at
 * an older checkpoint reads what it would have read without that.
 *
 * Rollbacks are numbered by their place in the list, from 1. A checkpoint's
 * state has those before it (state["rollbacks"]), the ledger has all of them
 * (event "rollback"), with the same members; both together are the list. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"

struct rollback {
    int64_t from, to;       /* completed steps, 0 <= to <= from */
    int64_t first, batches; /* of the data: left out, batches > 0 */
};

/* Zeroed: none. */
struct rollbacks {
    struct rollback *list; /* [count] in the order in which they happened */
    struct rollback *gaps; /* [gap_count] of `first` and `batches` alone: what
                              the list leaves out, ascending and apart */
    int count, gap_count, list_room, gap_room;
};

/* Why a run is to go back, or an update is left out. */
struct rollback_cause {
    bool asked;
    const char *kind; /* "spike" or "nan" */
    int64_t from;     /* completed steps before the one that was judged */
    double loss, grad_norm;
    char text[400]; /* a part of a sentence */
};

/* As members of the ledger's events: run_uuid, kind, step (counted from 1),
 * loss, grad_norm, reason. NULL: out of memory. */
json_t *rollback_cause_json(const struct rollback_cause *cause,
                            const char *run_uuid);

void rollback_free(struct rollbacks *rollbacks);

/* The batch of the data that a step reads after so many completed ones. */
int64_t rollback_batch(const struct rollbacks *rollbacks, int64_t step);
/* The first one behind the batch that the step before it reads; 0 for step 0.
 * Other data that begin at a step begin there, whatever is left out from that
 * step on, now or later. */
int64_t rollback_behind(const struct rollbacks *rollbacks, int64_t step);
/* Batches left out before the one that a step reads. */
int64_t rollback_left_out(const struct rollbacks *rollbacks, int64_t step);

/* What going back from one number of completed steps to another leaves out. */
struct rollback rollback_make(const struct rollbacks *rollbacks, int64_t from,
                              int64_t to);
/* ERR_MEMORY. */
enum err rollback_add(struct rollbacks *rollbacks,
                      const struct rollback *rollback);

/* As JSON, and back: ERR_CHECKPOINT where it is none. */
json_t *rollback_json(const struct rollback *rollback);

/* None is stored where there was none. */
enum err rollback_store(const struct rollbacks *rollbacks, json_t *state);
/* The list of a state (NULL: none yet) at `step`, and behind it those of this
 * run in the ledger, an array of its events, that are numbered higher.
 * ERR_CHECKPOINT: the checkpoint is of steps that a later rollback has given up,
 * or one of both is damaged. */
enum err rollback_restore(struct rollbacks *rollbacks, int64_t step,
                          const json_t *state, const json_t *ledger,
                          const char *run_uuid);
