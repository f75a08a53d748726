/* A run's position, what must not change in it and what its parts keep, as a
 * checkpoint's manifest has them. One table lists the parts: whoever adds one
 * adds its row, and the state is stored, judged, restored and taken over from
 * another run by that row. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/train/run/run.h"

struct state_run {
    struct run *run;
    json_t *arithmetics; /* all that the run has computed with, in order; lent
                            to store, a new reference after restore */
    int64_t step;        /* of the state that is judged or restored */
    const char *other;   /* folder of another run's checkpoint; NULL: its own */
};

/* A state that has nothing of a part which this run would store. */
enum state_absent {
    STATE_ANEW,   /* the part is as the start has made it */
    STATE_REFUSED /* ERR_CHECKPOINT */
};

struct state_part {
    const char *name; /* its key in the state, where it has one of its own */
    enum state_absent absent;
    enum err (*store)(const struct state_run *its, json_t *state);
    /* Nothing of the run has changed yet but rollbacks. NULL: any will do. */
    enum err (*accept)(struct state_run *its, const json_t *state);
    enum err (*restore)(struct state_run *its,
                        const json_t *state); /* or NULL */
    /* From another run's state, accepted without the parts that begin anew. */
    enum err (*take)(struct state_run *its, const json_t *state); /* NULL: so */
};

/* In the order in which all is done. */
const struct state_part *state_parts(int *count);

/* `out` is a new reference. */
enum err state_parts_store(const struct state_run *its, json_t **out);

/* May the run, `arg`, a struct state_run, go on from there? As
 * ckpt_load_options.accept; the trainer has its rollbacks then. */
enum err state_parts_accept(void *arg, int64_t step, const json_t *state);

/* It goes on from there: by restore, or where `other` is set by take. */
enum err state_parts_restore(struct state_run *its, int64_t step,
                             const json_t *state);

/* --- the part "about" (on_checkpoint_about.c) --- */

/* What the tensors of a checkpoint are, for who reads it without Tessera: in
 * every state as "about" (checkpoint/files/ckpt_view_about.h says how it is
 * read).
 *
 *   kind        "weight", "first moment", "second moment", "of an algorithm"
 *   trained_in  of weights: train.precision; they are stored in full
 *   role        what it does in the model
 *   axes        what each dimension counts, by the names of the settings */

/* NULL: out of memory. */
json_t *on_checkpoint_about(const struct run *run);
/* Its member "tensors": roles and axes of a model's parameters. */
json_t *on_checkpoint_about_params(const struct model_config *config,
                                   const struct params *params);

/* --- the part "moments" (trainer_moments.c) --- */

/* When the moments of the optimizer began: with the run, or where
 * checkpoint.load_ignore left them out of another run's state, in its middle.
 * What corrects them for having begun at 0 (AdamW) counts from there. In a
 * checkpoint's state "moments_began" has the tensors of moments that did not
 * begin with the run, and the steps that were completed then:
 *
 *   {"optimizer/exp_avg/lm_head.weight": 60, ...}
 */

/* To and from the state of a checkpoint of this step. ERR_CHECKPOINT: it says
 * something else, and then nothing has changed. */
enum err trainer_moments_store(const struct run *run, json_t *state);
enum err trainer_moments_restore(struct run *run, int64_t step,
                                 const json_t *state);

/* Those that match a glob begin after this step. How many tensors' these are. */
int trainer_moments_begin(struct run *run, const char *ignore, int64_t step);
