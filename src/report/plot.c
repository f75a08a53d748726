/* Scales, axes, legend and series of a plot.
 *
 * A plot is drawn in two walks over its series: the first finds the ranges, from
 * which the frame follows (plot_frame()), the second draws into it. Data become
 * units by two straight lines, y by one of logarithms where that shows more. The
 * page's script has the frame's numbers as attributes and goes the same way back,
 * from the pointer to the value, so no value is written twice.
 *
 * Points are x, y, low, high, four doubles each; a y that is not finite breaks
 * the line there, which is how a gap, a NaN loss or a missing bucket looks. */
#include "src/report/plot.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/new.h"

#define LEFT 54.0
#define RIGHT (PLOT_WIDTH - 12.0)
#define HEIGHT 190.0 /* of the data */
#define LETTER 7.0   /* the width of one, about */
#define LEGEND_ROW 16.0
#define LEGEND_TOP 40.0
#define LOG_RATIO 30.0
#define TICKS_MAX 24

void plot_cut(const char *text, char *out, size_t size)
{
    assert(size > 4); /* "..." */
    size_t bytes = strlen(text);
    if (bytes < size) {
        memcpy(out, text, bytes + 1);
        return;
    }
    snprintf(out, size, "%.*s...", (int)size - 4, text);
}

void plot_plain(const char *value, char *out, size_t size)
{
    size_t used = 0;
    assert(size > 4);
    for (const char *c = value; *c != '\0' && used + 1 < size; c++) {
        size_t key = strspn(c, "abcdefghijklmnopqrstuvwxyz0123456789_");
        bool begins = used == 0 || out[used - 1] == ' ';
        if (begins && key > 0 && strncmp(c + key, " = ", 3) == 0)
            c += key + 2;
        else if ((*c == ' ' && !begins) || strchr("(){}[];\" ", *c) == NULL)
            out[used++] = *c;
    }
    while (used > 0 && out[used - 1] == ' ')
        used--;
    snprintf(out + used, size - used, "%s", used == 0 ? "none" : "");
}

struct plot_series *plot_add(struct plot *plot, const char *name,
                             enum plot_style style, int colour)
{
    assert(colour >= 0);
    if (plot->series_count == PLOT_SERIES_MAX)
        return NULL;
    struct plot_series *series = &plot->series[plot->series_count++];
    *series = (struct plot_series){ .style = style,
                                    .colour = colour % INK_SERIES_COUNT };
    plot_cut(name, series->name, sizeof series->name);
    return series;
}

enum err plot_point(struct plot_series *series, double x, double y, double low,
                    double high)
{
    assert(isfinite(x));
    if (series == NULL)
        return ERR_OK;
    TRY(array_room(&series->at, &series->room, 4 * (series->count + 1)));
    double *at = series->at + 4 * series->count++;
    at[0] = x;
    at[1] = isfinite(y) ? y : NAN;
    at[2] = isfinite(low) ? low : NAN;
    at[3] = isfinite(high) ? high : NAN;
    return ERR_OK;
}

void plot_mark(struct plot *plot, double x)
{
    if (plot->mark_count < PLOT_MARKS_MAX)
        plot->marks[plot->mark_count++] = x;
}

bool plot_is_empty(const struct plot *plot)
{
    for (int s = 0; s < plot->series_count; s++)
        for (size_t i = 0; i < plot->series[s].count; i++)
            if (!isnan(plot->series[s].at[4 * i + 1]))
                return false;
    return true;
}

void plot_free(struct plot *plot)
{
    for (int s = 0; s < plot->series_count; s++)
        free(plot->series[s].at);
    plot->series_count = 0;
}

void plot_number(double value, char *text, size_t size)
{
    assert(size > 0);
    double absolute = fabs(value);
    if (absolute >= 1e15 || (absolute < 1e-3 && absolute > 0)) {
        /* 1e-4 instead of 1e-04 */
        int exponent = (int)floor(log10(absolute) + 1e-9);
        snprintf(text, size, "%.3ge%d", value / pow(10, exponent), exponent);
    } else if (absolute >= 1e12) {
        snprintf(text, size, "%.4gT", value / 1e12);
    } else if (absolute >= 1e9) {
        snprintf(text, size, "%.4gG", value / 1e9);
    } else if (absolute >= 1e6) {
        snprintf(text, size, "%.4gM", value / 1e6);
    } else if (absolute >= 1e4) {
        snprintf(text, size, "%.4gk", value / 1e3);
    } else {
        snprintf(text, size, "%.4g", value);
    }
}

