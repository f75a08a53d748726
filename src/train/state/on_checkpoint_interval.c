/* Chooses how often to save under checkpoint.interval = "auto", from measured
 * costs and the ledger's failures. The formula is
 * checkpoint/ckpt_interval.c. */
#include "src/train/state/on_checkpoint_parts.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/ckpt_interval.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/base/real.h"
#include "src/job/ledger_history.h"

#define SECONDS_PER_HOUR 3600.0
#define OVERHEAD_MAX 0.1
#define LOGGED_CHANGE 0.1
#define COST_S_MIN 1e-6 /* what a clock may not see costs something too */
#define STEPS_MAX 1e15
#define WINDOW_VALUES 15 /* an odd number: the median is one of them */

/* The newest values, of which the median counts: one save or step that met a
 * busy disk or an evaluation decides nothing. */
struct window {
    double values[WINDOW_VALUES];
    int count, next;
};

struct on_checkpoint_interval {
    int failures;
    double node_hours;
    double mtbf_s; /* of the job */
    struct window costs, persists, steps;
    int64_t length_steps;
    int64_t due_step; /* a save is due from here on */
    double logged_s;  /* 0: none yet */
};

static void window_add(struct window *window, double value)
{
    assert(window->next >= 0 && window->next < WINDOW_VALUES);
    window->values[window->next] = value;
    window->next = (window->next + 1) % WINDOW_VALUES;
    if (window->count < WINDOW_VALUES)
        window->count++;
}

/* The median, of an even number of values the upper one. */
static double window_median(const struct window *window)
{
    double sorted[WINDOW_VALUES];
    size_t count = (size_t)window->count;
    assert(count > 0 && count <= WINDOW_VALUES);
    memcpy(sorted, window->values, count * sizeof sorted[0]);
    return real_median_upper(sorted, window->count);
}

enum err on_checkpoint_interval_create(const char *run_dir,
                                       struct on_checkpoint_interval **out)
{
    struct ledger_history history;
    struct on_checkpoint_interval *interval = NULL;
    TRY(new_zeroed(&interval, 1));
    if (ledger_history_read(run_dir, &history) != ERR_OK) {
        log_warn("checkpoint interval: no failures are known: %s", err_text());
        history = (struct ledger_history){ 0 };
    }
    interval->failures = history.failures;
    interval->node_hours = history.node_hours;
    interval->mtbf_s =
        ckpt_interval_node_mtbf_h(CKPT_INTERVAL_PRIOR_HOURS, history.node_hours,
                                  history.failures) *
        SECONDS_PER_HOUR / (history.nodes > 0 ? history.nodes : 1);
    interval->length_steps = ON_CHECKPOINT_INTERVAL_FIRST_STEPS;
    *out = interval;
    return ERR_OK;
}

void on_checkpoint_interval_destroy(struct on_checkpoint_interval *interval)
{
    free(interval);
}

void on_checkpoint_interval_begin(struct on_checkpoint_interval *interval,
                                  int64_t step)
{
    if (interval != NULL)
        interval->due_step = step + interval->length_steps;
}

void on_checkpoint_interval_step(struct on_checkpoint_interval *interval,
                                 double step_s)
{
    if (interval != NULL)
        window_add(&interval->steps, step_s);
}

bool on_checkpoint_interval_due(const struct on_checkpoint_interval *interval,
                                int64_t step)
{
    return interval != NULL && step >= interval->due_step;
}

void on_checkpoint_interval_started(struct on_checkpoint_interval *interval)
{
    if (interval != NULL)
        interval->due_step = INT64_MAX;
}

static const char *limit_text(enum ckpt_interval_limit limit)
{
    switch (limit) {
    case CKPT_INTERVAL_PERSIST:
        return ", 1.1 times a save's duration";
    case CKPT_INTERVAL_OVERHEAD:
        return ", 10 times its cost";
    default:
        return "";
    }
}

static void log_choice(struct on_checkpoint_interval *interval,
                       const struct ckpt_interval_input *input,
                       const struct ckpt_interval *best)
{
    double now_s = best->recommended_s;
    if (fabs(now_s - interval->logged_s) <= LOGGED_CHANGE * interval->logged_s)
        return;
    interval->logged_s = now_s;
    log_info("checkpoint interval: %.4g s%s, %lld steps (cost %.3g s, save "
             "%.3g s, MTBF %.4g h after %d failures in %.3g node-hours; Young "
             "%.4g s, Daly %.4g s, exact %.4g s)",
             now_s, limit_text(best->limit), (long long)interval->length_steps,
             input->cost_s, input->persist_s, input->mtbf_s / SECONDS_PER_HOUR,
             interval->failures, interval->node_hours, best->young_s,
             best->daly_s, best->exact_s);
}

static void choose(struct on_checkpoint_interval *interval)
{
    struct ckpt_interval best;
    struct ckpt_interval_input input = {
        .cost_s = window_median(&interval->costs),
        .persist_s = window_median(&interval->persists),
        .mtbf_s = interval->mtbf_s,
        .overhead_max = OVERHEAD_MAX,
    };
    if (ckpt_interval(&input, &best) != ERR_OK) {
        log_warn("checkpoint interval: stays as it is: %s", err_text());
        return;
    }
    double steps = ceil(best.recommended_s / window_median(&interval->steps));
    interval->length_steps = (int64_t)fmax(1, fmin(steps, STEPS_MAX));
    log_choice(interval, &input, &best);
}

void on_checkpoint_interval_ended(struct on_checkpoint_interval *interval,
                                  const struct ckpt_progress *progress,
                                  double stall_s)
{
    if (interval == NULL)
        return;
    double save_s = progress->total_s;
    bool staged = progress->stage_s > 0;
    if (progress->phase == CKPT_COMMITTED && interval->steps.count > 0) {
        double cost_s = staged ? fmax(stall_s, progress->stage_s) : save_s;
        window_add(&interval->costs, fmax(cost_s, COST_S_MIN));
        window_add(&interval->persists, staged ? save_s : 0);
        choose(interval);
    }
    assert(interval->length_steps > 0);
    interval->due_step = progress->step + interval->length_steps;
}
