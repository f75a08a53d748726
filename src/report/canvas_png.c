/* Draws into pixels with smooth edges, and writes them as a PNG file (ISO
 * 15948): 8 bits of red, green and blue, compressed by zlib. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "src/base/fsio.h"
#include "src/report/canvas.h"
#include "src/report/canvas_font.h"
#include "src/report/escape.h"

#define SIDE_MAX 8192 /* pixels */
#define TEXT_BYTES 256
#define FONT_PIXELS 3 /* of a point of a letter */
#define SUBLINES 4    /* of a row, where areas are filled */

struct raster {
    int width, height; /* pixels */
    uint8_t *rgb;
    float *cover;    /* [width] of one row */
    double *crossed; /* [crossed_room] */
    size_t crossed_room;
    bool failed;
};

/* On white. */
static const uint8_t colours[INKS][3] = {
    [INK_TEXT] = { 0x1a, 0x1f, 0x24 },
    [INK_MUTED] = { 0x5c, 0x66, 0x70 },
    [INK_AXIS] = { 0x8a, 0x93, 0x9c },
    [INK_GRID] = { 0xe3, 0xe7, 0xeb },
    [INK_SERIES] = { 0x00, 0x72, 0xb2 },
    { 0xd5, 0x5e, 0x00 },
    { 0x00, 0x9e, 0x73 },
    { 0xcc, 0x79, 0xa7 },
    { 0xe6, 0x9f, 0x00 },
    { 0x56, 0xb4, 0xe9 },
    { 0x6b, 0x6b, 0x6b },
    { 0x8c, 0x6d, 0x31 },
};

static void blend(struct raster *raster, int x, int y, enum ink ink,
                  double alpha)
{
    if (x < 0 || y < 0 || x >= raster->width || y >= raster->height)
        return;
    uint8_t *pixel = raster->rgb + 3 * ((size_t)y * raster->width + x);
    for (int c = 0; c < 3; c++)
        pixel[c] =
            (uint8_t)lround(pixel[c] + alpha * (colours[ink][c] - pixel[c]));
}

/* A whole number within what a raster can have. */
static int clamp(double value)
{
    return value < -1 ? -1 : value > SIDE_MAX ? SIDE_MAX : (int)value;
}

/* A straight piece, with round ends; in pixels. */
static void draw_piece(struct raster *raster, const double from[2],
                       const double to[2], enum ink ink, double half)
{
    double dx = to[0] - from[0], dy = to[1] - from[1];
    double length2 = dx * dx + dy * dy;
    int x0 = clamp(fmin(from[0], to[0]) - half - 1);
    int x1 = clamp(fmax(from[0], to[0]) + half + 1);
    int y0 = clamp(fmin(from[1], to[1]) - half - 1);
    int y1 = clamp(fmax(from[1], to[1]) + half + 1);
    for (int y = y0; y <= y1; y++)
        for (int x = x0; x <= x1; x++) {
            double px = x + 0.5 - from[0], py = y + 0.5 - from[1];
            double t = length2 > 0 ? (px * dx + py * dy) / length2 : 0;
            t = fmin(1, fmax(0, t));
            double distance = hypot(px - t * dx, py - t * dy);
            double alpha = half + 0.5 - distance;
            if (alpha > 0)
                blend(raster, x, y, ink, fmin(1, alpha));
        }
}

static void png_begin(void *self, const char *name)
{
    (void)self;
    (void)name;
}

static void png_end(void *self)
{
    (void)self;
}

static void png_line(void *self, const double *xy, size_t points, enum ink ink,
                     double width)
{
    const double s = CANVAS_PNG_SCALE;
    for (size_t i = 0; i + 1 < points; i++) {
        const double from[2] = { s * xy[2 * i], s * xy[2 * i + 1] };
        const double to[2] = { s * xy[2 * i + 2], s * xy[2 * i + 3] };
        draw_piece(self, from, to, ink, s * width / 2);
    }
}

