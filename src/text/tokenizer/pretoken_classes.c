/* Stand-ins for characters, numbered by category and then by interval.
 *
 * A pattern asks of a character only in which category it is, or whether it is
 * one of those that the pattern names. So a text can be replaced, before it is
 * matched, by one in which all characters that no pattern tells apart are the
 * same stand-in: then PCRE2 needs to know no category, and the version of
 * Unicode is that of our table. A stand-in takes as many bytes of UTF-8 as what
 * it stands for, or places in both texts would differ; that is why each length
 * has a range of its own. U+0085, U+017F and U+212A stay, as \s and (?i:) know
 * them. */
#include "src/text/tokenizer/pretoken_classes.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* By bytes of UTF-8: where its characters end and where its stand-ins begin. */
static const struct {
    uint32_t end, base;
} classes_zone[] = { [2] = { 0x800, 0x590 },
                     [3] = { 0x10000, 0xE000 },
                     [4] = { UNICODE_COUNT, 0xF0000 } };

static const uint32_t classes_kept[] = { 0x85, 0x17F, 0x212A };
#define KEPT (sizeof classes_kept / sizeof *classes_kept)

static enum err classes_bound(struct pretoken_classes *classes, uint32_t first)
{
    uint32_t at = 0;
    if (classes->count == 0)
        classes->first[classes->count++] = 0x80;
    while (at < classes->count && classes->first[at] < first)
        at++;
    if (first <= 0x80 || first >= UNICODE_COUNT ||
        (at < classes->count && classes->first[at] == first))
        return ERR_OK;
    if (classes->count == PRETOKEN_CLASSES_INTERVALS)
        return err_set(ERR_DATA, "names too many characters beyond ASCII");
    memmove(classes->first + at + 1, classes->first + at,
            (classes->count - at) * sizeof *classes->first);
    classes->first[at] = first;
    classes->count++;
    return ERR_OK;
}

enum err pretoken_classes_divide(struct pretoken_classes *classes, uint32_t low,
                                 uint32_t high)
{
    TRY(classes_bound(classes, low));
    return classes_bound(classes, high + 1);
}

static enum err classes_range(uint32_t low, uint32_t high, struct buffer *out)
{
    char text[32];
    int bytes = snprintf(text, sizeof text, "\\x{%x}-\\x{%x}", low, high);
    return buffer_add(out, text, (size_t)bytes);
}

enum err pretoken_classes_put(const struct pretoken_classes *classes,
                              const struct unicode *unicode,
                              uint32_t categories, struct buffer *out)
{
    assert(classes->count > 0);
    uint32_t end = 0;
    for (uint32_t p = 0; p < 0x80; p = end) {
        uint32_t in = categories >> unicode->category[p] & 1;
        for (end = p + 1; end < 0x80; end++)
            if ((categories >> unicode->category[end] & 1) != in)
                break;
        if (in != 0)
            TRY(classes_range(p, end - 1, out));
    }
    for (size_t k = 0; k < KEPT; k++)
        if ((categories >> unicode->category[classes_kept[k]] & 1) != 0)
            TRY(classes_range(classes_kept[k], classes_kept[k], out));
    for (uint32_t c = 0; c < UNICODE_CATEGORIES; c = end) {
        end = c + 1;
        if ((categories >> c & 1) == 0)
            continue;
        while (end < UNICODE_CATEGORIES && (categories >> end & 1) != 0)
            end++;
        for (int z = 2; z <= 4; z++)
            TRY(classes_range(classes_zone[z].base + c * classes->count,
                              classes_zone[z].base + end * classes->count - 1,
                              out));
    }
    return ERR_OK;
}

static uint32_t classes_interval(const struct pretoken_classes *classes,
                                 uint32_t point)
{
    uint32_t at = 1;
    while (at < classes->count && classes->first[at] <= point)
        at++;
    return at - 1;
}

enum err pretoken_classes_put_range(const struct pretoken_classes *classes,
                                    uint32_t low, uint32_t high,
                                    struct buffer *out)
{
    uint32_t from = classes_interval(classes, low);
    uint32_t to = classes_interval(classes, high);
    for (size_t k = 0; k < KEPT; k++)
        if (classes_kept[k] >= low && classes_kept[k] <= high)
            TRY(classes_range(classes_kept[k], classes_kept[k], out));
    for (int z = 2; z <= 4; z++)
        for (uint32_t c = 0; c < UNICODE_CATEGORIES; c++)
            if (low < classes_zone[z].end &&
                (z == 2 || high >= classes_zone[z - 1].end)) {
                uint32_t base = classes_zone[z].base + c * classes->count;
                TRY(classes_range(base + from, base + to, out));
            }
    return ERR_OK;
}

enum err pretoken_classes_map(const struct pretoken_classes *classes,
                              const struct unicode *unicode,
                              const uint8_t *text, size_t bytes,
                              struct buffer *out)
{
    out->bytes = 0;
    TRY(buffer_reserve(out, bytes));
    for (size_t i = 0, length = 0; i < bytes; i += length) {
        uint32_t point = unicode_at(text + i, &length);
        if (length == 1) {
            out->data[i] = (uint8_t)point;
            continue;
        }
        if (point != classes_kept[0] && point != classes_kept[1] &&
            point != classes_kept[2])
            point = classes_zone[length].base +
                    unicode->category[point] * classes->count +
                    classes_interval(classes, point);
        unicode_put(point, out->data + i);
    }
    out->bytes = bytes;
    return ERR_OK;
}

bool pretoken_classes_ascii(const uint8_t *text, size_t bytes)
{
    uint64_t all = 0, eight = 0;
    size_t i = 0;
    for (; i + sizeof eight <= bytes; i += sizeof eight) {
        memcpy(&eight, text + i, sizeof eight);
        all |= eight;
    }
    for (; i < bytes; i++)
        all |= (uint64_t)text[i] << 56 | text[i];
    return (all & 0x8080808080808080) == 0;
}
