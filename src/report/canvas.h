/* Draws plots as SVG: elements between <svg> and </svg>, which the caller writes.
 * Coordinates are units from the upper left corner; a letter is some 11 units
 * high. Text is escaped: it may come from anywhere. Colours are classes, which
 * the page defines, light and dark: s0 ... for strokes, f0 ... for fills, numbers
 * by enum ink. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

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

/* Text from files in HTML and SVG, between tags and in quoted attributes: what is
 * no UTF-8, control characters, and those that turn the direction of writing
 * become U+FFFD. Line ends stay. */
void canvas_escape(FILE *out, const char *text);

/* What follows up to the end belongs to the series of this name. */
void canvas_begin(FILE *out, const char *name);
void canvas_end(FILE *out);
/* xy: points' x and y in turn. */
void canvas_line(FILE *out, const double *xy, size_t points, enum ink ink,
                 double width);
void canvas_area(FILE *out, const double *xy, size_t points, enum ink ink,
                 double opacity);
void canvas_dot(FILE *out, double x, double y, double radius, enum ink ink);
/* y: of the base line. */
void canvas_text(FILE *out, double x, double y, enum align align, enum ink ink,
                 bool bold, const char *text);
