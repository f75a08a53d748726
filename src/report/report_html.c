/* The page: head, tiles, plots, tables. It is one file that needs nothing else: no
 * font, no image, no library, no network, and its policy (CSP) forbids the
 * browser to fetch any. So it can be sent by mail and opened in ten years.
 * Everything from files goes through canvas_escape(): names of runs, nodes,
 * settings and generated texts are other people's. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/fsio.h"
#include "src/base/units.h"
#include "src/report/report_impl.h"
#include "src/report/report_style.h"

static void html_tile(FILE *out, const char *value, const char *what)
{
    fputs("<div class=\"tile\"><b>", out);
    canvas_escape(out, value);
    fputs("</b><span>", out);
    canvas_escape(out, what);
    fputs("</span></div>\n", out);
}

static void tile_number(FILE *out, const char *format, double value,
                        const char *what)
{
    char text[64];
    if (isnan(value))
        return;
    /* formats are those below */
    snprintf(text, sizeof text, format, value);
    html_tile(out, text, what);
}

typedef void (*units_fn)(double value, char *text, size_t size);

static void tile_units(FILE *out, units_fn units, double value,
                       const char *what)
{
    char text[64];
    if (isnan(value))
        return;
    units(value, text, sizeof text);
    html_tile(out, text, what);
}

static void html_tiles(const struct report *report, FILE *out)
{
    const struct run_history *run = report->runs[0];
    const struct report_figures *f = &report->figures[0];
    char text[96];
    const char *name;
    json_t *set;
    fputs("<div class=\"tiles\">\n", out);
    tile_number(out, "%.4f", f->loss, "training loss");
    snprintf(text, sizeof text, "best evaluation, step %lld",
             (long long)f->eval_best_step);
    tile_number(out, "%.4f", f->eval_best, text);
    json_object_foreach(run->sets, name, set)
    {
        snprintf(text, sizeof text, "newest evaluation of %.64s", name);
        tile_number(out, "%.4f",
                    json_number_value(json_object_get(set, "loss")), text);
    }
    tile_number(out, "%.0f", run->last_step >= 0 ? (double)run->last_step : NAN,
                "steps");
    tile_units(out, units_count, (double)run->tokens, "tokens");
    tile_units(out, units_seconds, f->wall_s, "wall time");
    tile_number(out, "%.1f %%", 100 * f->goodput, "goodput");
    tile_units(out, units_count, f->tokens_per_s, "tokens per second (median)");
    tile_number(out, "%.1f %%", 100 * f->mfu, "MFU (median)");
    tile_number(out, "%.0f", (double)run->attempt_count, "attempts");
    snprintf(text, sizeof text, "%s hours", report_device(run));
    tile_number(out, "%.4g", f->device_hours, text);
    snprintf(text, sizeof text, "cost, at %g per %s hour", report->price,
             report_device(run));
    tile_number(out, "%.4g", f->cost, text);
    tile_number(out, "%.4g kWh", f->energy_j / 3.6e6, "energy");
    tile_number(out, "%.3g", f->tokens_per_j, "tokens per joule");
    fputs("</div>\n", out);
}

static void svg_begin(FILE *out, const char *id, const char *title,
                      double width, double height, const char *more)
{
    fprintf(out,
            "<svg id=\"%s\" role=\"img\" viewBox=\"0 0 %g %g\"%s>"
            "<title>",
            id, width, height, more);
    canvas_escape(out, title);
    fputs("</title>\n", out);
}

/* data-frame: where the data lie and what they range over, by which the script
 * tells values under the pointer; the last number is 1 for a logarithmic y. */
static enum err draw_plot(const struct plot *plot, FILE *out)
{
    char more[320];
    struct plot_frame f = plot_frame(plot);
    snprintf(more, sizeof more,
             " data-frame=\"%g %g %g %g %.9g %.9g %.9g %.9g %d\"", f.left,
             f.right, f.top, f.bottom, f.x0, f.x1, f.y0, f.y1, f.log);
    fputs("<figure>", out);
    svg_begin(out, plot->id, plot->title, PLOT_WIDTH, f.height, more);
    TRY(plot_draw(plot, out));
    fputs("</svg></figure>\n", out);
    return ERR_OK;
}

