/* Algorithms: methods that change how a run trains, each a file of its own, a
 * group of settings in algorithm_settings.h and, of that, a row of the table.
 * A run has those of its setting `algorithms`, in their order:
 *
 *   before_batch      what the batch is computed of
 *   after_gradient    its gradient is summed; it may be asked for once more,
 *                     with other weights
 *   change_gradient   after train.clip_norm, unless one of them clips
 *   after_update      the weights are new
 *   swap              other weights come in for an evaluation, or go again
 *
 * What one does is a function of the settings, the seed, the step and the place
 * of elements and samples alone, so that a run's bits do not depend on ranks,
 * strategy or restarts. All of it happens on all ranks together, and what one
 * keeps between steps is in the checkpoint: tensors as the replica's
 * (replica.h: kept), and some JSON (algorithms_state.h). The list itself, with
 * all settings, is one that stays (start_fixed.c). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/base/units.h"
#include "src/parallel/replica.h"
#include "src/train/settings/algorithm_settings.h"

struct train_settings;
struct run;

/* A step on its way through the algorithms. */
struct algorithm_step {
    int64_t seq_len; /* tokens of each sample that are trained on, its first
                        ones: before_batch may lower it */
    const bool *left_out; /* [train.global_batch] of its samples, lent: what is
                             not trained on; NULL: none. before_batch may set
                             it, with the next */
    int64_t samples;      /* that are left */
    bool again;   /* after_gradient: the batch is to be computed again, now
                        that weights have changed */
    double scale; /* the gradient times this is the mean's */
    double norm;  /* of that, unless stale: */
    bool stale;   /* the gradient's elements have changed since */
};

struct algorithm_ops {
    size_t bytes; /* of its self, which comes zeroed; 0: NULL */
    /* Settings that don't go together with others: ERR_USAGE. NULL, as all that
     * follow: nothing. */
    enum err (*check)(const void *settings, const struct train_settings *all);
    /* ERR_USAGE: somebody has asked for the same. */
    enum err (*needs)(const void *settings, struct algorithm_needs *needs);
    /* The trainer has its parts; settings are lent for good. Fails on one rank
     * alone. */
    enum err (*create)(void *self, const void *settings, struct run *run);
    void (*destroy)(void *self);
    /* The run is about to begin or go on: the steps of run_algorithm_steps() are
     * those that hold. Fails on one rank alone. */
    enum err (*begin)(void *self);
    /* All collective. The steps completed are run->position.step; in after_update
     * the one at hand is among them. */
    enum err (*before_batch)(void *self, struct algorithm_step *step);
    enum err (*after_gradient)(void *self, struct algorithm_step *step);
    /* After the second gradient, where it was asked for. */
    enum err (*after_again)(void *self);
    enum err (*change_gradient)(void *self, struct algorithm_step *step);
    enum err (*after_update)(void *self);
    enum err (*swap)(void *self);
    /* Its part of a checkpoint's state, and back. "weights": true there says
     * that its kept tensor, which has its name, is a model's weights
     * (weights.h). */
    enum err (*store)(const void *self, json_t *state);
    enum err (*restore)(void *self, const json_t *state);
};

#define ALGORITHM_OF(type) .bytes = sizeof(type)
#define ALGORITHMS_MAX 16
#define ALGORITHM_TIMES 4

/* A duration of the settings as steps, which is where the algorithm keeps it.
 */
struct algorithm_time {
    const char *key;
    struct duration duration;
    int64_t *steps;
};

/* Those of a run, in order. Zeroed: none. */
struct algorithms {
    struct algorithm {
        const char *name;
        const struct algorithm_ops *ops;
        void *settings;
        void *self;
        struct algorithm_time times[ALGORITHM_TIMES];
        int time_count;
    } list[ALGORITHMS_MAX];
    int count;
};

/* Whether settings that were loaded go together, and what they ask
 * for. The error names the algorithm. */
enum err algorithm_check(const struct train_settings *settings);
enum err algorithm_needs(const struct train_settings *settings,
                         struct algorithm_needs *out);

/* Those of the settings, for the run. May fail on one rank alone. */
enum err algorithms_create(struct algorithms *algorithms,
                           const struct train_settings *settings,
                           struct run *run);
/* After all of the state is there, or none; may fail on one rank alone. */
enum err algorithms_begin(const struct algorithms *algorithms);
void algorithms_destroy(struct algorithms *algorithms);

/* The calls above, of all in order; after_again in the opposite one. Failures
 * are prefixed by the name. */
enum err algorithms_before_batch(const struct algorithms *algorithms,
                                 struct algorithm_step *step);
enum err algorithms_after_gradient(const struct algorithms *algorithms,
                                   struct algorithm_step *step);
enum err algorithms_after_again(const struct algorithms *algorithms);
enum err algorithms_change_gradient(const struct algorithms *algorithms,
                                    struct algorithm_step *step);
enum err algorithms_after_update(const struct algorithms *algorithms);
enum err algorithms_swap(const struct algorithms *algorithms);

/* --- for algorithms --- */

/* Ask for a tensor beside the moments. mean: of weights, for evaluations, which one
 * algorithm may have and checkpoints hold. */
enum err algorithm_keep(struct algorithm_needs *needs, const char *name,
                        bool mean);
/* Its number when the replica is there. */
int algorithm_kept(const struct algorithm_needs *needs, const char *name);

/* rc, whose text says whose it is. */
enum err algorithm_named(const struct algorithm *algorithm, enum err rc);

/* step->norm of the gradient as it is. Collective. */
enum err algorithm_norm(struct replica *replica, struct algorithm_step *step);
