/* A run on this rank, in one attempt: its settings and five parts with an owner
 * each. Who needs one of them includes its header, and takes it. What moves a
 * run is above: src/train/start makes it, src/train/loop trains it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/base/units.h"
#include "src/comm/comm.h"
#include "src/train/run/algorithm.h"
#include "src/train/run/events.h"
#include "src/train/run/run_engine.h"
#include "src/train/run/run_inputs.h"
#include "src/train/run/run_position.h"
#include "src/train/run/run_step.h"
#include "src/train/settings/train_settings.h"
#include "src/train/settings/trainer_schedule.h"

struct lock;
struct timeline;
struct trainer_profile;

struct run {
    struct train_settings settings;
    struct comm *comm;
    int rank, ranks;
    int attempt;       /* 1 for the run's first start */
    char uuid[37];     /* of the run, from its first start */
    struct lock *lock; /* of the run, lent; NULL: not rank 0, or none */

    struct trainer_schedule plan; /* the settings' durations in steps */
    struct run_position position;
    struct run_inputs inputs;
    struct run_engine engine;
    struct run_step now;

    struct algorithms algorithms;
    struct events events;
    struct trainer_profile *profile; /* NULL: none is asked for */
    struct timeline *timeline;       /* the profile's; NULL likewise */
};

/* True when `interval`, in steps or samples, ends with the last step; intervals
 * in sec and "auto" are never due here (see enum ask). */
bool run_due(const struct run *run, struct duration interval);

/* A setting's duration in steps; ERR_USAGE names it. */
enum err run_steps(const struct run *run, const char *key,
                   struct duration duration, int64_t *steps);

/* Tokens (positions) trained so far, without those that algorithms left out. */
int64_t run_tokens(const struct run *run);

/* Bring in the weights that are to be evaluated, and bring back those that
 * train: around everything that reads weights and does not train, between
 * steps. Nothing happens where no algorithm has others. Collective. */
enum err run_swap(const struct run *run);

/* A new reference to `value` becomes the state's; NULL: there was no memory. */
enum err run_put(json_t *state, const char *key, json_t *value);

/* --- for algorithms --- */

/* In create: a duration in steps, which a resume keeps (algorithms_state.h):
 * *steps, a part of self, holds from `begin` on. ERR_USAGE names the key. */
enum err run_algorithm_steps(struct run *run, const void *self, const char *key,
                             struct duration duration, int64_t *steps);

/* kept = keep * kept + (1 - keep) * weights, of the replica's tensor `kept`. */
enum err run_average(struct run *run, int kept, double keep);