/* --- scales ----------------------------------------------------------------- */

static void include(double value, double *low, double *high)
{
    *low = fmin(*low, value); /* fmin and fmax leave NaN out */
    *high = fmax(*high, value);
}

/* A range that is not empty. */
static void plot_widen(double *low, double *high)
{
    if (!(*low <= *high)) {
        *low = 0;
        *high = 1;
    }
    if (*high - *low <= 1e-9 * fmax(fabs(*low), fabs(*high))) {
        double more = *low != 0 ? fabs(*low) * 0.05 : 0.5;
        *low -= more;
        *high += more;
    }
}

/* Losses fall by half in the first percent of a run and by hundredths in the rest:
 * where the largest value is 30 times the least, and none is 0 or below, the
 * scale is logarithmic. Margins are 4 and 5 % of the height, so that a line does
 * not run along the frame. */
static void spread_y(const struct plot *plot, struct plot_frame *frame)
{
    double low = frame->y0, high = frame->y1;
    frame->log = plot->scale == PLOT_SPREAD && low > 0 &&
                 high / low > LOG_RATIO && isfinite(high / low);
    if (plot->scale == PLOT_FROM_ZERO)
        low = fmin(low, 0);
    if (frame->log) {
        frame->y0 = fmax(low / pow(high / low, 0.04), DBL_MIN);
        frame->y1 = fmin(high * pow(high / low, 0.04), DBL_MAX);
        return;
    }
    plot_widen(&low, &high);
    double margin = 0.05 * (high - low);
    frame->y0 = plot->scale == PLOT_FROM_ZERO && low == 0 ? 0 : low - margin;
    frame->y1 = high + margin;
}

/* The step between ticks that makes about `count` of them: 1, 2 or 5. */
static double tick_step(double span, int count)
{
    assert(span > 0 && count > 0);
    double raw = span / count, power = pow(10, floor(log10(raw)));
    double ratio = raw / power;
    return power * (ratio > 5 ? 10 : ratio > 2 ? 5 : ratio > 1 ? 2 : 1);
}

/* Multiples of the step from the first inside on, each computed and not added up;
 * a hair outside counts as inside, and nearly 0 is 0. */
static int linear_ticks(double low, double high, int wanted,
                        double ticks[TICKS_MAX])
{
    int count = 0;
    double step = tick_step(high - low, wanted);
    for (double t = ceil(low / step - 1e-9); t * step <= high + 1e-9 * step;
         t++) {
        if (count == TICKS_MAX)
            break;
        ticks[count++] = fabs(t) < 0.5 ? 0 : t * step;
    }
    return count;
}

/* Powers of ten, with 2 and 5 of few of them. */
static int log_ticks(double low, double high, double ticks[TICKS_MAX])
{
    static const double of[] = { 1, 2, 5 };
    int count = 0;
    assert(low > 0 && high > low);
    double decades = log10(high) - log10(low); /* the ratio may be infinite */
    int every = (int)ceil(decades / 6);
    for (double e = floor(log10(low)); e <= ceil(log10(high)); e++)
        for (int i = 0; i < (decades < 2.5 ? 3 : 1); i++) {
            double value = of[i] * pow(10, e);
            if (value < low || value > high || count == TICKS_MAX ||
                (every > 1 && fmod(fabs(e), every) != 0))
                continue;
            ticks[count++] = value;
        }
    return count;
}

/* --- legend ------------------------------------------------------------------ */

/* Draws the names, unless `out` is NULL; returns their rows. */
static int plot_legend(const struct plot *plot, FILE *out)
{
    double x = 12;
    int row = 0, named = 0;
    for (int s = 0; s < plot->series_count; s++) {
        const struct plot_series *series = &plot->series[s];
        char name[40];
        if (series->name[0] == '\0')
            continue;
        plot_cut(series->name, name, sizeof name);
        double width = 24 + LETTER * (double)strlen(name);
        if (named++ > 0 && x + width > PLOT_WIDTH) {
            x = 12;
            row++;
        }
        if (out != NULL) {
            double y = LEGEND_TOP + LEGEND_ROW * row;
            enum ink ink = INK_SERIES + series->colour;
            const double mark[] = { x, y - 4, x + 12, y - 4 };
            if (series->style == PLOT_LINE)
                canvas_line(out, mark, 2, ink, 2.5);
            else
                canvas_dot(out, x + 6, y - 4, 3.5, ink);
            canvas_text(out, x + 17, y, ALIGN_LEFT, INK_MUTED, false, name);
        }
        x += width + 8;
    }
    return named > 0 ? row + 1 : 0;
}

