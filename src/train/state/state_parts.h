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
