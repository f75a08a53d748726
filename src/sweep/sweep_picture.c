/* A sweep as a picture: finished runs by time and quality, and the line of those
 * that none beats in both. A colour for each value of the first setting, beside
 * each dot the values of the others: what differs, not the folder's name. The file
 * has its colours in it, light ones on white, for a page that shows it as an
 * image has no style for it. */
#include "src/sweep/sweep.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/report/plot.h"

#define WORDS_BYTES 64
#define LABEL_BYTES 128
#define GREY (INK_SERIES_COUNT - 2)

static const char picture_style[] =
    "<style>text{font:12px sans-serif}path{fill:none}"
    ".f0{fill:#1a1f24}.f1{fill:#5c6670}.s2{stroke:#8a939c}.s3{stroke:#e6e9ed}"
    ".f4{fill:#0072b2}.f5{fill:#d55e00}.f6{fill:#009e73}.f7{fill:#cc79a7}"
    ".f8{fill:#e69f00}.f9{fill:#56b4e9}.s10{stroke:#6b6b6b}.f11{fill:#8c6d31}"
    "</style>\n";

/* The values of the settings from `axis` on that have several. */
static void label_of(const struct sweep *sweep, int64_t run, int axis,
                     char out[LABEL_BYTES])
{
    out[0] = '\0';
    for (size_t used = 0; axis < sweep->axis_count; axis++) {
        char words[WORDS_BYTES];
        plot_plain(sweep_value(sweep, run, axis), words, sizeof words);
        if (used < LABEL_BYTES && sweep->axes[axis].count > 1)
            used += (size_t)snprintf(out + used, LABEL_BYTES - used, "%s%s",
                                     used > 0 ? ", " : "", words);
    }
}

/* Above the dot and the line, on the side where there is room. */
static void draw_label(const struct plot_frame *f, double x, double y,
                       const char *text, FILE *out)
{
    double at = plot_place_x(f, x);
    bool left = at > (f->left + f->right) / 2;
    canvas_text(out, at + (left ? -4 : 4), plot_place_y(f, y) - 6,
                left ? ALIGN_RIGHT : ALIGN_LEFT, INK_TEXT, false, text);
}

struct picture {
    const struct sweep *sweep;
    const struct sweep_result *results;
    struct plot plot;
    double unit; /* seconds of one on the axis of time */
    int colours; /* values of the first setting; 0: all dots have one */
};

static bool shown(const struct sweep_result *r)
{
    return r->state == SWEEP_FINISHED && isfinite(r->quality);
}

/* The front goes down in steps: what lies behind it is beaten. */
static enum err add_front(struct picture *p)
{
    struct plot_series *front =
        plot_add(&p->plot, "none is as good in less time", PLOT_LINE, GREY);
    double after = -1, last = NAN;
    for (;;) {
        const struct sweep_result *next = NULL;
        for (int64_t i = 0; i < p->sweep->runs; i++)
            if (p->results[i].front && p->results[i].seconds > after &&
                (next == NULL || p->results[i].seconds < next->seconds))
                next = &p->results[i];
        if (next == NULL)
            return ERR_OK;
        after = next->seconds;
        if (!isnan(last))
            TRY(plot_point(front, after / p->unit, last, NAN, NAN));
        last = next->quality;
        TRY(plot_point(front, after / p->unit, last, NAN, NAN));
    }
}

static enum err add_dots(struct picture *p)
{
    const struct sweep_axis *first = &p->sweep->axes[0];
    for (int c = 0; c < (p->colours > 0 ? p->colours : 1); c++) {
        char words[WORDS_BYTES];
        plot_plain(first->list[c], words, sizeof words);
        struct plot_series *dots =
            plot_add(&p->plot, p->colours > 0 ? words : "", PLOT_POINTS,
                     c < GREY ? c : c + 1);
        for (int64_t i = 0; i < p->sweep->runs; i++)
            if (shown(&p->results[i]) &&
                (p->colours == 0 ||
                 strcmp(sweep_value(p->sweep, i, 0), first->list[c]) == 0))
                TRY(plot_point(dots, p->results[i].seconds / p->unit,
                               p->results[i].quality, NAN, NAN));
    }
    return ERR_OK;
}

static enum err draw(struct picture *p, FILE *out)
{
    struct plot_frame f = plot_frame(&p->plot);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" "
            "height=\"%g\" viewBox=\"0 0 %g %g\">\n<rect width=\"100%%\" "
            "height=\"100%%\" fill=\"#fff\"/>\n%s",
            1.5 * PLOT_WIDTH, 1.5 * f.height, PLOT_WIDTH, f.height,
            picture_style);
    TRY(plot_draw(&p->plot, out));
    for (int64_t i = 0; i < p->sweep->runs; i++) {
        char label[LABEL_BYTES];
        label_of(p->sweep, i, p->colours > 0 ? 1 : 0, label);
        if (shown(&p->results[i]))
            draw_label(&f, p->results[i].seconds / p->unit,
                       p->results[i].quality, label, out);
    }
    fputs("</svg>\n", out);
    return ERR_OK;
}

enum err sweep_picture(const struct sweep *sweep,
                       const struct sweep_result *results, FILE *out)
{
    enum err rc = ERR_OK;
    struct picture *p = NULL;
    double longest = 0;
    TRY(new_zeroed(&p, 1));
    p->sweep = sweep;
    p->results = results;
    if (sweep->axes[0].count > 1 && sweep->axes[0].count < INK_SERIES_COUNT)
        p->colours = sweep->axes[0].count;
    for (int64_t i = 0; i < sweep->runs; i++)
        if (shown(&results[i]))
            longest = fmax(longest, results[i].seconds);
    p->unit = longest < 300 ? 1 : longest < 3 * 3600 ? 60 : 3600;
    plot_cut(sweep->settings.metric, p->plot.title, sizeof p->plot.title);
    snprintf(p->plot.x_label, sizeof p->plot.x_label, "%s of training",
             p->unit < 60     ? "seconds"
             : p->unit < 3600 ? "minutes"
                              : "hours");
    p->plot.x_parts = true;
    TRY_OUT(add_front(p));
    TRY_OUT(add_dots(p));
    rc = draw(p, out);
out:
    plot_free(&p->plot);
    free(p);
    return rc;
}
