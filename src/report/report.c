/* Makes a report's parts, names its runs apart, and writes its pictures. */
#include "src/report/report.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/report/report_parts.h"

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
    memcpy(report->names[run], text, strlen(text) + 1);
}

enum err report_create(struct run_history *const *runs, int count, double price,
                       struct report *out)
{
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

/* --- pictures --------------------------------------------------------------- */

static enum err write_png(const char *dir, const char *id,
                          struct canvas *canvas)
{
    char path[FSIO_PATH_MAX];
    TRY(fsio_path(path, "%s/%s.png", dir, id));
    return canvas_png_write(canvas, path);
}

static enum err png_plot(const struct plot *plot, const char *dir)
{
    enum err rc = ERR_OK;
    struct canvas canvas = { .self = NULL };
    TRY_OUT(canvas_png_create(PLOT_WIDTH, plot_frame(plot).height, &canvas));
    TRY_OUT(plot_draw(plot, &canvas));
    TRY_OUT(write_png(dir, plot->id, &canvas));
out:
    canvas_png_destroy(&canvas);
    return rc;
}

typedef void (*draw_fn)(const struct report *report,
                        const struct canvas *canvas);

static enum err png_wide(const struct report *report, double height,
                         draw_fn draw, const char *id, const char *dir)
{
    enum err rc = ERR_OK;
    struct canvas canvas = { .self = NULL };
    TRY_OUT(canvas_png_create(REPORT_WIDE, height, &canvas));
    draw(report, &canvas);
    TRY_OUT(write_png(dir, id, &canvas));
out:
    canvas_png_destroy(&canvas);
    return rc;
}

enum err report_png(const struct report *report, const char *dir)
{
    TRY(fsio_mkdirs(dir));
    for (int i = 0; i < report->plot_count; i++)
        TRY(png_plot(&report->plots[i], dir));
    TRY(png_wide(report, report_time_height(report), report_time_draw,
                 "timeline", dir));
    return png_wide(report, report_time_goodput_height(report),
                    report_time_goodput_draw, "goodput", dir);
}
