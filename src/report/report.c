/* Makes a report's parts, and names its runs apart. All that is drawn or printed
 * is worked out here, once, from histories that are read: page and JSON show the
 * same figures, and a page of a run that goes on is one moment of it. */
#include "src/report/report.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/report/report_impl.h"

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
        TRY(report_figures_make(runs[r], price, &out->figures[r]));
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
