/* Wide drawings: each run's attempts, commits, evaluations and events on one
 * axis of time, and where the time went.
 *
 * The axis is time since the run's first start, and all runs have the same: two
 * of them are compared by laying their beginnings over each other, however many
 * days apart they were. An attempt is a bar of what it did, one after the other:
 * from its start to its first step, its steps, of these at the end those that a
 * later attempt did again, and what it did behind its last step. That steps were
 * lost at an attempt's end and nowhere else is what a restart from a checkpoint
 * means.
 *
 * The second drawing has no time any more, but shares: the same microseconds
 * (run_account.c) by kind, so the bars of all runs are equally long. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/report/report_impl.h"

#define LEFT 150.0
#define RIGHT (REPORT_WIDE - 24.0)
#define TOP 34.0
#define ROW 26.0
#define ROWS 5 /* of a run */
#define DOTS_MAX 400

/* Colours of the kinds of time; training is blue, what is lost is not, and grey is
 * time in which no attempt was there. */
static const enum ink colours[RUN_TIMES] = {
    [RUN_TIME_TRAINING] = INK_SERIES,
    [RUN_TIME_INITIALIZATION] = INK_SERIES + 4,
    [RUN_TIME_DATA] = INK_SERIES + 5,
    [RUN_TIME_CHECKPOINT] = INK_SERIES + 2,
    [RUN_TIME_WASTED] = INK_SERIES + 1,
    [RUN_TIME_DETECTION] = INK_SERIES + 6,
    [RUN_TIME_CHECKS] = INK_TEXT,
    [RUN_TIME_QUEUE] = INK_AXIS,
    [RUN_TIME_LAUNCH] = INK_MUTED,
    [RUN_TIME_BETWEEN] = INK_GRID,
    [RUN_TIME_EVALUATION] = INK_SERIES + 3,
    [RUN_TIME_OTHER] = INK_SERIES + 7,
};

struct axis {
    double length_s;
    double unit_s;
    const char *unit;
};

static struct axis axis_of(const struct report *report)
{
    struct axis axis = { .length_s = 1e-3 };
    for (int r = 0; r < report->run_count; r++)
        axis.length_s = fmax(axis.length_s, report->figures[r].wall_s);
    axis.unit_s = axis.length_s > 3 * 86400  ? 86400
                  : axis.length_s > 3 * 3600 ? 3600
                  : axis.length_s > 180      ? 60
                                             : 1;
    axis.unit = axis.unit_s > 3600 ? "days"
                : axis.unit_s > 60 ? "hours"
                : axis.unit_s > 1  ? "minutes"
                                   : "seconds";
    return axis;
}

/* Clamped: clocks of nodes differ, and nothing is drawn outside. */
static double time_x(const struct axis *axis, const struct run_history *run,
                     int64_t time_us)
{
    double s = (double)(time_us - run->begin_us) / 1e6;
    return LEFT + fmin(1, fmax(0, s / axis->length_s)) * (RIGHT - LEFT);
}

static void time_box(FILE *out, double x0, double x1, double y, double height,
                     enum ink colour)
{
    const double xy[] = { x0, y, x1, y, x1, y + height, x0, y + height };
    if (x1 > x0)
        canvas_area(out, xy, 4, colour, 0.95);
}

double report_time_height(const struct report *report)
{
    return TOP + ROW * (ROWS + 1) * report->run_count + 44;
}

/* An attempt's way: start, steps, those that were lost, the end. */
static void draw_attempt(FILE *out, const struct axis *axis,
                         const struct run_history *run,
                         const struct run_attempt *attempt, double y)
{
    int64_t begin_us = attempt->begin_us, end_us = attempt->end_us;
    if (attempt->start_us == 0)
        return;
    if (begin_us == 0)
        begin_us = end_us;
    int64_t lost_us = begin_us < end_us ? attempt->time_us[RUN_TIME_WASTED] : 0;
    int64_t last_us = attempt->last_us > 0 ? attempt->last_us : end_us;
    double start = time_x(axis, run, attempt->start_us);
    double begin = time_x(axis, run, begin_us);
    double lost = time_x(axis, run, last_us - lost_us);
    double last = time_x(axis, run, last_us), end = time_x(axis, run, end_us);
    time_box(out, start, begin, y, 14, colours[RUN_TIME_INITIALIZATION]);
    time_box(out, begin, lost, y, 14, colours[RUN_TIME_TRAINING]);
    if (lost_us > 0)
        time_box(out, lost, last, y, 14, colours[RUN_TIME_WASTED]);
    time_box(out, last, end, y, 14, colours[RUN_TIME_OTHER]);
}

static void time_dot(FILE *out, double x, double y, int colour)
{
    canvas_dot(out, x, y, 3.2, INK_SERIES + colour);
}

/* Excluded nodes on a row of their own; on the next what ended an attempt, a restart
 * in another colour than a failure. */
static void draw_events(FILE *out, const struct axis *axis,
                        const struct run_history *run, double y)
{
    for (size_t i = 0; i < run->event_count; i++) {
        const struct run_event *event = &run->events[i];
        double x = time_x(axis, run, event->time_us);
        if (event->kind == RUN_EVENT_EXCLUDE)
            time_dot(out, x, y + 7, 1);
        else if (event->kind == RUN_EVENT_RESTART)
            time_dot(out, x, y + ROW + 7, 4);
        else if (event->kind == RUN_EVENT_GIVE_UP ||
                 event->kind == RUN_EVENT_SAVE_FAILED)
            time_dot(out, x, y + ROW + 7, 1);
    }
}

