/* A training run on this rank: its parts, its position, and the loop.
 *
 * The struct is open to what is a part of the loop: the files trainer_*.c,
 * evaluation and checkpoint. Listeners read the record of the step (events.h);
 * everything else uses the functions. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "src/base/err.h"
#include "src/base/units.h"
#include "src/comm/comm.h"
#include "src/data/set/dataset.h"
#include "src/data/set/loader.h"
#include "src/data/set/loader_ahead.h"
#include "src/model/model.h"
#include "src/model/params.h"
#include "src/parallel/replica.h"
#include "src/train/loop/algorithm.h"
#include "src/train/loop/events.h"
#include "src/train/loop/rollback.h"
#include "src/train/start/run_data.h"
#include "src/train/settings/schedule.h"
#include "src/train/loop/trainer_fp8.h"
#include "src/train/plan/train_memory.h"
#include "src/train/settings/train_settings.h"
#include "src/train/loop/step_record.h"
#include "src/train/loop/trainer_losses.h"
#include "src/train/loop/trainer_stop.h"

struct lock;
struct timeline;
struct trainer_profile;

/* Figures of the first microbatch of every slot that a rank computes. */
struct trainer_look {
    struct stream_look of_leaf;
    struct stream_figures *all; /* [slots][chunks][n_layers] */
    int leaves, chunks;         /* of a slot, of a microbatch */
};

struct trainer {
    struct train_settings settings;
    struct comm *comm;
    int rank, ranks;
    int threads;
    int attempt;          /* 1 for the run's first start */
    char run_uuid[37];    /* of the run, from its first start */
    char arithmetic[256]; /* "cpu arithmetic 1"; a GPU's tables, libraries */
    char devices[96];     /* "8 GPUs for 8 ranks"; empty on CPU */
    char *choices; /* of algorithms, as text (trainer_choices.h); NULL: none */

    struct train_memory_place place; /* for the plan, as it was at the start */

    void *stream; /* all of a step's work in its order; NULL on CPU */
    void *copied; /* event: a checkpoint's copies have read the state */
    struct kernel_ctx ctx;
    const struct kernels *kernels;
    struct params *params;
    struct model *model;
    struct replica *replica;
    struct trainer_fp8 *fp8; /* NULL in other precisions */
    struct run_data *run_data;
    struct dataset **train_data; /* [train_count], the run_data's */
    int train_count;
    char train_id[65];         /* of all of them */
    struct order *order;       /* of the samples of train_data */
    char *data_history;        /* trainer_data.h, as JSON; NULL: one part */
    bool data_changed;         /* at this start */
    int64_t epoch_before;      /* samples of an epoch then; 0: not known */
    struct dataset *eval_data; /* NULL: no evaluation */
    struct order *eval_order;  /* NULL likewise */
    json_t *text; /* of its checkpoints' state, rank 0's; NULL: the data's */
    json_t *base; /* likewise, on all ranks (trainer_base.h); NULL: none */
    char eval_before[65]; /* id of the checkpoint's; empty: none or unknown */
    struct batch *batch;  /* one microbatch */
    struct loader_ahead *ahead; /* those that follow; NULL: not read ahead */
    bool whole_samples;        /* for now each of its samples is one document */
    struct trainer_look *look; /* at this batch; lent; NULL: nobody looks */
    struct trainer_losses losses; /* of a batch's leaves, this rank's */
    double *leaf_loss;            /* [leaves of a batch] of this rank's */
    double *leaf_balance;   /* [leaves of a batch] the load-balance losses */
    int64_t *expert_counts; /* [n_layers, experts] choices in the last step, of
                               all ranks; NULL without experts */
    bool shrunk; /* train.microbatch is smaller than the settings wanted */
    struct schedule schedule;
    struct unit_rates rates;
    int64_t max_steps; /* -1: max_duration is in seconds */

    struct trainer_profile *profile; /* NULL: none is asked for */
    struct timeline *timeline;       /* the profile's; NULL likewise */

