/* What a run has come to, in numbers.
 *
 * Rates are medians, not means: a run that stood still for an hour, or computed
 * its first steps while files were read, has the throughput that it usually has.
 * They are medians over the means of buckets, so that a run of a million steps
 * needs no list of them; losses are those of the newest bucket and the least of
 * any step. What files do not tell is NaN, and is left out where it would be
 * shown. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "src/base/real.h"
#include "src/report/report_impl.h"

#define BUCKETS 1024

static double median_of_value(const struct run_bucket *list, size_t count,
                              enum run_value value, double *room)
{
    int there = 0;
    for (size_t i = 0; i < count; i++)
        if (list[i].of[value].count > 0)
            room[there++] = run_stat_mean(&list[i].of[value]);
    return there > 0 ? real_median(room, there) : NAN;
}

static void take_steps(const struct run_bucket *list, size_t count,
                       double *room, struct report_figures *out)
{
    out->tokens_per_s = median_of_value(list, count, RUN_TOKENS_PER_S, room);
    out->mfu = median_of_value(list, count, RUN_MFU, room);
    out->step_ms = median_of_value(list, count, RUN_STEP_MS, room);
    out->work_ms = median_of_value(list, count, RUN_WORK_MS, room);
    out->work_ms_max = median_of_value(list, count, RUN_WORK_MS_MAX, room);
    out->wait_ms_max = median_of_value(list, count, RUN_WAIT_MS_MAX, room);
    out->loader_ms = median_of_value(list, count, RUN_LOADER_MS, room);
    out->spread = median_of_value(list, count, RUN_STEP_MS_MAX, room) /
                      median_of_value(list, count, RUN_STEP_MS_MIN, room) -
                  1;
    for (size_t i = 0; i < count; i++)
        if (list[i].of[RUN_LOSS].count > 0) {
            out->loss = run_stat_mean(&list[i].of[RUN_LOSS]);
            out->loss_min = fmin(out->loss_min, list[i].of[RUN_LOSS].min);
        }
}

static double rank_of(const struct run_history *run, enum run_who who)
{
    int rank = run_history_who(run, who);
    return rank >= 0 ? (double)rank : (double)NAN;
}

static void take_evals(const struct run_history *run,
                       struct report_figures *out)
{
    for (size_t i = 0; i < run->eval_count; i++) {
        const struct run_eval *eval = &run->evals[i];
        if (isnan(eval->loss))
            continue;
        out->eval_loss = eval->loss;
        if (!(out->eval_best <= eval->loss)) {
            out->eval_best = eval->loss;
            out->eval_best_step = eval->step;
        }
    }
}

/* Commits on the nodes are left out: they are another kind, with another price. */
static void take_commits(const struct run_history *run,
                         struct report_figures *out)
{
    double sum = 0;
    int64_t count = 0;
    out->commits = run->commit_total;
    for (size_t i = 0; i < run->commit_count; i++) {
        const struct run_commit *commit = &run->commits[i];
        if (commit->local)
            continue;
        double stall_s = (double)commit->stall_us / 1e6;
        out->commit_bytes = commit->bytes;
        out->stall_max_s = fmax(out->stall_max_s, stall_s);
        sum += stall_s;
        count++;
    }
    if (count > 0)
        out->stall_mean_s = sum / (double)count;
}

enum err report_figures_make(const struct run_history *run, double price,
                             struct report_figures *out)
{
    struct run_bucket *list = NULL;
    size_t count = 0;
    double room[BUCKETS];
    *out = (struct report_figures){
        .loss = NAN,
        .loss_min = NAN,
        .eval_loss = NAN,
        .eval_best = NAN,
        .stall_mean_s = NAN,
        .stall_max_s = NAN,
        .memory_planned = NAN,
        .memory_peak = NAN,
        .slowest_rank = rank_of(run, RUN_WHO_WORKS),
        .waiting_rank = rank_of(run, RUN_WHO_WAITS),
        .loader_rank = rank_of(run, RUN_WHO_LOADS),
        .wall_s = (double)(run->end_us - run->begin_us) / 1e6,
        .goodput = run_history_goodput(run),
        .device_hours = run->device_hours,
        .cost = run->device_hours * price,
        .energy_j = run->energy_j > 0 ? run->energy_j : NAN,
        .tokens_per_j =
            run->energy_j > 0 ? (double)run->tokens / run->energy_j : NAN,
    };
    TRY(run_history_buckets(run, BUCKETS, &list, &count));
    assert(count <= BUCKETS);
    take_steps(list, count, room, out);
    take_evals(run, out);
    take_commits(run, out);
    for (size_t i = 0; i < run->attempt_count; i++) {
        if (run->attempts[i].memory_planned > 0)
            out->memory_planned = (double)run->attempts[i].memory_planned;
        if (run->attempts[i].memory_peak > 0)
            out->memory_peak = (double)run->attempts[i].memory_peak;
    }
    for (size_t i = 0; i < run->event_count; i++)
        out->excluded += run->events[i].kind == RUN_EVENT_EXCLUDE;
    free(list);
    return ERR_OK;
}