static void draw_run(const struct report *report, int number,
                     const struct axis *axis, FILE *out)
{
    static const char *const rows[ROWS] = { "attempts", "checkpoints",
                                            "evaluations", "nodes left out",
                                            "restarts, failures" };
    const struct run_history *run = report->runs[number];
    double y = TOP + ROW * (ROWS + 1) * number;
    char name[32];
    plot_cut(report->names[number], name, sizeof name);
    canvas_text(out, 12, y + 12, ALIGN_LEFT, INK_TEXT, true, name);
    y += ROW;
    for (int i = 0; i < ROWS; i++) {
        double line_y = y + ROW * i + 7;
        const double line[] = { LEFT, line_y, RIGHT, line_y };
        canvas_text(out, LEFT - 10, line_y + 4, ALIGN_RIGHT, INK_MUTED, false,
                    rows[i]);
        canvas_line(out, line, 2, INK_GRID, 1);
    }
    double drawn = -1; /* nobody sees two attempts within half a unit */
    for (size_t i = 0; i < run->attempt_count; i++) {
        double end = time_x(axis, run, run->attempts[i].end_us);
        if (end - drawn < 0.5 && i + 1 < run->attempt_count)
            continue;
        draw_attempt(out, axis, run, &run->attempts[i], y);
        drawn = end;
    }
    size_t every = run->commit_count / DOTS_MAX + 1;
    for (size_t i = 0; i < run->commit_count; i += every)
        time_dot(out, time_x(axis, run, run->commits[i].time_us), y + ROW + 7,
                 2);
    every = run->eval_count / DOTS_MAX + 1;
    for (size_t i = 0; i < run->eval_count; i += every)
        if (run->evals[i].time_us > 0)
            time_dot(out, time_x(axis, run, run->evals[i].time_us),
                     y + 2 * ROW + 7, 3);
    draw_events(out, axis, run, y + 3 * ROW);
}

static void draw_ticks(const struct axis *axis, double y, FILE *out)
{
    const double line[] = { LEFT, y, RIGHT, y };
    double length = axis->length_s / axis->unit_s;
    double power = pow(10, floor(log10(length / 6)));
    double ratio = length / 6 / power;
    double step = power * (ratio > 5 ? 10 : ratio > 2 ? 5 : ratio > 1 ? 2 : 1);
    canvas_line(out, line, 2, INK_AXIS, 1);
    for (int i = 0; i * step <= length * (1 + 1e-9); i++) {
        char text[32];
        double x = LEFT + i * step / length * (RIGHT - LEFT);
        const double tick[] = { x, y, x, y + 4 };
        plot_number(i * step, text, sizeof text);
        canvas_line(out, tick, 2, INK_AXIS, 1);
        canvas_text(out, x, y + 17, ALIGN_MIDDLE, INK_MUTED, false, text);
    }
    char label[64];
    snprintf(label, sizeof label, "%s since the first start", axis->unit);
    canvas_text(out, RIGHT, y + 33, ALIGN_RIGHT, INK_MUTED, false, label);
}

static void draw_legend(FILE *out)
{
    static const struct {
        const char *name;
        int kind;
    } items[] = { { "initialization", RUN_TIME_INITIALIZATION },
                  { "steps", RUN_TIME_TRAINING },
                  { "done again later", RUN_TIME_WASTED },
                  { "end", RUN_TIME_OTHER } };
    double x = LEFT;
    for (size_t i = 0; i < sizeof items / sizeof items[0]; i++) {
        time_box(out, x, x + 12, 9, 12, colours[items[i].kind]);
        canvas_text(out, x + 18, 19, ALIGN_LEFT, INK_MUTED, false,
                    items[i].name);
        x += 40 + 7.0 * (double)strlen(items[i].name);
    }
}

void report_time_draw(const struct report *report, FILE *out)
{
    assert(report->run_count > 0);
    struct axis axis = axis_of(report);
    draw_legend(out);
    for (int r = 0; r < report->run_count; r++) {
        canvas_begin(out, report->names[r]);
        draw_run(report, r, &axis, out);
        canvas_end(out);
    }
    draw_ticks(&axis, report_time_height(report) - 42, out);
}

/* --- where the time went ----------------------------------------------------- */

double report_time_goodput_height(const struct report *report)
{
    return 30 * report->run_count + 60;
}

void report_time_goodput_draw(const struct report *report, FILE *out)
{
    assert(report->run_count > 0);
    double x = 12, row = 6;
    for (int k = 0; k < RUN_TIMES; k++) {
        double width = 30 + 6.6 * (double)strlen(run_time_names[k]);
        if (x + width > RIGHT)
            x = 12, row += 16;
        time_box(out, x, x + 11, row, 11, colours[k]);
        canvas_text(out, x + 16, row + 10, ALIGN_LEFT, INK_MUTED, false,
                    run_time_names[k]);
        x += width;
    }
    for (int r = 0; r < report->run_count; r++) {
        const struct run_history *run = report->runs[r];
        double wall_us = (double)(run->end_us - run->begin_us);
        double y = 46 + 30 * r, at = LEFT;
        char text[40];
        plot_cut(report->names[r], text, 22);
        canvas_begin(out, report->names[r]);
        canvas_text(out, LEFT - 10, y + 15, ALIGN_RIGHT, INK_TEXT, false, text);
        for (int k = 0; k < RUN_TIMES && wall_us > 0; k++) {
            double width =
                (double)run->time_us[k] / wall_us * (RIGHT - 60 - LEFT);
            time_box(out, at, at + width, y, 20, colours[k]);
            at += width;
        }
        snprintf(text, sizeof text, "%.1f %%",
                 100 * report->figures[r].goodput);
        canvas_text(out, RIGHT, y + 15, ALIGN_RIGHT, INK_TEXT, true,
                    wall_us > 0 ? text : "?");
        canvas_end(out);
    }
}
