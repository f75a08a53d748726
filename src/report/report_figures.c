/* What a run has come to, in numbers.
 *
 * Rates are medians, not means: a run that stood still for an hour, or computed
 * its first steps while files were read, has the throughput that it usually has.
 * They are medians over the means of buckets, so that a run of a million steps
 * needs no list of them; losses are those of the newest bucket and the least of
 * any step. What files do not tell is NaN, and is left out where it would be
 * shown. */
#include "src/report/report.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

static enum err make_figures(const struct run_history *run, double price,
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

/* --- the parts of a report ---
 *
 * All that is drawn or printed is worked out here, once, from histories that are
 * read: page and JSON show the same figures, and a page of a run that goes on is one
 * moment of it. */

/* The folder's name, or where two have the same the end of the path. */
static void name_run(struct report *report, int run)
{
    const struct run_history *history = report->runs[run];
    const char *text = history->name;
    for (int r = 0; r < report->run_count; r++)
        if (r != run && strcmp(report->runs[r]->name, history->name) == 0)
            text = history->dir;
    size_t bytes = strlen(text);
    if (bytes >= PLOT_NAME_BYTES)
        text += bytes - PLOT_NAME_BYTES + 1;
    assert(strlen(text) < PLOT_NAME_BYTES);
    memcpy(report->names[run], text, strlen(text) + 1);
}

enum err report_create(struct run_history *const *runs, int count, double price,
                       struct report *out)
{
    assert(count > 0 && count <= REPORT_RUNS_MAX);
    *out = (struct report){ .run_count = count, .price = price };
    for (int r = 0; r < count; r++)
        out->runs[r] = runs[r];
    for (int r = 0; r < count; r++) {
        name_run(out, r);
        TRY(make_figures(runs[r], price, &out->figures[r]));
    }
    return report_plots_make(out);
}

void report_free(struct report *report)
{
    for (int i = 0; i < report->plot_count; i++)
        plot_free(&report->plots[i]);
    free(report->plots);
    report->plots = NULL;
    report->plot_count = 0;
}

const char *report_device(const struct run_history *run)
{
    return run->device ? "GPU" : "core";
}

void report_put_of(const struct report *report, int run, FILE *out)
{
    if (report->run_count == 1)
        return;
    fputs(" of ", out);
    canvas_escape(out, report->names[run]);
}
