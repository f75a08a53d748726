/* Normalization Form C: libutf8proc decomposes each character and composes, but
 * marks are put in their order here, since its way of sorting takes quadratic
 * time for many in a row. What Unicode 9 did not have is left alone, as the
 * Hugging Face library does, so that no version of libutf8proc matters. */
#include "src/text/tokenizer/normalize.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "src/base/new.h"
#include "src/text/unicode.h"

/* Below this nothing composes, decomposes or is put in order. */
#define NORMALIZE_FIRST 0x300

/* A character decomposes into at most 18 in any form, 4 in this one. */
#define NORMALIZE_MOST 18

struct normalize_mark {
    int32_t point;
    int32_t place; /* keeps marks of one class in their order */
    int class;
};

static int normalize_class(int32_t point)
{
    return utf8proc_get_property(point)->combining_class;
}

static int normalize_compare(const void *a, const void *b)
{
    const struct normalize_mark *x = a, *y = b;
    if (x->class != y->class)
        return x->class < y->class ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

/* Put the marks in points[0, count) in order. */
static enum err normalize_sort(int32_t *points, size_t count)
{
    struct normalize_mark *mark = NULL;
    TRY(new_room(&mark, count));
    for (size_t i = 0; i < count; i++)
        mark[i] =
            (struct normalize_mark){ .point = points[i],
                                     .place = (int32_t)i,
                                     .class = normalize_class(points[i]) };
    qsort(mark, count, sizeof *mark, normalize_compare);
    for (size_t i = 0; i < count; i++)
        points[i] = mark[i].point;
    free(mark);
    return ERR_OK;
}

static enum err normalize_order(int32_t *points, size_t count)
{
    for (size_t i = 0; i < count;) {
        size_t end = i;
        bool sorted = true;
        int before = 0;
        while (end < count) {
            int class = normalize_class(points[end]);
            if (class == 0)
                break;
            sorted = sorted && before <= class;
            before = class;
            end++;
        }
        if (!sorted)
            TRY(normalize_sort(points + i, end - i));
        i = end > i ? end : i + 1;
    }
    return ERR_OK;
}

/* Order and compose points[0, count), and append them. */
static enum err normalize_compose(int32_t *points, size_t count,
                                  struct buffer *out)
{
    if (count == 0)
        return ERR_OK;
    TRY(normalize_order(points, count));
    count = (size_t)utf8proc_normalize_utf32(
        points, (utf8proc_ssize_t)count, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    TRY(buffer_reserve(out, 4 * count));
    for (size_t i = 0; i < count; i++)
        out->bytes += unicode_put((uint32_t)points[i], out->data + out->bytes);
    return ERR_OK;
}

/* A text that needs it: decompose, order, compose what lies between two
 * characters that Unicode 9 did not have, which stay as they are. */
static enum err normalize_all(const struct unicode *unicode,
                              const uint8_t *text, size_t bytes,
                              struct buffer *out)
{
    enum err rc = ERR_OK;
    size_t count = 0, capacity = bytes + NORMALIZE_MOST;
    int32_t *points = NULL;
    TRY(new_room(&points, capacity));
    for (size_t i = 0, length = 0; i < bytes; i += length) {
        int last = 0;
        int32_t point = (int32_t)unicode_at(text + i, &length);
        if ((unicode->of[point] & UNICODE_LATER) != 0) {
            TRY_OUT(normalize_compose(points, count, out));
            TRY_OUT(buffer_add(out, text + i, length));
            count = 0;
            continue;
        }
        if (count + NORMALIZE_MOST > capacity) {
            capacity = 2 * capacity;
            int32_t *more = realloc(points, capacity * sizeof *points);
            if (more == NULL) {
                rc = err_set(ERR_MEMORY, "no memory to normalize %zu bytes",
                             bytes);
                goto out;
            }
            points = more;
        }
        count += (size_t)utf8proc_decompose_char(
            point, points + count, NORMALIZE_MOST, UTF8PROC_DECOMPOSE, &last);
    }
    TRY_OUT(normalize_compose(points, count, out));
out:
    free(points);
    return rc;
}

enum err normalize_nfc(const struct unicode *unicode, const uint8_t *text,
                       size_t bytes, struct buffer *out)
{
    for (size_t i = 0, length = 0; i < bytes; i += length)
        if (unicode_at(text + i, &length) >= NORMALIZE_FIRST)
            return normalize_all(unicode, text, bytes, out);
    return buffer_add(out, text, bytes);
}