struct plot_frame plot_frame(const struct plot *plot)
{
    struct plot_frame frame = { .left = LEFT,
                                .right = RIGHT,
                                .x0 = INFINITY,
                                .x1 = -INFINITY,
                                .y0 = INFINITY,
                                .y1 = -INFINITY };
    bool bars = false;
    for (int s = 0; s < plot->series_count; s++) {
        const struct plot_series *series = &plot->series[s];
        bars = bars || series->style == PLOT_BARS;
        for (size_t i = 0; i < series->count; i++) {
            include(series->at[4 * i], &frame.x0, &frame.x1);
            for (int k = 1; k < 4; k++)
                include(series->at[4 * i + k], &frame.y0, &frame.y1);
        }
    }
    plot_widen(&frame.x0, &frame.x1);
    if (bars) {
        frame.x0 -= 0.5;
        frame.x1 += 0.5;
    }
    spread_y(plot, &frame);
    int rows = plot_legend(plot, NULL);
    frame.top = rows > 0 ? LEGEND_TOP + 12 + LEGEND_ROW * (rows - 1) : 30;
    frame.bottom = frame.top + HEIGHT;
    frame.height = frame.bottom + 38;
    return frame;
}

/* --- drawing ----------------------------------------------------------------- */

double plot_place_x(const struct plot_frame *f, double x)
{
    return f->left + (x - f->x0) / (f->x1 - f->x0) * (f->right - f->left);
}

/* Down is positive in SVG. What is outside, as a band's end may be, lies on the
 * frame. */
double plot_place_y(const struct plot_frame *f, double y)
{
    double share = f->log ? log(fmax(y, f->y0) / f->y0) / log(f->y1 / f->y0)
                          : (y - f->y0) / (f->y1 - f->y0);
    share = fmin(1, fmax(0, share));
    return f->bottom - share * (f->bottom - f->top);
}

static void draw_axes(const struct plot *plot, const struct plot_frame *f,
                      FILE *out)
{
    double ticks[TICKS_MAX];
    char text[32];
    int count = f->log ? log_ticks(f->y0, f->y1, ticks)
                       : linear_ticks(f->y0, f->y1, 5, ticks);
    for (int i = 0; i < count; i++) {
        double y = plot_place_y(f, ticks[i]);
        const double line[] = { f->left, y, f->right, y };
        canvas_line(out, line, 2, INK_GRID, 1);
        plot_number(ticks[i], text, sizeof text);
        canvas_text(out, f->left - 6, y + 4, ALIGN_RIGHT, INK_MUTED, false,
                    text);
    }
    count = linear_ticks(f->x0, f->x1, 6, ticks);
    for (int i = 0; i < count; i++) {
        if (!plot->x_parts && ticks[i] != floor(ticks[i]))
            continue;
        double x = plot_place_x(f, ticks[i]);
        const double line[] = { x, f->bottom, x, f->bottom + 4 };
        canvas_line(out, line, 2, INK_AXIS, 1);
        plot_number(ticks[i], text, sizeof text);
        canvas_text(out, x, f->bottom + 17,
                    x > f->right - 12 ? ALIGN_RIGHT : ALIGN_MIDDLE, INK_MUTED,
                    false, text);
    }
    const double base[] = { f->left, f->bottom, f->right, f->bottom };
    canvas_line(out, base, 2, INK_AXIS, 1);
    canvas_text(out, f->right, f->bottom + 32, ALIGN_RIGHT, INK_MUTED, false,
                plot->x_label);
    canvas_text(out, 12, 16, ALIGN_LEFT, INK_TEXT, true, plot->title);
    char label[64];
    snprintf(label, sizeof label, "%s%s", plot->y_label,
             f->log ? " (log)" : "");
    canvas_text(out, f->right, 16, ALIGN_RIGHT, INK_MUTED, false, label);
}

static void draw_marks(const struct plot *plot, const struct plot_frame *f,
                       FILE *out)
{
    for (int i = 0; i < plot->mark_count; i++) {
        double x = plot_place_x(f, plot->marks[i]);
        if (!(x > f->left + 1 && x < f->right))
            continue;
        const double line[] = { x, f->top, x, f->bottom };
        canvas_line(out, line, 2, INK_AXIS, 0.7);
    }
}

