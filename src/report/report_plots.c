/* The plots of a report: which there are, and what is in them.
 *
 * All of a plot's series share its axes, so runs are compared by lying over each
 * other; a run's colour is its number in every plot, and in the plots of one run
 * colours tell the series apart. A plot of which no file tells anything is made,
 * found empty and dropped: so a new kind of run needs no list of what it has.
 *
 * The points of a series are the buckets of run_history.h, mean with least and
 * largest, never more than the page has pixels for; evaluations and commits
 * are thinned likewise. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/report/report_impl.h"

/* Points of all runs together, so that a page of many is no larger. */
#define POINTS 1000
#define MARKS_RUNS 1 /* attempts are marked where there is one run */

struct maker {
    struct report *report;
    struct run_bucket *buckets[REPORT_RUNS_MAX];
    size_t counts[REPORT_RUNS_MAX];
};

/* An entry of the report; end_plot() keeps or drops it, so there is one open at a
 * time. */
static struct plot *new_plot(struct maker *maker, const char *id,
                             const char *title, const char *y_label,
                             enum plot_scale scale)
{
    struct report *report = maker->report;
    assert(report->plot_count < REPORT_PLOTS_MAX);
    struct plot *plot = &report->plots[report->plot_count++];
    snprintf(plot->id, sizeof plot->id, "%s", id);
    snprintf(plot->title, sizeof plot->title, "%s", title);
    snprintf(plot->x_label, sizeof plot->x_label, "step");
    snprintf(plot->y_label, sizeof plot->y_label, "%s", y_label);
    plot->scale = scale;
    return plot;
}

/* An empty plot goes. */
static enum err end_plot(struct maker *maker)
{
    struct report *report = maker->report;
    assert(report->plot_count > 0);
    struct plot *plot = &report->plots[report->plot_count - 1];
    if (!plot_is_empty(plot))
        return ERR_OK;
    plot_free(plot);
    memset(plot, 0, sizeof *plot);
    report->plot_count--;
    return ERR_OK;
}

/* Upright lines where attempts began: a step in a curve that lies on one has its
 * cause there. */
static enum err end_steps(struct maker *maker)
{
    const struct report *report = maker->report;
    const struct run_history *run = report->runs[0];
    struct plot *plot = &report->plots[report->plot_count - 1];
    for (size_t i = 1; i < run->attempt_count; i++)
        if (report->run_count <= MARKS_RUNS && run->attempts[i].from_step >= 0)
            plot_mark(plot, (double)run->attempts[i].from_step);
    return end_plot(maker);
}

/* A run of a sweep by what differs, since its folder's name would be cut before
 * that: "004-optimizer.name=muon-optimizer.lr=2e-3" is "004: muon, 2e-3". */
static void short_name(const struct report *report, int run,
                       char out[PLOT_NAME_BYTES])
{
    const char *name = report->names[run];
    size_t digits = strspn(name, "0123456789"), used = digits;
    snprintf(out, PLOT_NAME_BYTES, "%.*s", (int)digits, name);
    for (const char *at = name + digits; digits >= 3 && *at != '\0'; at++) {
        char key[64], words[40];
        int behind = 0;
        if (sscanf(at, "-%63[a-z0-9_.]=%n", key, &behind) == 1 && behind > 0 &&
            used < PLOT_NAME_BYTES) {
            plot_plain(run_history_setting(report->runs[run], key), words,
                       sizeof words);
            used += (size_t)snprintf(out + used, PLOT_NAME_BYTES - used, "%s%s",
                                     used > digits ? ", " : ": ", words);
        }
    }
    if (used == digits)
        memcpy(out, name, PLOT_NAME_BYTES);
}

/* In the plot of several runs series are named by their runs. */
static void series_name(const struct maker *maker, int run, const char *what,
                        char out[PLOT_NAME_BYTES * 2])
{
    assert(run >= 0 && run < maker->report->run_count);
    char name[PLOT_NAME_BYTES];
    short_name(maker->report, run, name);
    if (maker->report->run_count == 1)
        snprintf(out, PLOT_NAME_BYTES * 2, "%s", what);
    else
        snprintf(out, PLOT_NAME_BYTES * 2, "%s%s%s", name,
                 what[0] != '\0' ? ", " : "", what);
}

/* NULL: there is no room for another one, and its points are left out. */
static struct plot_series *new_series(struct maker *maker, struct plot *plot,
                                      int run, const char *what,
                                      enum plot_style style, int colour)
{
    char name[PLOT_NAME_BYTES * 2];
    series_name(maker, run, what, name);
    return plot_add(plot, name, style, colour);
}

