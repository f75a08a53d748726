/* What the page says in words: scores of tasks, samples, and how its figures
 * are computed. */
#include <stdio.h>

#include "src/report/report_impl.h"

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