/* The band of the points from `first` to before `end`, which have one: along the
 * upper edge and back along the lower one, as one closed path. */
static void draw_band(const struct plot_series *series, size_t first,
                      size_t end, const struct plot_frame *f, double *xy,
                      FILE *out)
{
    size_t count = 0, points = end - first;
    assert(first < end && end <= series->count);
    for (size_t i = 0; i < 2 * points; i++) {
        bool back = i >= points;
        size_t index = back ? end - 1 - (i - points) : first + i;
        xy[2 * count] = plot_place_x(f, series->at[4 * index]);
        xy[2 * count++ + 1] =
            plot_place_y(f, series->at[4 * index + (back ? 2 : 3)]);
    }
    if (points > 1)
        canvas_area(out, xy, count, INK_SERIES + series->colour, 0.28);
}

/* One band for each run of points without a gap. Where every point is a single
 * step low and high are the value itself, and nothing is to be seen. */
static void draw_bands(const struct plot_series *series,
                       const struct plot_frame *f, double *xy, FILE *out)
{
    size_t first = 0;
    bool differs = false;
    for (size_t i = 0; i < series->count; i++)
        differs = differs || series->at[4 * i + 3] > series->at[4 * i + 2];
    for (size_t i = 0; differs && i <= series->count; i++) {
        if (i < series->count && !isnan(series->at[4 * i + 2]))
            continue;
        if (i > first)
            draw_band(series, first, i, f, xy, out);
        first = i + 1;
    }
}

/* Pieces between gaps. One point alone makes no line, so it is a dot. */
static void draw_line(const struct plot_series *series,
                      const struct plot_frame *f, double *xy, FILE *out)
{
    size_t count = 0;
    bool line = series->style == PLOT_LINE, dots = !line;
    double width = line ? 1.6 : 1.0;
    enum ink ink = INK_SERIES + series->colour;
    for (size_t i = 0; i <= series->count; i++) {
        const double *at = &series->at[4 * i];
        if (i < series->count && !isnan(at[1])) {
            xy[2 * count] = plot_place_x(f, at[0]);
            xy[2 * count++ + 1] = plot_place_y(f, at[1]);
            continue;
        }
        if (count > 1 && series->style != PLOT_POINTS)
            canvas_line(out, xy, count, ink, width);
        else if (count == 1 && line)
            canvas_dot(out, xy[0], xy[1], 2, ink);
        count = 0;
    }
    for (size_t i = 0; dots && i < series->count; i++)
        if (!isnan(series->at[4 * i + 1]))
            canvas_dot(out, plot_place_x(f, series->at[4 * i]),
                       plot_place_y(f, series->at[4 * i + 1]), 2.8, ink);
}

/* Bars of all such series stand side by side. */
static void draw_bars(const struct plot *plot, int number,
                      const struct plot_frame *f, FILE *out)
{
    const struct plot_series *series = &plot->series[number];
    double unit = (f->right - f->left) / (f->x1 - f->x0);
    double width = fmin(0.8 * unit / plot->series_count, 28);
    double shift = (number - plot->series_count / 2.0) * width;
    for (size_t i = 0; i < series->count; i++) {
        const double *at = &series->at[4 * i];
        if (isnan(at[1]))
            continue;
        double x = plot_place_x(f, at[0]) + shift, y = plot_place_y(f, at[1]);
        const double box[] = { x,         f->bottom, x,         y,
                               x + width, y,         x + width, f->bottom };
        canvas_area(out, box, 4, INK_SERIES + series->colour, 0.9);
    }
}

enum err plot_draw(const struct plot *plot, FILE *out)
{
    assert(plot->series_count <= PLOT_SERIES_MAX);
    struct plot_frame frame = plot_frame(plot);
    size_t most = 1;
    for (int s = 0; s < plot->series_count; s++)
        if (plot->series[s].count > most)
            most = plot->series[s].count;
    double *xy = NULL;
    TRY(new_room(&xy, most * 4));
    draw_axes(plot, &frame, out);
    (void)plot_legend(plot, out);
    draw_marks(plot, &frame, out);
    for (int s = 0; s < plot->series_count; s++) {
        const struct plot_series *series = &plot->series[s];
        canvas_begin(out, series->name);
        if (series->style == PLOT_BARS) {
            draw_bars(plot, s, &frame, out);
        } else {
            draw_bands(series, &frame, xy, out);
            draw_line(series, &frame, xy, out);
        }
        canvas_end(out);
    }
    free(xy);
    return ERR_OK;
}
