/* What a run tells about the cost of its checkpoints and about its failures:
 * RUN/ledger.jsonl and the end of RUN/metrics.jsonl. Lines that are torn or
 * unknown are passed over. */
#pragma once

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
