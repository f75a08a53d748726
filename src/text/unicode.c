/* UTF-8 and the table of classes.
 *
 * UTF-8 writes a code point in one to four bytes, of which the first tells how
 * many and the others begin with the bits 10: so one can find the beginning of
 * a character from any byte. Valid is only the shortest form, and no half of a
 * surrogate pair (U+D800 to U+DFFF): that is what the limits of the second byte
 * say (table 3-7 of the Unicode standard). Of what is not valid the longest
 * part that could have begun a character becomes one U+FFFD, as Python and Rust
 * do it (https://www.unicode.org/versions/latest, chapter 3.9): others count
 * differently, and then tokens differ.
 *
 * Classes are looked up in a byte per code point, 1.1 MB: patterns ask for each
 * character of a text, and most texts use a few kilobytes of it. */
#include "src/text/unicode.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/text/unicode_table.h"

static bool unicode_is_space(int32_t point)
{
    return (point >= 0x09 && point <= 0x0D) || point == 0x20 || point == 0x85 ||
           point == 0xA0 || point == 0x1680 ||
           (point >= 0x2000 && point <= 0x200A) || point == 0x2028 ||
           point == 0x2029 || point == 0x202F || point == 0x205F ||
           point == 0x3000;
}

/* Word is \w of the Hugging Face library,
 * which is Rust's: an added token that has to stand alone has no such character
 * beside it. */
static unsigned unicode_class(enum unicode_category category, int32_t point)
{
    switch (category) {
    case UNICODE_LU:
    case UNICODE_LL:
    case UNICODE_LT:
    case UNICODE_LM:
    case UNICODE_LO:
        return UNICODE_LETTER | UNICODE_WORD;
    case UNICODE_MN:
    case UNICODE_MC:
    case UNICODE_ME:
        return UNICODE_MARK | UNICODE_WORD;
    case UNICODE_ND:
    case UNICODE_NL:
        return UNICODE_NUMBER | UNICODE_WORD;
    case UNICODE_NO:
        return UNICODE_NUMBER;
    case UNICODE_PC:
        return UNICODE_WORD;
    case UNICODE_CN:
        return UNICODE_LATER;
    default:
        /* joiners, and the circled letters, which are alphabetic symbols */
        return point == 0x200C || point == 0x200D ||
                       (point >= 0x24B6 && point <= 0x24E9) ||
                       (point >= 0x1F130 && point <= 0x1F149) ||
                       (point >= 0x1F150 && point <= 0x1F169) ||
                       (point >= 0x1F170 && point <= 0x1F189)
                   ? UNICODE_WORD
                   : 0;
    }
}

/* What a row of the table says of the code points from here on; the next one. */
static int32_t unicode_row(const char *at, int32_t point, uint8_t *category)
{
    while (*at != '\0') {
        char letter = *at++;
        int32_t count = 0;
        while (*at >= '0' && *at <= '9')
            count = 10 * count + *at++ - '0';
        bool turns = letter == 'z';
        int of = letter < 'a' ? letter - 'A' : letter - 'a' + 26;
        for (count = (count == 0 ? 1 : count) << turns; count > 0; count--)
            category[point++] = (uint8_t)(turns ? count & 1 : of);
    }
    return point;
}

enum err unicode_create(struct unicode **out)
{
    assert(out != NULL);
    struct unicode *unicode = NULL;
    TRY(new_zeroed(&unicode, 1));
    int32_t end = 0;
    for (size_t r = 0;
         r < sizeof unicode_table_categories / sizeof *unicode_table_categories;
         r++)
        end = unicode_row(unicode_table_categories[r], end, unicode->category);
    assert(end == UNICODE_COUNT);
    for (int32_t point = 0; point < UNICODE_COUNT; point++) {
        unsigned of = unicode_class(unicode->category[point], point);
        if (unicode_is_space(point))
            of |= UNICODE_SPACE;
        unicode->of[point] = (uint8_t)of;
    }
    char *at = NULL;
    for (const char *range = unicode_table_later; *range != '\0';
         range = at + 1) {
        long point = strtol(range, &at, 16), last = strtol(at, &at, 16);
        for (; point <= last; point++)
            unicode->of[point] |= UNICODE_LATER;
    }
    *out = unicode;
    return ERR_OK;
}

void unicode_destroy(struct unicode *unicode)
{
    free(unicode);
}

int unicode_hex(char digit)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = digit == '\0' ? NULL : strchr(digits, digit | 0x20);
    return at == NULL ? -1 : (int)(at - digits);
}

size_t unicode_put(uint32_t point, uint8_t out[4])
{
    if (point < 0x80) {
        out[0] = (uint8_t)point;
        return 1;
    }
    size_t length = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, point >>= 6)
        out[i] = (uint8_t)(0x80 | (point & 0x3F));
    out[0] = (uint8_t)(0xF00 >> length | point);
    return length;
}

/* The length of the valid sequence at `text`, or 0 and in *part that of the
 * maximal part of one: what could still have become a character. */