typedef void (*draw_fn)(const struct report *report, FILE *out);

static void draw_wide(const struct report *report, const char *id,
                      const char *title, double height, draw_fn draw, FILE *out)
{
    fputs("<figure class=\"wide\">", out);
    svg_begin(out, id, title, REPORT_WIDE, height, "");
    draw(report, out);
    fputs("</svg></figure>\n", out);
}

static void put_names(const struct report *report, FILE *out)
{
    for (int r = 0; r < report->run_count; r++) {
        fputs(r == 0 ? "" : ", ", out);
        canvas_escape(out, report->names[r]);
    }
}

static void html_head(const struct report *report, FILE *out)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\""
          "default-src 'none'; style-src 'unsafe-inline'; script-src "
          "'unsafe-inline'; img-src data:\">\n<title>",
          out);
    put_names(report, out);
    fprintf(out,
            " - tessera report</title>\n<style>\n%s</style></head>\n"
            "<body><main>\n<h1>",
            report_style);
    put_names(report, out);
    fputs("</h1>\n", out);
}

static const char *state_of(const struct run_history *run)
{
    if (run->attempt_count == 0)
        return "nothing has started";
    const struct run_attempt *last = &run->attempts[run->attempt_count - 1];
    if (!last->ended)
        return "the last attempt has told no end: it runs, or it died";
    return last->code == 0    ? "finished"
           : last->code == 85 ? "stopped in order: it goes on where it was"
                              : "ended with an error";
}

static void html_subtitle(const struct report *report, FILE *out)
{
    for (int r = 0; r < report->run_count; r++) {
        const struct run_history *run = report->runs[r];
        fputs("<p class=\"muted\">", out);
        canvas_escape(out, run->dir);
        fprintf(out, ": %s", state_of(run));
        if (run->attempt_count > 0) {
            const struct run_attempt *last =
                &run->attempts[run->attempt_count - 1];
            fprintf(out, "; %d rank%s on %d node%s", last->ranks,
                    last->ranks == 1 ? "" : "s", last->nodes,
                    last->nodes == 1 ? "" : "s");
            fputs(last->devices[0] != '\0' ? ", " : "", out);
            canvas_escape(out, last->devices);
        }
        fputs("</p>\n", out);
    }
}

static enum err html_page(const struct report *report, FILE *out)
{
    html_head(report, out);
    html_subtitle(report, out);
    if (report->run_count == 1)
        html_tiles(report, out);
    else
        report_tables_figures(report, out);
    fputs("<h2>Training</h2>\n<div class=\"plots\">\n", out);
    for (int i = 0; i < report->plot_count; i++)
        TRY(draw_plot(&report->plots[i], out));
    fputs("</div>\n", out);
    if (report->plot_count == 0)
        fputs("<p>No step is recorded yet.</p>\n", out);
    fputs("<h2>Attempts, checkpoints and nodes</h2>\n", out);
    draw_wide(report, "timeline", "Attempts, checkpoints and nodes over time",
              report_time_height(report), report_time_draw, out);
    report_tables_attempts(report, out);
    report_tables_events(report, out);
    fputs("<h2>Where the time went</h2>\n", out);
    draw_wide(report, "goodput", "Goodput, and what time was lost to",
              report_time_goodput_height(report), report_time_goodput_draw,
              out);
    report_tables_goodput(report, out);
    report_texts_tasks(report, out);
    report_texts_samples(report, out);
    report_tables_settings(report, out);
    report_texts_notes(report, out);
    fprintf(out, "</main>\n<script>\n%s</script>\n</body></html>\n",
            report_script);
    return ERR_OK;
}

/* Written in memory first: a page is either whole or not there. */
enum err report_html(const struct report *report, const char *path)
{
    assert(report->run_count > 0);
    enum err rc = ERR_OK;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    rc = html_page(report, out);
    if (fclose(out) != 0 && rc == ERR_OK)
        rc = err_set(ERR_MEMORY, "out of memory");
    if (rc == ERR_OK)
        rc = fsio_write_atomic(path, text, bytes);
    free(text);
    return rc;
}
