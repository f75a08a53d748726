/* The tables of the page. A cell is empty where nothing is known, so a table has
 * the same columns for every run; rows of which no run knows anything are left
 * out. Long ones show their newest rows and say how many there are, for somebody
 * who asks what has happened begins at the end. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "src/base/units.h"
#include "src/report/report_impl.h"

#define ROWS_MAX 200 /* of attempts, and of events, of a run */

static void tables_cell(FILE *out, const char *text)
{
    fputs("<td>", out);
    canvas_escape(out, text);
    fputs("</td>", out);
}

static void cell_number(FILE *out, const char *format, double value)
{
    char text[64] = "";
    if (isfinite(value))
        /* formats are those below */
        snprintf(text, sizeof text, format, value);
    fprintf(out, "<td class=\"n\">%s</td>", text);
}

static void cell_seconds(FILE *out, int64_t us)
{
    fprintf(out, "<td class=\"n\">%s</td>", UNITS_SECONDS((double)us / 1e6));
}

static void cell_bytes(FILE *out, double bytes)
{
    fprintf(out, "<td class=\"n\">%s</td>",
            bytes > 0 ? UNITS_BYTES(bytes) : "");
}

static void cell_time(FILE *out, int64_t us)
{
    char text[64] = "";
    time_t seconds = (time_t)(us / 1000000);
    struct tm parts;
    if (us > 0 && gmtime_r(&seconds, &parts) != NULL)
        strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
    fprintf(out, "<td class=\"n\">%s</td>", text);
}

/* --- figures of several runs ------------------------------------------------- */

static void figure_row(const struct report *report, FILE *out, const char *what,
                       const char *format, const double *values, double factor)
{
    bool there = false;
    for (int r = 0; r < report->run_count; r++)
        there = there || isfinite(values[r]);
    if (!there)
        return;
    fprintf(out, "<tr><td>%s</td>", what);
    for (int r = 0; r < report->run_count; r++)
        cell_number(out, format, values[r] * factor);
    fputs("</tr>\n", out);
}

static void head_of_runs(const struct report *report, FILE *out)
{
    fputs("<div class=\"scroll\"><table><tr><th></th>", out);
    for (int r = 0; r < report->run_count; r++) {
        fputs("<th class=\"n\">", out);
        canvas_escape(out, report->names[r]);
        fputs("</th>", out);
    }
    fputs("</tr>\n", out);
}

/* Rows of the table that compares runs: what, how it is printed, its value of run
 * r with the figures f, and what it is multiplied with. */
#define FIGURES(X)                                                             \
    X("training loss", "%.4f", f->loss, 1)                                     \
    X("evaluation loss", "%.4f", f->eval_loss, 1)                              \
    X("best evaluation loss", "%.4f", f->eval_best, 1)                         \
    X("steps", "%.0f", (double)report->runs[r]->last_step, 1)                  \
    X("tokens", "%.0f", (double)report->runs[r]->tokens, 1)                    \
    X("wall time, s", "%.1f", f->wall_s, 1)                                    \
    X("goodput, %", "%.1f", f->goodput, 100)                                   \
    X("tokens per second (median)", "%.1f", f->tokens_per_s, 1)                \
    X("MFU, % (median)", "%.2f", f->mfu, 100)                                  \
    X("step, ms (median)", "%.1f", f->step_ms, 1)                              \
    X("own work of the median rank, ms (median)", "%.1f", f->work_ms, 1)       \
    X("of the slowest", "%.1f", f->work_ms_max, 1)                             \
    X("which is, in the newest 20 steps, rank", "%.0f", f->slowest_rank, 1)    \
    X("longest wait for other ranks, ms (median)", "%.1f", f->wait_ms_max, 1)  \
    X("of rank", "%.0f", f->waiting_rank, 1)                                   \
    X("longest wait for samples, ms (median)", "%.1f", f->loader_ms, 1)        \
    X("of rank", "%.0f", f->loader_rank, 1)                                    \
    X("attempts", "%.0f", (double)report->runs[r]->attempt_count, 1)           \
    X("GPU or core hours", "%.4g", f->device_hours, 1)                         \
    X("cost", "%.4g", f->cost, 1)                                              \
    X("energy, kWh", "%.4g", f->energy_j, 1 / 3.6e6)                           \
    X("tokens per joule", "%.3g", f->tokens_per_j, 1)

