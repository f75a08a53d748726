/* What a run tells about the cost of its checkpoints and about its failures:
 * RUN/ledger.jsonl and the end of RUN/metrics.jsonl. Lines that are torn or
 * unknown are passed over. */
#pragma once

#include <stdint.h>

#include "src/base/err.h"

/* A failure is an attempt that was followed by a "restart" or "requeue" with a
 * code other than 0 and 85 (a planned stop), that ended with the transient code
 * 75, or of which nothing was heard when the next one started. Medians are -1
 * when there is nothing to take them of. */
struct ledger_history {
    int attempts, failures, commits;
    int nodes;         /* of the newest attempt; 0: no attempt */
    double node_hours; /* from each start to the attempt's last event */
    double cost_s;     /* median of what training waited for a save */
    double persist_s;  /* median of what went on behind it; 0: nothing */
    double restart_s;  /* median from a restart or requeue to the next start */
    double step_s;     /* median of the newest steps in metrics.jsonl */
};

/* ERR_DATA when the run has no ledger. */
enum err ledger_history_read(const char *run_dir, struct ledger_history *out);

/* What a launch script has to know before it decides whether its job goes on. */
struct ledger_job {
    int64_t number; /* Slurm's, of the job */
    int attempts;   /* of all jobs of the run */
    int started;    /* the newest one that this job has started; 0: none */
    /* The newest attempt of this job of which rank 0 told the end, its exit code
     * and completed steps; 0: none. */
    int ended, ended_code;
    int64_t ended_step;
    int apart; /* the newest attempt whose ranks have lost each other; 0: none */
    /* Decisions of this job in a row, up to now, that followed an attempt
     * without a newly committed checkpoint, and requeues by the signal of its
     * time limit before an attempt began. Having given up ends either row:
     * someone has looked. `silenced`: those that the loss of a node has ended, which
     * are no others of these. */
    int futile, unstarted, silenced;
    /* Since the last commit: the furthest step that an attempt of this job has gone on
     * from, -1: none yet; how often one went further than all before it, by which those
     * were not in vain (state that nodes keep), up to LEDGER_GAINS times; and the newest
     * attempt that did; 0: none. */
    int64_t begun_step;
    int gains, gained;
    /* The longest that a start of this job has taken, from what came before it in the
     * ledger; 0: not known. Restarts since the newest start, without one of their own. */
    double start_took_s;
    int start_failed;
    int64_t local_step; /* the newest on the job's nodes themselves; -1: none */
    /* Nodes that were left out as bad, by any job of the run, with commas
     * between, each once: lately, and before that. NULL: none; whoever reads
     * them frees them by ledger_job_free(). */
    char *excluded, *expired;
    /* Likewise nodes that a run has left lately since they were slow; how often this
     * job has done so or had its nodes checked, and of the last time the attempt, the
     * node ("": none; LEDGER_SWEEP), when. */
    char *slow;
    int replaced, replaced_attempt;
    char replaced_node[64];
    double replaced_s;
};

/* After so many the run wants a checkpoint. */
#define LEDGER_GAINS 20

#define LEDGER_SWEEP "all" /* they were to be checked, none was left */

/* How long a node that was bad is kept from the run: a day. */
#define LEDGER_EXCLUDED_S 86400.0

/* A run without a ledger has not begun. */
enum err ledger_job_read(const char *run_dir, int64_t number,
                         struct ledger_job *out);
void ledger_job_free(struct ledger_job *job);