static size_t unicode_sequence(const uint8_t *text, size_t bytes, size_t *part)
{
    uint8_t first = text[0];
    uint8_t low = 0x80, high = 0xBF; /* of the second byte */
    size_t length = first < 0x80    ? 1
                    : first < 0xC2  ? 0
                    : first < 0xE0  ? 2
                    : first < 0xF0  ? 3
                    : first <= 0xF4 ? 4
                                    : 0;
    *part = 1;
    if (first == 0xE0)
        low = 0xA0;
    if (first == 0xED)
        high = 0x9F;
    if (first == 0xF0)
        low = 0x90;
    if (first == 0xF4)
        high = 0x8F;
    for (size_t i = 1; i < length; i++) {
        if (i == bytes || text[i] < low || text[i] > high)
            return 0;
        low = 0x80;
        high = 0xBF;
        *part = i + 1;
    }
    return length;
}

size_t unicode_valid(const uint8_t *text, size_t bytes)
{
    size_t i = 0;
    while (i < bytes) {
        uint64_t eight = 0;
        if (bytes - i >= sizeof eight) {
            memcpy(&eight, text + i, sizeof eight);
            if ((eight & 0x8080808080808080) == 0) {
                i += sizeof eight;
                continue;
            }
        }
        size_t part = 0, length = unicode_sequence(text + i, bytes - i, &part);
        if (length == 0)
            break;
        i += length;
    }
    return i;
}

size_t unicode_invalid(const uint8_t *text, size_t bytes, size_t *rest)
{
    assert(rest != NULL);
    size_t invalid = 0, part = 0;
    *rest = 0;
    for (size_t i = 0; (i += unicode_valid(text + i, bytes - i)) < bytes;
         i += part) {
        unicode_sequence(text + i, bytes - i, &part);
        if (i + part == bytes && text[i] >= 0xC2 && text[i] <= 0xF4)
            *rest = part;
        else
            invalid += part;
    }
    return invalid;
}

uint32_t unicode_before(const uint8_t *text, size_t end)
{
    for (size_t length = 1; length <= 4 && length <= end; length++) {
        const uint8_t *at = text + end - length;
        if ((*at & 0xC0) != 0x80)
            return unicode_valid(at, length) == length ? unicode_at(at, &length)
                                                       : 0xFFFD;
    }
    return 0xFFFD;
}

enum err unicode_repair(const uint8_t *text, size_t bytes, struct buffer *out)
{
    assert(out != NULL && (text != NULL || bytes == 0));
    for (size_t i = 0; i < bytes;) {
        size_t part = 0, valid = unicode_valid(text + i, bytes - i);
        TRY(buffer_add(out, text + i, valid));
        i += valid;
        if (i < bytes) {
            unicode_sequence(text + i, bytes - i, &part);
            TRY(buffer_add(out, "\xEF\xBF\xBD", 3));
            i += part;
        }
    }
    return ERR_OK;
}

json_t *unicode_json(const uint8_t *text, size_t bytes)
{
    struct buffer valid = { 0 };
    json_t *json = NULL;
    if (unicode_repair(text, bytes, &valid) == ERR_OK)
        json = json_stringn_nocheck(
            valid.bytes > 0 ? (const char *)valid.data : "", valid.bytes);
    buffer_free(&valid);
    return json;
}

static bool unicode_control(uint32_t point)
{
    return (point < 0x20 && point != '\n' && point != '\t') ||
           (point >= 0x7F && point < 0xA0);
}

enum err unicode_add_visible(const char *text, size_t bytes, struct buffer *out)
{
    assert(out != NULL && (text != NULL || bytes == 0));
    const uint8_t *at = (const uint8_t *)text;
    const uint8_t *end = at + bytes;
    for (size_t length; at < end; at += length) {
        char written[16];
        uint32_t point = unicode_at(at, &length);
        if (!unicode_control(point)) {
            TRY(buffer_add(out, at, length));
            continue;
        }
        snprintf(written, sizeof written, "\\u%04x", (unsigned)point);
        TRY(buffer_add(out, written, strlen(written)));
    }
    return ERR_OK;
}

/* --- white space as Python has it --- */

/* The code point at a place of UTF-8; 0 where there is none that matters: no
 * white space is beyond three bytes. */
static unsigned unicode_point(const unsigned char *at, size_t bytes)
{
    if (at[0] < 0x80)
        return at[0];
    if (bytes == 2 && (at[0] & 0xe0) == 0xc0)
        return (at[0] & 0x1fu) << 6 | (at[1] & 0x3fu);
    if (bytes == 3 && (at[0] & 0xf0) == 0xe0)
        return (at[0] & 0x0fu) << 12 | (at[1] & 0x3fu) << 6 | (at[2] & 0x3fu);
    return 0;
}

/* str.isspace() has four more than White_Space. */
static bool unicode_is_blank(unsigned point)
{
    return unicode_is_space((int32_t)point) || (point >= 0x1c && point <= 0x1f);
}

size_t unicode_blank_front(const char *text, size_t bytes)
{
    size_t at = 0;
    while (at < bytes) {
        unsigned char first = (unsigned char)text[at];
        size_t width = first < 0x80 ? 1 : first < 0xe0 ? 2 : 3;
        if (width > bytes - at || !unicode_is_blank(unicode_point(
                                      (const unsigned char *)text + at, width)))
            break;
        at += width;
    }
    return at;
}

size_t unicode_blank_back(const char *text, size_t bytes)
{
    size_t left = bytes;
    while (left > 0) {
        size_t width = 1;
        while (width < 3 && width < left &&
               ((unsigned char)text[left - width] & 0xc0) == 0x80)
            width++;
        if (!unicode_is_blank(unicode_point(
                (const unsigned char *)text + left - width, width)))
            break;
        left -= width;
    }
    return bytes - left;
}
