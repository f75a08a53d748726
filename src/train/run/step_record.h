/* The record of a step: where the run stands and what its last step has come
 * to. The loop makes it, and listeners (events.h) read it.
 *
 * One exchange per step, after batch_ask, brings what ranks know of themselves
 * to all of them: their times, what their listeners ask for, and whether one
 * has failed. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/units.h"
#include "src/tracking/tracking_record.h"
#include "src/train/run/events.h"

/* What each rank brings to the exchange. */
struct step_rank {
    double step_s;    /* wall time of the last step */
    double loader_s;  /* of it, reading samples */
    double wait_s;    /* of it, for other ranks, by the host's clock */
    double elapsed_s; /* training time of all attempts */
    int64_t failed;   /* enum err that its listeners have held back */
    int64_t asks[ASK_COUNT];
};

struct step_eval {
    int64_t step; /* evaluated last; -1: none in this attempt */
    double loss;  /* nats per token; may be infinite */
    int64_t tokens;
    double seconds;
};

/* What is kept of it with the step's checkpoint: loss (null where it is not
 * finite) and tokens. */
json_t *step_eval_json(const struct step_eval *eval);

struct step_record {
    int rank, ranks;
    int attempt;       /* 1 for the run's first start */
    int64_t max_steps; /* -1: max_duration is in seconds */

    /* position; in after_train_batch and before the step is not counted yet */
    int64_t step;            /* completed steps */
    int64_t samples, tokens; /* trained so far; tokens are positions */
    double elapsed_s; /* training time of all attempts, by this rank's clock */
    bool finished;    /* max_duration is reached; the same on all ranks */
    int stop_signal;  /* agreed by all ranks (src/job/stop.h); 0: go on */
    char why[EVENTS_WHY]; /* the run ends here; empty while it does not; the
                             same on all ranks */

    /* from after_train_batch on, the same on all ranks */
    double loss;         /* nats per loss-bearing token */
    double balance_loss; /* weighted; trained, but not part of `loss` */
    double grad_norm;    /* before clipping */
    double lr;
    int64_t loss_tokens;
    bool diverged; /* the loss or the norm is no number */
    bool skipped;  /* the update was left out; from batch_ask on */
    const int64_t *expert_counts; /* [expert_count] choices of all ranks, block
                                     by block; NULL without experts */
    size_t expert_count;

    /* from batch_ask on: this rank's */
    double step_s, loader_s, wait_s;
    double tokens_per_s;
    /* Model FLOPs by LLM Foundry's convention / the peak of all ranks, and with
     * half of attention. Known on rank 0; all 0 where nobody knows the peak. */
    double mfu, mfu_causal;
    double peak_flops; /* of a rank */
    const char *peak_source;

    /* from batch_end on, the same on all ranks */
    const struct step_rank *of_rank; /* [ranks] */
    int64_t agreed[ASK_COUNT];

    struct step_eval eval; /* from eval_end on, the same but for seconds */

    /* What is known of this step by name, for metrics.jsonl and all trackers: a
     * listener adds what it measures by tracking_list_add(), in batch_end before
     * "metrics" for all of them, of steps that are logged (step_record_logs()).
     * Empty at batch_start. On rank 0; others have NULL, with which that does
     * nothing. */
    struct tracking_list *scalars;
    int64_t log_interval;
};

/* A rank's own work in the step: all have the same step, and who is slow is who has
 * waited least. A device's waits for other devices are in it. */
static inline double step_record_work_s(const struct step_rank *rank)
{
    return rank->step_s - rank->wait_s - rank->loader_s;
}

/* Whether the step is one of those that are logged, in batch_end. */
bool step_record_logs(const struct step_record *step);

/* Has `interval`, in seconds, passed on this clock since *since? It begins
 * again then. Other intervals never have. */
bool step_record_seconds_due(struct duration interval, double *since);
