/* Draws as SVG. Colours are classes, which the page defines, light and dark:
 * s0 ... for strokes, f0 ... for fills, numbers by enum ink. */
#include "src/report/canvas.h"
#include "src/report/escape.h"

static void svg_begin(void *self, const char *name)
{
    FILE *out = self;
    fputs("<g data-n=\"", out);
    escape_html(out, name);
    fputs("\">", out);
}

static void svg_end(void *self)
{
    fputs("</g>\n", self);
}

static void svg_points(FILE *out, const double *xy, size_t points)
{
    for (size_t i = 0; i < points; i++)
        fprintf(out, "%c%.5g %.5g", i == 0 ? 'M' : 'L', xy[2 * i],
                xy[2 * i + 1]);
}

static void svg_line(void *self, const double *xy, size_t points, enum ink ink,
                     double width)
{
    FILE *out = self;
    fprintf(out, "<path class=\"s%d\" stroke-width=\"%g\" d=\"", (int)ink,
            width);
    svg_points(out, xy, points);
    fputs("\"/>", out);
}

static void svg_area(void *self, const double *xy, size_t points, enum ink ink,
                     double opacity)
{
    FILE *out = self;
    fprintf(out, "<path class=\"f%d\" fill-opacity=\"%g\" d=\"", (int)ink,
            opacity);
    svg_points(out, xy, points);
    fputs("Z\"/>", out);
}

static void svg_dot(void *self, double x, double y, double radius, enum ink ink)
{
    fprintf(self, "<circle class=\"f%d\" cx=\"%.5g\" cy=\"%.5g\" r=\"%g\"/>",
            (int)ink, x, y, radius);
}

static void svg_text(void *self, double x, double y, enum align align,
                     enum ink ink, bool bold, const char *text)
{
    static const char *const anchors[] = { "start", "middle", "end" };
    FILE *out = self;
    fprintf(out,
            "<text class=\"f%d\" x=\"%.5g\" y=\"%.5g\" text-anchor=\"%s\"%s>",
            (int)ink, x, y, anchors[align], bold ? " font-weight=\"600\"" : "");
    escape_html(out, text);
    fputs("</text>", out);
}

static const struct canvas_ops svg_ops = {
    .begin = svg_begin,
    .end = svg_end,
    .line = svg_line,
    .area = svg_area,
    .dot = svg_dot,
    .text = svg_text,
};

struct canvas canvas_svg(FILE *out, double width, double height)
{
    return (struct canvas){ &svg_ops, out, width, height };
}
