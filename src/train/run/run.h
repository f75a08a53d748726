/* A run on this rank, in one attempt: its settings and four parts. What moves a
 * run is above: src/train/start makes it, src/train/loop trains it. Who includes
 * this has what the parts consist of: settings, replica, model, listeners and
 * algorithms. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "src/base/err.h"
#include "src/base/units.h"
#include "src/comm/comm.h"
#include "src/model/model.h"
#include "src/parallel/replica.h"
#include "src/train/plan/train_memory.h"
#include "src/train/run/algorithm.h"
#include "src/train/run/events.h"
#include "src/train/run/rollback.h"
#include "src/train/run/step_record.h"
#include "src/train/run/trainer_fp8.h"
#include "src/train/run/trainer_losses.h"
#include "src/train/settings/train_settings.h"
#include "src/train/settings/trainer_schedule.h"

struct batch;
struct comm_request;
struct dataset;
struct loader_ahead;
struct lock;
struct order;
struct run_data;
struct timeline;
struct trainer_profile;

/* Where a run stands: what every checkpoint has of it besides tensors, and what
 * of the ledger belongs to that. Written by the loop at a step's end, and by
 * whoever restores a state. */
struct run_position {
    int64_t step;            /* completed steps */
    int64_t tokens_left_out; /* of their samples', by algorithms */
    double elapsed_s; /* training time of all attempts up to the last commit */
    double lr0;       /* peak rate of the run's first start */
    double groups_lr0[OPTIMIZER_GROUPS]; /* the groups' (trainer_groups.c) */
    struct rollbacks rollbacks; /* which batches of the data are left out */
    bool ended_early; /* by a listener (ASK_FINISH), now or in an attempt that
                         had the same max_duration */

    /* Not in a checkpoint: one of the trainers before this one has asked that
     * the run goes back (trainer_data.c); the same on all ranks. */
    struct rollback_cause came_back;
    json_t *rollback_events; /* the ledger's; NULL: not read yet */
};

/* What a run reads: its data sets, the order of their samples, and the
 * microbatch at hand. Made by src/train/start (trainer_data.c). */
struct run_inputs {
    struct run_data *sets;
    struct dataset **train_data; /* [train_count], those of `sets` */
    int train_count;
    char train_id[65];    /* of all of them */
    struct order *order;  /* of the samples of train_data */
    char *history;        /* trainer_data.c, as JSON; NULL: one part */
    bool changed;         /* at this start */
    int64_t epoch_before; /* samples of an epoch then; 0: not known */
    /* data.eval, then those of eval.sets, by text.entries[i - 1].name */
    struct run_data *eval_sets;  /* NULL: no evaluation */
    struct dataset *eval_data;   /* the first of them; NULL likewise */
    struct comm_window *indexes; /* of all of them; NULL: in own memory */
    struct order *eval_orders[STREAMS_MAX]; /* of each */
    json_t *text; /* of its checkpoints' state, rank 0's; NULL: the data's */
    char eval_before[65]; /* id of the checkpoint's; empty: none or unknown */
    struct batch *batch;  /* one microbatch */
    struct loader_ahead *ahead; /* those that follow; NULL: not read ahead */
    bool whole_samples; /* for now each of its samples is one document */
};

/* Figures of the first microbatch of every slot that a rank computes. */
struct run_look {
    struct stream_look of_leaf;
    struct stream_figures *all; /* [slots][chunks][n_layers] */
    int leaves, chunks;         /* of a slot, of a microbatch */
};

/* What a run computes with: the op table, parameters, model and replica, and
 * the memory of what leaves come to. Made by src/train/start, anew where the
 * microbatch changes (trainer_memory.c); of listeners only those that are
 * LISTEN_TOGETHER may use it. */
struct run_engine {
    int threads;
    char arithmetic[256]; /* "cpu arithmetic 1, sums 2"; a GPU's libraries */
    char devices[96];     /* "8 GPUs for 8 ranks"; empty on CPU */
    char *choices; /* of algorithms, as text (trainer_choices.c); NULL: none */
    struct train_memory_place place; /* for the plan, as it was at the start */

    void *stream; /* all of a step's work in its order; NULL on CPU */
    void *copied; /* event: a checkpoint's copies have read the state */
    struct kernel_ctx ctx;
    const struct kernels *kernels;
    struct params *params;
    struct model *model;
    struct replica *replica;
    struct trainer_fp8 *fp8; /* NULL in other precisions */
    bool adopted;            /* train.microbatch is a checkpoint's */
    bool shrunk;  /* train.microbatch is smaller than the settings wanted */
    bool each;    /* there was no memory for settings.once */
    json_t *base; /* of a checkpoints' state, on all ranks (trainer_base.c);
                     NULL: none */

    struct trainer_losses losses; /* of a batch's leaves, this rank's */
    double *leaf_loss;            /* [leaves of a batch] of this rank's */
    double *leaf_balance;   /* [leaves of a batch] the load-balance losses */
    int64_t *expert_counts; /* [n_layers, experts] choices in the last step, of
                               all ranks; NULL without experts */
    struct run_look *look;  /* at this batch; lent; NULL: nobody looks */

    /* A failure has brought ranks that compute together out of step: nothing
     * collective can follow but trainer_roll_call(). */
    bool adrift;
};

/* Stops within the batch at hand (trainer_stop.c). Zeroed: nobody looks. */
struct run_stop {
    int every, looks;             /* a look each so many microsteps; how many */
    int64_t asked;                /* by the look in flight */
    struct comm_request *request; /* NULL: none */
    int agreed; /* as stop_requested(), of all ranks: the batch is given up */
};

/* How long steps take here, and by that what this rank may compute without a pause
 * (trainer_pace.c). */
#define RUN_PACE_STEPS 64
struct run_pace {
    double
        step_s[RUN_PACE_STEPS]; /* of the last ones of this attempt, in turn */
    int64_t steps;
    double limit_s; /* of what is computed now; 0: none */
};

/* The step at hand: what it trains on, what it has come to, and what becomes of
 * the run after it. Begun and filled in by the loop. */
struct run_step {
    int64_t seq_len, samples;  /* as algorithms have left them (algorithm.h) */
    const bool *left_out;      /* likewise, lent */
    bool told_empty;           /* a step without labels was warned of */
    struct step_record record; /* for listeners, and the last step's figures */
    struct step_rank *of_rank; /* [ranks] the record's */
    struct run_stop stop;
    struct run_pace pace;

    struct rollback_cause back; /* a listener has asked in this step that the
                                   run goes back; the same on all ranks */
    int stop_signal; /* agreed by all ranks (src/job/stop.h); 0: go on */
    bool finished;   /* max_duration reached, or ended_early; agreed */
    bool incomplete; /* another attempt must finish the run, though; agreed */
};

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

    int64_t
        mirrored; /* the step that checkpoint.mirror has at the end; 0: none */

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

/* Rank 0's text to all, malloc'ed, in place of what they had; NULL: nothing
 * happens. Collective. */
enum err run_share(struct comm *comm, char **text);

/* A new reference to `value` becomes the state's; NULL: there was no memory. */
enum err run_put(json_t *state, const char *key, json_t *value);

/* --- for algorithms --- */

/* In create: a duration in steps, which a resume keeps (algorithms_state.h):
 * *steps, a part of self, holds from `begin` on. ERR_USAGE names the key. */
enum err run_algorithm_steps(struct run *run, const void *self, const char *key,
                             struct duration duration, int64_t *steps);

/* kept = keep * kept + (1 - keep) * weights, of the replica's tensor `kept`. */
enum err run_average(struct run *run, int kept, double keep);