void report_tables_figures(const struct report *report, FILE *out)
{
    double values[REPORT_RUNS_MAX];
    fputs("<h2>Figures</h2>\n", out);
    head_of_runs(report, out);
#define ROW(what, format, value, factor)                                       \
    for (int r = 0; r < report->run_count; r++) {                              \
        const struct report_figures *f = &report->figures[r];                  \
        (void)f;                                                               \
        values[r] = (value);                                                   \
    }                                                                          \
    figure_row(report, out, what, format, values, factor);
    FIGURES(ROW)
#undef ROW
    fputs("</table></div>\n", out);
}

/* --- time -------------------------------------------------------------------- */

void report_tables_goodput(const struct report *report, FILE *out)
{
    head_of_runs(report, out);
    for (int k = 0; k <= RUN_TIMES; k++) {
        fprintf(out, "<tr><td>%s</td>",
                k < RUN_TIMES ? run_time_names[k] : "wall time");
        for (int r = 0; r < report->run_count; r++) {
            const struct run_history *run = report->runs[r];
            double wall_us = (double)(run->end_us - run->begin_us);
            double us = k < RUN_TIMES ? (double)run->time_us[k] : wall_us;
            fprintf(out, "<td class=\"n\">%.3f s", us / 1e6);
            if (wall_us > 0)
                fprintf(out, " <small>%.1f %%</small>", 100 * us / wall_us);
            fputs("</td>", out);
        }
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

/* --- attempts ---------------------------------------------------------------- */

static void attempt_row(const struct run_attempt *a, FILE *out)
{
    fprintf(out, "<tr><td class=\"n\">%d</td>", a->number);
    cell_time(out, a->start_us);
    if (a->start_us > 0)
        cell_seconds(out, a->end_us - a->start_us);
    else
        tables_cell(out, "");
    cell_number(out, "%.0f", a->ranks);
    cell_number(out, "%.0f", a->nodes);
    cell_number(out, "%.0f", a->from_step >= 0 ? (double)a->from_step : NAN);
    cell_number(out, "%.0f", a->last_step >= 0 ? (double)a->last_step : NAN);
    cell_number(out, "%.0f", (double)a->wasted_steps);
    cell_bytes(out, (double)a->memory_planned);
    cell_bytes(out, (double)a->memory_peak);
    cell_number(out, "%.0f", a->code >= 0 ? (double)a->code : NAN);
    tables_cell(out,
                a->reason[0] != '\0' || a->ended ? a->reason : "told no end");
    fputs("</tr>\n", out);
}

void report_tables_attempts(const struct report *report, FILE *out)
{
    for (int r = 0; r < report->run_count; r++) {
        const struct run_history *run = report->runs[r];
        size_t first =
            run->attempt_count > ROWS_MAX ? run->attempt_count - ROWS_MAX : 0;
        fputs("<details open><summary>Attempts", out);
        report_put_of(report, r, out);
        if (first > 0)
            fprintf(out, ", the last %d of %zu", ROWS_MAX, run->attempt_count);
        fputs("</summary><div class=\"scroll\"><table><tr><th class=\"n\">"
              "attempt</th><th class=\"n\">start, UTC</th><th class=\"n\">time"
              "</th><th class=\"n\">ranks</th><th class=\"n\">nodes</th>"
              "<th class=\"n\">from step</th><th class=\"n\">to step</th>"
              "<th class=\"n\">done again</th><th class=\"n\">memory planned"
              "</th><th class=\"n\">peak</th><th class=\"n\">code</th>"
              "<th>end</th></tr>\n",
              out);
        for (size_t i = first; i < run->attempt_count; i++)
            attempt_row(&run->attempts[i], out);
        fputs("</table></div></details>\n", out);
    }
}

void report_tables_events(const struct report *report, FILE *out)
{
    for (int r = 0; r < report->run_count; r++) {
        const struct run_history *run = report->runs[r];
        size_t first =
            run->event_count > ROWS_MAX ? run->event_count - ROWS_MAX : 0;
        if (run->event_count == 0)
            continue;
        fputs("<details open><summary>Nodes, restarts and changes", out);
        report_put_of(report, r, out);
        if (first > 0 || run->events_left_out > 0)
            fprintf(out, " (%d of %lld)", ROWS_MAX,
                    (long long)(run->event_count + run->events_left_out));
        fputs("</summary><div class=\"scroll\"><table><tr><th class=\"n\">UTC"
              "</th><th>event</th><th class=\"n\">attempt</th><th>node</th>"
              "<th>reason</th></tr>\n",
              out);
        for (size_t i = first; i < run->event_count; i++) {
            const struct run_event *event = &run->events[i];
            fputs("<tr>", out);
            cell_time(out, event->time_us);
            tables_cell(out, event->name);
            cell_number(out, "%.0f", event->attempt);
            tables_cell(out, event->node);
            tables_cell(out, event->text);
            fputs("</tr>\n", out);
        }
        fputs("</table></div></details>\n", out);
    }
}

/* --- settings ---------------------------------------------------------------- */

/* Whether no run before this one has the setting: so each key of any run comes
 * once, in the order of the first run that has it. */
static bool first_with(const struct report *report, int run, const char *key)
{
    for (int r = 0; r < run; r++)
        for (size_t i = 0; i < report->runs[r]->setting_count; i++)
            if (strcmp(report->runs[r]->settings[i].key, key) == 0)
                return false;
    return true;
}

/* Settings are two tables, those that differ with a column for each run, and those
 * that are the same with one. run.dir is no difference that anybody asks for. */
static void setting_row(const struct report *report, FILE *out, const char *key,
                        bool differing)
{
    bool differs = false;
    for (int r = 1; r < report->run_count; r++)
        differs =
            differs || strcmp(run_history_setting(report->runs[0], key),
                              run_history_setting(report->runs[r], key)) != 0;
    if (differs != differing || strcmp(key, "run.dir") == 0)
        return;
    fputs("<tr><td><code>", out);
    canvas_escape(out, key);
    fputs("</code></td>", out);
    for (int r = 0; r < (differing ? report->run_count : 1); r++)
        tables_cell(out, run_history_setting(report->runs[r], key));
    fputs("</tr>\n", out);
}

static void setting_table(const struct report *report, FILE *out,
                          bool differing)
{
    fputs("<div class=\"scroll\"><table><tr><th>setting</th>", out);
    for (int r = 0; r < (differing ? report->run_count : 1); r++) {
        fputs("<th>", out);
        canvas_escape(out, differing || report->run_count == 1
                               ? report->names[r]
                               : "all");
        fputs("</th>", out);
    }
    fputs("</tr>\n", out);
    for (int r = 0; r < report->run_count; r++)
        for (size_t i = 0; i < report->runs[r]->setting_count; i++)
            if (first_with(report, r, report->runs[r]->settings[i].key))
                setting_row(report, out, report->runs[r]->settings[i].key,
                            differing);
    fputs("</table></div>\n", out);
}

void report_tables_settings(const struct report *report, FILE *out)
{
    if (report->run_count > 1) {
        fputs("<h2>Settings that differ</h2>\n", out);
        setting_table(report, out, true);
    }
    fprintf(out, "<details><summary>%s</summary>\n",
            report->run_count > 1 ? "Settings that are the same" : "Settings");
    setting_table(report, out, false);
    fputs("</details>\n", out);
}

/* --- what the page says in words --- */

#define SAMPLES_MAX 24

/* The scores of each run's newest scoring alone; the plot has the others. */
void report_texts_tasks(const struct report *report, FILE *out)
{
    bool begun = false;
    for (int r = 0; r < report->run_count; r++) {
        const struct run_history *run = report->runs[r];
        for (size_t i = 0; i < run->task_count; i++) {
            const struct run_task *task = &run->tasks[i];
            if (task->step != run->tasks[run->task_count - 1].step)
                continue;
            if (!begun)
                fputs("<h2>Tasks, scored last</h2><div class=\"scroll\"><table>"
                      "<tr><th>run</th><th>task</th><th class=\"n\">step</th>"
                      "<th class=\"n\">examples</th><th class=\"n\">accuracy"
                      "</th></tr>\n",
                      out);
            begun = true;
            fputs("<tr><td>", out);
            canvas_escape(out, report->names[r]);
            fputs("</td><td>", out);
            canvas_escape(out, task->name);
            fprintf(out,
                    "</td><td class=\"n\">%lld</td><td class=\"n\">%lld</td>"
                    "<td class=\"n\">%.1f %%</td></tr>\n",
                    (long long)task->step, (long long)task->examples,
                    100 * task->accuracy);
        }
    }
    if (begun)
        fputs("</table></div>\n", out);
}

void report_texts_samples(const struct report *report, FILE *out)
{
    for (int r = 0; r < report->run_count; r++) {
        const struct run_history *run = report->runs[r];
        size_t first = run->sample_count > SAMPLES_MAX
                           ? run->sample_count - SAMPLES_MAX
                           : 0;
        if (run->sample_count == 0)
            continue;
        fputs("<h2>Samples", out);
        report_put_of(report, r, out);
        if (first > 0 || run->samples_left_out > 0)
            fprintf(out, ", the last %d", SAMPLES_MAX);
        fputs("</h2><div class=\"scroll\"><table><tr><th class=\"n\">step</th>"
              "<th>prompt and what the model writes behind it</th></tr>\n",
              out);
        for (size_t i = first; i < run->sample_count; i++) {
            const struct run_sample *sample = &run->samples[i];
            fprintf(out, "<tr><td class=\"n\">%lld</td><td><pre><i>",
                    (long long)sample->step);
            canvas_escape(out, sample->prompt != NULL ? sample->prompt : "");
            fputs("</i>", out);
            canvas_escape(out, sample->text);
            fputs("</pre></td></tr>\n", out);
        }
        fputs("</table></div>\n", out);
    }
}

static void note_lines(const struct report *report, FILE *out)
{
    for (int r = 0; r < report->run_count; r++) {
        const struct run_history *run = report->runs[r];
        fputs("<p>", out);
        canvas_escape(out, report->names[r]);
        fprintf(out,
                ": %lld steps were done again; %lld lines of its files were "
                "torn or foreign and passed over.</p>\n",
                (long long)run->replayed_steps, (long long)run->skipped_lines);
    }
}

/* The page explains its own figures: who gets it by mail has no manual. */
void report_texts_notes(const struct report *report, FILE *out)
{
    fputs(
        "<h2>How these figures are made</h2>\n"
        "<p>Lines are means over equally many steps where there are more steps "
        "than the plot has room for; the band goes from the least to the "
        "largest. A step that was done again after a restart counts once, with "
        "its last values. Thin upright lines: an attempt began there.</p>\n"
        "<p><b>Goodput = training / wall time</b>, where wall time is from the "
        "first start to the last sign of life, and wall time = training + "
        "initialization + data loading + checkpoints + wasted steps + "
        "detection "
        "+ node checks + queue + launch + between attempts + evaluation + "
        "other, exactly:</p>\n"
        "<ul><li>initialization: from an attempt's start to its first "
        "step</li><li>data loading: the slowest rank waited for samples</li>"
        "<li>checkpoints: training waited for a copy of the state; for all of "
        "a save where there was no copy or no step followed</li><li>wasted "
        "steps: steps that a later attempt did again</li><li>detection: from "
        "an "
        "attempt's last sign of life until the launch script had decided what "
        "next; node checks; queue: of a requeued job; launch: from the checks "
        "to the next attempt's start; between attempts: all of it where no "
        "launch script told</li>"
        "<li>evaluation: loss on held-out text</li><li>training: all other "
        "steps</li><li>other: the rest: scoring tasks, samples, logs, the "
        "end</li></ul>\n"
        "<p>Hours and cost are those of attempts (ranks x time on GPUs, ranks "
        "x threads x time on processors), not of nodes that wait between them. "
        "MFU is by LLM Foundry's count: 3 (2 P S + 4 L d S&#178;) FLOPs a "
        "sequence. Medians are over the means of at most 1024 parts of the "
        "run.</p>\n",
        out);
    note_lines(report, out);
}