static void png_dot(void *self, double x, double y, double radius, enum ink ink)
{
    const double at[2] = { CANVAS_PNG_SCALE * x, CANVAS_PNG_SCALE * y };
    draw_piece(self, at, at, ink, CANVAS_PNG_SCALE * radius);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Where the outline crosses the horizontal line at `y`, from the left. */
static size_t cross(struct raster *raster, const double *xy, size_t points,
                    double y)
{
    const double s = CANVAS_PNG_SCALE;
    size_t count = 0;
    for (size_t i = 0; i < points; i++) {
        size_t next = i + 1 < points ? i + 1 : 0;
        double ay = s * xy[2 * i + 1], by = s * xy[2 * next + 1];
        double ax = s * xy[2 * i], bx = s * xy[2 * next];
        if ((ay <= y) != (by <= y))
            raster->crossed[count++] = ax + (y - ay) * (bx - ax) / (by - ay);
    }
    qsort(raster->crossed, count, sizeof raster->crossed[0], compare);
    return count;
}

/* The share of each pixel of the row between two places. */
static void cover_span(struct raster *raster, double from, double to)
{
    from = fmax(0, from);
    to = fmin(raster->width, to);
    for (int x = clamp(from); x < to; x++)
        raster->cover[x] +=
            (float)((fmin(to, x + 1) - fmax(from, x)) / SUBLINES);
}

static void png_area(void *self, const double *xy, size_t points, enum ink ink,
                     double opacity)
{
    struct raster *raster = self;
    double top = INFINITY, bottom = -INFINITY;
    if (points > raster->crossed_room) {
        double *more = realloc(raster->crossed, points * sizeof *more);
        raster->failed = raster->failed || more == NULL;
        if (more == NULL)
            return;
        raster->crossed = more;
        raster->crossed_room = points;
    }
    for (size_t i = 0; i < points; i++) {
        top = fmin(top, CANVAS_PNG_SCALE * xy[2 * i + 1]);
        bottom = fmax(bottom, CANVAS_PNG_SCALE * xy[2 * i + 1]);
    }
    for (int y = clamp(fmax(0, top)); y < fmin(raster->height, bottom); y++) {
        memset(raster->cover, 0, (size_t)raster->width * sizeof(float));
        for (int sub = 0; sub < SUBLINES; sub++) {
            size_t count =
                cross(raster, xy, points, y + (sub + 0.5) / SUBLINES);
            for (size_t i = 0; i + 1 < count; i += 2)
                cover_span(raster, raster->crossed[i], raster->crossed[i + 1]);
        }
        for (int x = 0; x < raster->width; x++)
            if (raster->cover[x] > 0)
                blend(raster, x, y, ink, opacity * (double)raster->cover[x]);
    }
}

static void draw_letter(struct raster *raster, int x, int y, char letter,
                        enum ink ink, bool bold)
{
    const uint8_t *rows = canvas_font[letter - CANVAS_FONT_FIRST];
    for (int row = 0; row < CANVAS_FONT_HEIGHT * FONT_PIXELS; row++)
        for (int column = 0; column < CANVAS_FONT_WIDTH * FONT_PIXELS; column++)
            if ((rows[row / FONT_PIXELS] >>
                     (CANVAS_FONT_WIDTH - 1 - column / FONT_PIXELS) &
                 1) != 0) {
                blend(raster, x + column, y + row, ink, 1);
                if (bold)
                    blend(raster, x + column + 1, y + row, ink, 1);
            }
}

static void png_text(void *self, double x, double y, enum align align,
                     enum ink ink, bool bold, const char *text)
{
    char letters[TEXT_BYTES];
    const int advance = (CANVAS_FONT_WIDTH + 1) * FONT_PIXELS;
    escape_terminal(text, letters, sizeof letters);
    int width = (int)strlen(letters) * advance;
    int left = clamp(CANVAS_PNG_SCALE * x) - (align == ALIGN_MIDDLE  ? width / 2
                                              : align == ALIGN_RIGHT ? width
                                                                     : 0);
    int top = clamp(CANVAS_PNG_SCALE * y) - CANVAS_FONT_HEIGHT * FONT_PIXELS;
    for (const char *c = letters; *c != '\0'; c++, left += advance)
        draw_letter(self, left, top, *c, ink, bold);
}

static const struct canvas_ops png_ops = {
    .begin = png_begin,
    .end = png_end,
    .line = png_line,
    .area = png_area,
    .dot = png_dot,
    .text = png_text,
};

enum err canvas_png_create(double width, double height, struct canvas *out)
{
    struct raster *raster = calloc(1, sizeof *raster);
    *out = (struct canvas){ .ops = &png_ops, .width = width, .height = height };
    out->self = raster;
    if (raster == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    raster->width = clamp(ceil(CANVAS_PNG_SCALE * width));
    raster->height = clamp(ceil(CANVAS_PNG_SCALE * height));
    size_t bytes = 3 * (size_t)raster->width * (size_t)raster->height;
    raster->rgb = malloc(bytes);
    raster->cover = calloc((size_t)raster->width, sizeof raster->cover[0]);
    if (raster->rgb == NULL || raster->cover == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    memset(raster->rgb, 0xff, bytes);
    return ERR_OK;
}

void canvas_png_destroy(struct canvas *canvas)
{
    struct raster *raster = canvas->self;
    if (raster == NULL)
        return;
    free(raster->rgb);
    free(raster->cover);
    free(raster->crossed);
    free(raster);
    canvas->self = NULL;
}

/* --- the file --------------------------------------------------------------- */

static void put_u32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* Length, kind, data, checksum; returns what is behind it. */
static uint8_t *put_chunk(uint8_t *at, const char kind[5], const uint8_t *data,
                          size_t bytes)
{
    put_u32(at, (uint32_t)bytes);
    memcpy(at + 4, kind, 4);
    memcpy(at + 8, data, bytes);
    put_u32(at + 8 + bytes, (uint32_t)crc32(0, at + 4, (uInt)(bytes + 4)));
    return at + bytes + 12;
}

/* Rows, each behind a 0: it is not filtered. */
static enum err pack(const struct raster *raster, uint8_t **packed,
                     uLongf *bytes)
{
    enum err rc = ERR_OK;
    size_t row = 3 * (size_t)raster->width + 1;
    uint8_t *rows = calloc((size_t)raster->height, row);
    *bytes = compressBound((uLong)(row * (size_t)raster->height));
    *packed = malloc(*bytes);
    if (rows == NULL || *packed == NULL) {
        rc = err_set(ERR_MEMORY, "out of memory");
        goto out;
    }
    for (int y = 0; y < raster->height; y++)
        memcpy(rows + (size_t)y * row + 1, raster->rgb + (size_t)y * (row - 1),
               row - 1);
    if (compress2(*packed, bytes, rows, (uLong)(row * (size_t)raster->height),
                  9) != Z_OK)
        rc = err_set(ERR_INTERNAL, "png: zlib does not compress");
out:
    free(rows);
    return rc;
}

enum err canvas_png_write(const struct canvas *canvas, const char *path)
{
    enum err rc = ERR_OK;
    const struct raster *raster = canvas->self;
    static const uint8_t signature[8] = { 0x89, 'P',  'N',  'G',
                                          '\r', '\n', 0x1a, '\n' };
    uint8_t head[13] = { [8] = 8, [9] = 2 }; /* 8 bits, red green blue */
    uint8_t *packed = NULL, *file = NULL;
    uLongf bytes = 0;
    if (raster->failed)
        return err_set(ERR_MEMORY, "out of memory");
    TRY_OUT(pack(raster, &packed, &bytes));
    file = malloc(sizeof signature + sizeof head + bytes + 3 * 12);
    if (file == NULL) {
        rc = err_set(ERR_MEMORY, "out of memory");
        goto out;
    }
    put_u32(head, (uint32_t)raster->width);
    put_u32(head + 4, (uint32_t)raster->height);
    memcpy(file, signature, sizeof signature);
    uint8_t *at = put_chunk(file + sizeof signature, "IHDR", head, sizeof head);
    at = put_chunk(at, "IDAT", packed, bytes);
    at = put_chunk(at, "IEND", head, 0);
    TRY_OUT(fsio_write_atomic(path, file, (size_t)(at - file)));
out:
    free(file);
    free(packed);
    return rc;
}
