/* How each element is written: paths and text with as few letters as they need,
 * for a page may have ten thousand points. A coordinate has five digits, a
 * hundredth of a unit and less than a pixel of any screen. Nothing says a colour:
 * classes do, so that one page serves light and dark and a printer, and a series
 * is found by script through its group (data-n). */
#include "src/report/canvas.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "src/text/unicode.h"

/* Controls, and what turns the direction of the text around it. */
static bool is_harmful(uint32_t point)
{
    return (point < 0x20 && point != '\n' && point != '\t') ||
           (point >= 0x7f && point <= 0x9f) || point == 0x200e ||
           point == 0x200f || point == 0x2028 || point == 0x2029 ||
           (point >= 0x202a && point <= 0x202e) ||
           (point >= 0x2066 && point <= 0x2069) || point == 0xfeff ||
           (point & 0xfffe) == 0xfffe;
}

/* One character, safe between tags and in attributes of either quotes. */
static void put_html(FILE *out, uint32_t point, const char *bytes,
                     size_t length)
{
    if (is_harmful(point))
        fputs("\xef\xbf\xbd", out);
    else if (point == '<')
        fputs("&lt;", out);
    else if (point == '>')
        fputs("&gt;", out);
    else if (point == '&')
        fputs("&amp;", out);
    else if (point == '"')
        fputs("&quot;", out);
    else if (point == '\'')
        fputs("&#39;", out);
    else
        fwrite(bytes, 1, length, out);
}

/* `valid` counts the bytes of whole characters that lie ahead; where there are
 * none, one byte is replaced, and it is looked again behind it. */
void canvas_escape(FILE *out, const char *text)
{
    const uint8_t *at = (const uint8_t *)text;
    size_t left = strlen(text);
    size_t valid = unicode_valid(at, left);
    while (left > 0) {
        size_t length = 1;
        if (valid == 0) {
            fputs("\xef\xbf\xbd", out);
        } else {
            uint32_t point = unicode_at(at, &length);
            put_html(out, point, (const char *)at, length);
            assert(length >= 1 && length <= valid);
            valid -= length;
        }
        at += length;
        left -= length;
        if (valid == 0)
            valid = unicode_valid(at, left);
    }
}

void canvas_begin(FILE *out, const char *name)
{
    fputs("<g data-n=\"", out);
    canvas_escape(out, name);
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
    assert(ink < INKS && points > 0);
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
    canvas_escape(out, text);
    fputs("</text>", out);
}
