/* A plot: series over one axis, drawn as SVG. It owns its series. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "src/base/err.h"
#include "src/report/canvas.h"

#define PLOT_WIDTH 480.0
#define PLOT_SERIES_MAX 64
#define PLOT_NAME_BYTES 96
#define PLOT_MARKS_MAX 100

enum plot_style {
    PLOT_LINE,   /* with a band from low to high, where there are these */
    PLOT_DOTS,   /* joined by a thin line */
    PLOT_POINTS, /* dots alone */
    PLOT_BARS
};

struct plot_series {
    char name[PLOT_NAME_BYTES]; /* empty: not in the legend */
    enum plot_style style;
    int colour; /* 0 to INK_SERIES_COUNT - 1 */
    size_t count, room;
    double *at; /* [room] x, y, low, high of each, by x; NaN: a gap */
};

enum plot_scale {
    PLOT_SPREAD, /* of what is there; logarithmic from a ratio of 30 on */
    PLOT_LINEAR,
    PLOT_FROM_ZERO
};

struct plot {
    char id[32]; /* of its file, and of its element */
    char title[64], x_label[48], y_label[48];
    enum plot_scale scale;
    bool x_parts; /* x are no whole numbers, as steps and attempts are */
    struct plot_series series[PLOT_SERIES_MAX];
    int series_count;
    double marks[PLOT_MARKS_MAX]; /* x of thin lines: attempts begin */
    int mark_count;
};

/* Where a plot's data lie on its drawing. */
struct plot_frame {
    double left, right, top, bottom; /* units */
    double x0, x1, y0, y1;           /* values there: x0 left, y0 bottom */
    bool log;                        /* y is logarithmic */
    double height;                   /* of the drawing */
};

/* A new series; NULL where there are PLOT_SERIES_MAX. */
struct plot_series *plot_add(struct plot *plot, const char *name,
                             enum plot_style style, int colour);
/* A point; low and high: NaN without a band. What is not finite is a gap. */
enum err plot_point(struct plot_series *series, double x, double y, double low,
                    double high);
void plot_mark(struct plot *plot, double x);

/* Whether it has anything to show. */
bool plot_is_empty(const struct plot *plot);
struct plot_frame plot_frame(const struct plot *plot);
/* Where a value lies. */
double plot_place_x(const struct plot_frame *frame, double x);
double plot_place_y(const struct plot_frame *frame, double y);
/* PLOT_WIDTH x frame.height units. ERR_MEMORY alone. */
enum err plot_draw(const struct plot *plot, FILE *out);
void plot_free(struct plot *plot);

/* "12.5k", "3e-4": few letters for an axis. */
void plot_number(double value, char *text, size_t size);

/* A setting's value without the signs of libconfig: "( { name = "ema";
 * half_life = "9ba"; } )" is "ema 9ba", and nothing is "none". */
void plot_plain(const char *value, char *out, size_t size);
/* A text that is cut shows it by "...". */
void plot_cut(const char *text, char *out, size_t size);