/* A series without a point goes again, with its entry in the legend. */
static void end_series(struct plot *plot, const struct plot_series *series)
{
    if (series != NULL && series->count == 0)
        plot->series_count--;
}

/* A value over the steps of a run. */
static enum err add_value(struct maker *maker, struct plot *plot, int run,
                          enum run_value value, double scale, const char *what,
                          int colour)
{
    struct plot_series *series =
        new_series(maker, plot, run, what, PLOT_LINE, colour);
    for (size_t i = 0; i < maker->counts[run]; i++) {
        const struct run_bucket *bucket = &maker->buckets[run][i];
        const struct run_stat *stat = &bucket->of[value];
        if (stat->count > 0)
            TRY(plot_point(series, (double)bucket->last,
                           run_stat_mean(stat) * scale, stat->min * scale,
                           stat->max * scale));
    }
    end_series(plot, series);
    return ERR_OK;
}

static enum err value_plot(struct maker *maker, const char *id,
                           const char *title, const char *unit,
                           enum plot_scale scale, enum run_value value,
                           double factor)
{
    struct plot *plot = new_plot(maker, id, title, unit, scale);
    for (int r = 0; r < maker->report->run_count; r++)
        TRY(add_value(maker, plot, r, value, factor, "", r));
    return end_steps(maker);
}

static enum err loss_plot(struct maker *maker)
{
    struct report *report = maker->report;
    struct plot *plot =
        new_plot(maker, "loss", "Loss", "nats per token", PLOT_SPREAD);
    for (int r = 0; r < report->run_count; r++) {
        const struct run_history *run = report->runs[r];
        int colour = report->run_count == 1 ? 1 : r;
        TRY(add_value(maker, plot, r, RUN_LOSS, 1, "training", r));
        struct plot_series *series =
            new_series(maker, plot, r, "evaluation", PLOT_DOTS, colour);
        size_t every = run->eval_count / (POINTS / 2) + 1;
        for (size_t i = 0; i < run->eval_count; i++)
            if (i % every == 0 || i + 1 == run->eval_count)
                TRY(plot_point(series, (double)run->evals[i].step,
                               run->evals[i].loss, NAN, NAN));
        end_series(plot, series);
    }
    return end_steps(maker);
}

/* Times of ranks, where there are several; else of the one. */
static enum err step_plot(struct maker *maker)
{
    struct plot *plot =
        new_plot(maker, "step-time", "Step time", "ms per step", PLOT_SPREAD);
    bool single = maker->report->run_count == 1;
    for (int r = 0; r < maker->report->run_count; r++) {
        int before = plot->series_count;
        TRY(add_value(maker, plot, r, RUN_STEP_MS_MAX, 1, "slowest rank",
                      single ? 1 : r));
        if (plot->series_count == before)
            TRY(add_value(maker, plot, r, RUN_STEP_MS, 1, "", r));
        else if (single)
            TRY(add_value(maker, plot, r, RUN_STEP_MS_MIN, 1, "fastest rank",
                          0));
    }
    return end_steps(maker);
}

/* How much longer the slowest rank's step takes than the fastest's. */
static enum err spread_plot(struct maker *maker)
{
    struct plot *plot =
        new_plot(maker, "rank-spread", "Spread of ranks' clocks",
                 "slowest - fastest, ms", PLOT_FROM_ZERO);
    for (int r = 0; r < maker->report->run_count; r++) {
        struct plot_series *series =
            new_series(maker, plot, r, "", PLOT_LINE, r);
        for (size_t i = 0; i < maker->counts[r]; i++) {
            const struct run_bucket *bucket = &maker->buckets[r][i];
            TRY(plot_point(series, (double)bucket->last,
                           run_stat_mean(&bucket->of[RUN_STEP_MS_MAX]) -
                               run_stat_mean(&bucket->of[RUN_STEP_MS_MIN]),
                           NAN, NAN));
        }
    }
    return end_steps(maker);
}

static enum err commit_plot(struct maker *maker, bool size)
{
    struct report *report = maker->report;
    struct plot *plot =
        size ? new_plot(maker, "checkpoint-size", "Checkpoints: size", "MiB",
                        PLOT_FROM_ZERO)
             : new_plot(maker, "checkpoint-stall",
                        "Checkpoints: training waited", "ms", PLOT_FROM_ZERO);
    for (int r = 0; r < report->run_count; r++) {
        const struct run_history *run = report->runs[r];
        struct plot_series *series =
            new_series(maker, plot, r, "", PLOT_DOTS, r);
        size_t every = run->commit_count / (POINTS / 2) + 1;
        for (size_t i = 0; i < run->commit_count; i++) {
            const struct run_commit *commit = &run->commits[i];
            if (!commit->local && i % every == 0)
                TRY(plot_point(series, (double)commit->step,
                               size ? (double)commit->bytes / 1048576
                                    : (double)commit->stall_us / 1e3,
                               NAN, NAN));
        }
    }
    return end_plot(maker);
}