    struct lock *lock; /* of the run, lent; NULL: not rank 0, or none */
    struct algorithms algorithms;
    /* What the step at hand trains on (algorithm.h). */
    int64_t seq_len, samples;
    const bool *left_out;
    bool told_empty; /* a step without labels was warned of */
    struct events events;
    struct step_record record; /* for listeners, and the last step's figures */
    struct step_rank *of_rank; /* [ranks] the record's */

    /* position: in every checkpoint */
    int64_t step;            /* completed steps */
    int64_t tokens_left_out; /* of their samples', by algorithms */
    double elapsed_s; /* training time of all attempts up to the last commit */
    double lr0;       /* peak rate of the run's first start */
    double groups_lr0[OPTIMIZER_GROUPS]; /* the groups' (trainer_groups.h) */
    struct rollbacks rollbacks; /* which batches of the data are left out */

    /* A listener has asked in this step that the run goes back, and so has one
     * of the trainer before this one (trainer_rollback.h); the same on all
     * ranks. */
    struct rollback_cause back, came_back;
    json_t *rollback_events; /* the ledger's; NULL: not read yet */

    /* A failure has brought ranks that compute together out of step: nothing
     * collective can follow but trainer_roll_call(). */
    bool adrift;
    struct trainer_stop stop; /* of the batch at hand */
    int stop_signal;  /* agreed by all ranks (src/job/stop.h); 0: go on */
    bool finished;    /* max_duration reached, or ended_early; agreed */
    bool ended_early; /* by a listener (ASK_FINISH), now or in an attempt that
                         had the same max_duration; in every checkpoint */
    bool incomplete;  /* another attempt must finish the run, though; agreed */
};

/* Borrow comm, make everything that a run needs: data, model, memory. No file
 * is written. Collective. */
enum err trainer_create(struct comm *comm,
                        const struct train_settings *settings, int attempt,
                        struct trainer **out);
/* With what listeners do in the background, which ends on all ranks together.
 * false: it does not end, nothing was freed, and the process should end soon.
 * NULL is fine. */
bool trainer_destroy(struct trainer *trainer);

/* Run init, before_load, after_load: fresh weights, or those that the settings
 * name, unless a listener restored a state (step > 0). Collective. */
enum err trainer_start(struct trainer *trainer);

/* Train until max_duration or an agreed stop, or until the run is to go back
 * (trainer->back.asked): then without fit_end. A run that is finished already
 * goes from fit_start to fit_end. Collective. */
enum err trainer_fit(struct trainer *trainer);

/* Computes the first microbatch of every rank and gives the batch up; on a
 * device also as if each of its samples were one document, for which there may
 * be other algorithms. The run's state stays. Collective. */
enum err trainer_warm_up(struct trainer *trainer);

/* What the first step of a run needs to know besides, when algorithms are
 * chosen, for they decide bits: with train.precision = "fp8" the first batch is
 * computed, all of it, with scales of 1, and given up, but for the magnitudes
 * that it has shown. Nothing happens in other precisions and later.
 * Collective. */
enum err trainer_calibrate(struct trainer *trainer);

/* One optimizer step; increments trainer->step (trainer_step.c), unless the run
 * is to go back, or the step was given up (trainer->stop.agreed). */
enum err trainer_step(struct trainer *trainer);

/* After a failure of the run, rc: where ranks compute together they find out
 * what all of them end with (replica_roll_call()), and trainer->adrift is set;
 * otherwise it is rc. */
enum err trainer_roll_call(struct trainer *trainer, enum err rc);

/* Tell the listeners, with the record at the trainer's position. */
enum err trainer_event(struct trainer *trainer, enum event event);

/* True when `interval`, in steps or samples, ends with this step; intervals in
 * sec and "auto" are never due here (see enum ask). */
bool trainer_due(const struct trainer *trainer, struct duration interval);

/* A setting's duration in steps; ERR_USAGE names it. */
enum err trainer_steps(const struct trainer *trainer, const char *key,
                       struct duration duration, int64_t *steps);

/* Tokens (positions) trained so far, without those that algorithms left out. */
int64_t trainer_tokens(const struct trainer *trainer);
