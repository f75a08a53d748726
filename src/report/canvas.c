/* How each element is written. */
#include "src/report/canvas.h"

#include "src/report/escape.h"

void canvas_begin(FILE *out, const char *name)
{
    fputs("<g data-n=\"", out);
    escape_html(out, name);
    fputs("\">", out);
}

void canvas_end(FILE *out)
{
    fputs("</g>\n", out);
}

static void put_points(FILE *out, const double *xy, size_t points)
{
    for (size_t i = 0; i < points; i++)
        fprintf(out, "%c%.5g %.5g", i == 0 ? 'M' : 'L', xy[2 * i],
                xy[2 * i + 1]);
}

void canvas_line(FILE *out, const double *xy, size_t points, enum ink ink,
                 double width)
{
    fprintf(out, "<path class=\"s%d\" stroke-width=\"%g\" d=\"", (int)ink,
            width);
    put_points(out, xy, points);
    fputs("\"/>", out);
}

void canvas_area(FILE *out, const double *xy, size_t points, enum ink ink,
                 double opacity)
{
    fprintf(out, "<path class=\"f%d\" fill-opacity=\"%g\" d=\"", (int)ink,
            opacity);
    put_points(out, xy, points);
    fputs("Z\"/>", out);
}

void canvas_dot(FILE *out, double x, double y, double radius, enum ink ink)
{
    fprintf(out, "<circle class=\"f%d\" cx=\"%.5g\" cy=\"%.5g\" r=\"%g\"/>",
            (int)ink, x, y, radius);
}

void canvas_text(FILE *out, double x, double y, enum align align, enum ink ink,
                 bool bold, const char *text)
{
    static const char *const anchors[] = { "start", "middle", "end" };
    fprintf(out,
            "<text class=\"f%d\" x=\"%.5g\" y=\"%.5g\" text-anchor=\"%s\"%s>",
            (int)ink, x, y, anchors[align], bold ? " font-weight=\"600\"" : "");
    escape_html(out, text);
    fputs("</text>", out);
}