/* What was planned beside what was taken, of each attempt, since a plan may change
 * with its ranks. The newest 40 have room. */
static enum err memory_plot(struct maker *maker)
{
    struct report *report = maker->report;
    struct plot *plot =
        new_plot(maker, "memory", "Memory of a rank", "MiB", PLOT_FROM_ZERO);
    static const char *const what[] = { "planned", "peak" };
    snprintf(plot->x_label, sizeof plot->x_label, "attempt");
    for (int r = 0; r < report->run_count; r++)
        for (int k = 0; k < 2; k++) {
            const struct run_history *run = report->runs[r];
            struct plot_series *series =
                new_series(maker, plot, r, what[k], PLOT_BARS, 2 * r + k);
            size_t first =
                run->attempt_count > 40 ? run->attempt_count - 40 : 0;
            for (size_t i = first; i < run->attempt_count; i++) {
                const struct run_attempt *a = &run->attempts[i];
                int64_t bytes = k == 0 ? a->memory_planned : a->memory_peak;
                TRY(plot_point(series, a->number,
                               bytes > 0 ? (double)bytes / 1048576 : NAN, NAN,
                               NAN));
            }
        }
    return end_plot(maker);
}

/* The series of a task, which is made when its first score comes. */
static struct plot_series *task_series(struct maker *maker, struct plot *plot,
                                       int run, const char *task)
{
    char name[PLOT_NAME_BYTES * 2], kept[PLOT_NAME_BYTES];
    series_name(maker, run, task, name);
    plot_cut(name, kept, sizeof kept);
    for (int s = 0; s < plot->series_count; s++)
        if (strcmp(plot->series[s].name, kept) == 0)
            return &plot->series[s];
    return plot_add(plot, name, PLOT_DOTS, plot->series_count);
}

static enum err task_plot(struct maker *maker)
{
    struct report *report = maker->report;
    struct plot *plot =
        new_plot(maker, "tasks", "Tasks: accuracy", "%", PLOT_LINEAR);
    for (int r = 0; r < report->run_count; r++) {
        const struct run_history *run = report->runs[r];
        for (size_t i = 0; i < run->task_count; i++) {
            struct plot_series *series =
                task_series(maker, plot, r, run->tasks[i].name);
            TRY(plot_point(series, (double)run->tasks[i].step,
                           run->tasks[i].accuracy * 100, NAN, NAN));
        }
    }
    return end_plot(maker);
}

static enum err make_all(struct maker *maker)
{
    struct report *report = maker->report;
    for (int r = 0; r < report->run_count; r++)
        TRY(run_history_buckets(report->runs[r],
                                (size_t)(POINTS / report->run_count),
                                &maker->buckets[r], &maker->counts[r]));
    TRY(loss_plot(maker));
    TRY(value_plot(maker, "learning-rate", "Learning rate", "", PLOT_FROM_ZERO,
                   RUN_LR, 1));
    TRY(value_plot(maker, "gradient-norm", "Gradient norm", "before clipping",
                   PLOT_SPREAD, RUN_GRAD_NORM, 1));
    TRY(value_plot(maker, "throughput", "Throughput", "tokens per second",
                   PLOT_FROM_ZERO, RUN_TOKENS_PER_S, 1));
    TRY(value_plot(maker, "mfu", "Model FLOPs utilization", "% of the peak",
                   PLOT_FROM_ZERO, RUN_MFU, 100));
    TRY(step_plot(maker));
    TRY(spread_plot(maker));
    TRY(value_plot(maker, "loader", "Waiting for samples",
                   "ms per step, slowest rank", PLOT_FROM_ZERO, RUN_LOADER_MS,
                   1));
    TRY(commit_plot(maker, false));
    TRY(commit_plot(maker, true));
    TRY(memory_plot(maker));
    return task_plot(maker);
}

enum err report_plots_make(struct report *report)
{
    assert(report->run_count > 0 && report->plots == NULL);
    struct maker maker = { .report = report };
    TRY(new_zeroed(&report->plots, REPORT_PLOTS_MAX));
    enum err rc = make_all(&maker);
    for (int r = 0; r < report->run_count; r++)
        free(maker.buckets[r]);
    return rc;
}
