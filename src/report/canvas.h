/* What plots are drawn on: one interface, SVG text (canvas_svg.c) and pixels for
 * a PNG file (canvas_png.c) behind it. Coordinates are units from the upper left
 * corner; a letter is some 11 units high. Nothing is drawn outside the canvas,
 * and text is escaped: it may come from anywhere. Memory that is missing shows
 * when a canvas is finished. */
#ifndef TESSERA_REPORT_CANVAS_H
#define TESSERA_REPORT_CANVAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "src/base/err.h"

/* Colours by what they are for; series have colours that people with any kind
 * of colour blindness tell apart (Okabe and Ito, 2008). */
enum ink {
    INK_TEXT,
    INK_MUTED,
    INK_AXIS,
    INK_GRID,
    INK_SERIES, /* this and the next INK_SERIES_COUNT - 1 */
};
#define INK_SERIES_COUNT 8
#define INKS (INK_SERIES + INK_SERIES_COUNT)

enum align { ALIGN_LEFT, ALIGN_MIDDLE, ALIGN_RIGHT };

struct canvas_ops {
    /* What follows up to the end belongs to the series of this name. */
    void (*begin)(void *self, const char *name);
    void (*end)(void *self);
    /* xy: points' x and y in turn. */
    void (*line)(void *self, const double *xy, size_t points, enum ink ink,
                 double width);
    void (*area)(void *self, const double *xy, size_t points, enum ink ink,
                 double opacity);
    void (*dot)(void *self, double x, double y, double radius, enum ink ink);
    /* y: of the base line. */
    void (*text)(void *self, double x, double y, enum align align, enum ink ink,
                 bool bold, const char *text);
};

struct canvas {
    const struct canvas_ops *ops;
    void *self;
    double width, height;
};

/* --- SVG: elements between <svg> and </svg>, which the caller writes --- */

/* `out` is lent. */
struct canvas canvas_svg(FILE *out, double width, double height);

/* --- PNG --- */

#define CANVAS_PNG_SCALE 2.5 /* pixels of a unit */

enum err canvas_png_create(double width, double height, struct canvas *out);
/* Writes the file; ERR_MEMORY too where drawing had none. */
enum err canvas_png_write(const struct canvas *canvas, const char *path);
void canvas_png_destroy(struct canvas *canvas);

#endif
