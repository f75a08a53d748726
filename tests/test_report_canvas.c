/* What plots are drawn on: a PNG file is read back by zlib, with its checksums;
 * SVG has its text escaped; nothing is drawn outside. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "src/base/fsio.h"
#include "src/report/canvas.h"
#include "src/report/escape.h"
#include "src/report/plot.h"
#include "tests/tap.h"

static uint32_t u32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 |
           (uint32_t)at[2] << 8 | at[3];
}

struct image {
    uint32_t width, height;
    uint8_t *rows; /* a filter byte before each */
    uLongf bytes;
};

/* Signature, chunks with right checksums, and the rows of the one IDAT. */
static bool read_png(const char *path, struct image *out)
{
    char *file = NULL;
    size_t bytes = 0, at = 8;
    bool good = fsio_read_file(path, 1 << 26, &file, &bytes) == ERR_OK &&
                bytes > 8 && memcmp(file, "\x89PNG\r\n\x1a\n", 8) == 0;
    *out = (struct image){ .width = 0 };
    while (good && at + 12 <= bytes) {
        const uint8_t *chunk = (const uint8_t *)file + at;
        uint32_t length = u32(chunk);
        good = at + 12 + length <= bytes &&
               u32(chunk + 8 + length) == crc32(0, chunk + 4, length + 4);
        if (good && memcmp(chunk + 4, "IHDR", 4) == 0) {
            out->width = u32(chunk + 8);
            out->height = u32(chunk + 12);
            good = chunk[16] == 8 && chunk[17] == 2;
        } else if (good && memcmp(chunk + 4, "IDAT", 4) == 0) {
            out->bytes = (uLongf)(3 * out->width + 1) * out->height;
            out->rows = malloc(out->bytes);
            uLongf got = out->bytes;
            good = uncompress(out->rows, &got, chunk + 8, length) == Z_OK &&
                   got == out->bytes;
        }
        at += 12 + length;
    }
    free(file);
    return good && at == bytes && out->rows != NULL;
}

static const uint8_t *pixel(const struct image *image, double x, double y)
{
    size_t px = (size_t)(x * CANVAS_PNG_SCALE);
    size_t py = (size_t)(y * CANVAS_PNG_SCALE);
    return image->rows + py * (3 * image->width + 1) + 1 + 3 * px;
}

static bool is_white(const uint8_t *p)
{
    return p[0] == 255 && p[1] == 255 && p[2] == 255;
}

static void test_png(const char *path)
{
    struct canvas canvas;
    struct image image;
    const double box[] = { 10, 10, 30, 10, 30, 30, 10, 30 };
    const double line[] = { -50, 50, 500, 50 };
    const double wild[] = { -1e9, -1e9, 1e9, 1e9 };
    tap_ok(canvas_png_create(100, 60, &canvas) == ERR_OK, "a canvas");
    canvas.ops->area(canvas.self, box, 4, INK_SERIES + 1, 1);
    canvas.ops->line(canvas.self, line, 2, INK_TEXT, 2);
    canvas.ops->dot(canvas.self, 80, 20, 3, INK_SERIES);
    canvas.ops->text(canvas.self, 95, 40, ALIGN_RIGHT, INK_TEXT, true,
                     "\x1b[31m<\xc3\xa9>");
    canvas.ops->area(canvas.self, wild, 2, INK_TEXT, 1);
    tap_ok(canvas_png_write(&canvas, path) == ERR_OK, "is written: %s",
           err_text());
    canvas_png_destroy(&canvas);
    bool good = read_png(path, &image);
    tap_ok(good, "its chunks, checksums and data are right");
    tap_ok(image.width == 250 && image.height == 150, "and its size");
    if (good) {
        const uint8_t *p = pixel(&image, 20, 20);
        tap_ok(p[0] == 0xd5 && p[1] == 0x5e && p[2] == 0, "an area is filled");
        tap_ok(is_white(pixel(&image, 32, 20)), "and nothing beside it");
        tap_ok(!is_white(pixel(&image, 1, 50)) &&
                   !is_white(pixel(&image, 99, 50)),
               "a line goes to the edges");
        tap_ok(!is_white(pixel(&image, 80, 20)), "a dot");
    }
    free(image.rows);
}

static void test_plot(const char *path)
{
    struct plot *plot = calloc(1, sizeof *plot);
    struct canvas canvas;
    struct image image;
    char *text = NULL;
    size_t bytes = 0;
    snprintf(plot->title, sizeof plot->title, "A & B");
    tap_ok(plot_is_empty(plot), "an empty plot is empty");
    struct plot_series *series =
        plot_add(plot, "\"><script>alert(1)</script>", PLOT_LINE, 0);
    for (int i = 0; i < 500; i++)
        if (plot_point(series, i,
                       i == 250  ? 1e7
                       : i == 99 ? NAN
                                 : 2.0 + i % 7,
                       1, 9) != ERR_OK)
            abort();
    struct plot_frame frame = plot_frame(plot);
    tap_ok(frame.log, "a spike makes the axis logarithmic");
    FILE *out = open_memstream(&text, &bytes);
    canvas = canvas_svg(out, PLOT_WIDTH, frame.height);
    tap_ok(plot_draw(plot, &canvas) == ERR_OK, "a plot is drawn as SVG");
    fclose(out);
    tap_ok(strstr(text, "<script") == NULL && strstr(text, "A &amp; B") != NULL,
           "with its names escaped");
    tap_ok(strstr(text, "nan") == NULL && strstr(text, "inf") == NULL,
           "and all its numbers are numbers");
    tap_ok(canvas_png_create(PLOT_WIDTH, frame.height, &canvas) == ERR_OK &&
               plot_draw(plot, &canvas) == ERR_OK &&
               canvas_png_write(&canvas, path) == ERR_OK &&
               read_png(path, &image),
           "and as PNG");
    canvas_png_destroy(&canvas);
    free(image.rows);
    free(text);
    plot_free(plot);
    free(plot);
}

static void test_escape(void)
{
    char *text = NULL, line[8];
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    escape_html(out, "<a href='x' b=\"y\">&\x01\x7f\xff\xc3\xa9"
                     "\xe2\x80\xae\xc2\x9b\n\xe2\x82");
    fclose(out);
    tap_is_str(text,
               "&lt;a href=&#39;x&#39; b=&quot;y&quot;&gt;&amp;"
               "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xc3\xa9"
               "\xef\xbf\xbd\xef\xbf\xbd\n\xef\xbf\xbd\xef\xbf\xbd",
               "HTML is escaped");
    free(text);
    escape_terminal("a\x1b[2Jb\nc", line, sizeof line);
    tap_is_str(line, "a?[2Jb ", "no escape sequence reaches a terminal");
}

static void test_numbers(void)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        { 0, "0" },           { 12500, "12.5k" }, { 1e-4, "1e-4" },
        { 0.0015, "0.0015" }, { 3e6, "3M" },      { -20000, "-20k" }
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[32];
        plot_number(cases[i].value, text, sizeof text);
        tap_is_str(text, cases[i].text, "a tick");
    }
}

int main(void)
{
    char path[FSIO_PATH_MAX];
    const char *tmp = getenv("TMPDIR");
    fsio_path(path, "%s/test_report_canvas.%d.png", tmp != NULL ? tmp : "/tmp",
              (int)getpid());
    test_png(path);
    test_plot(path);
    test_escape();
    test_numbers();
    unlink(path);
    return tap_done();
}
