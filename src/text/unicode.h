/* Unicode as tokenizers see it: UTF-8, classes of code points, and the text of
 * a file made valid. Classes come from libutf8proc, so that a code point which
 * its version does not know yet is no letter and no number. */
#ifndef TESSERA_TEXT_UNICODE_H
#define TESSERA_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/text/buffer.h"

#define UNICODE_COUNT 0x110000

enum unicode_class {
    UNICODE_LETTER = 1,  /* L */
    UNICODE_NUMBER = 2,  /* N */
    UNICODE_SPACE = 4,   /* the property White_Space, \s of a pattern */
    UNICODE_NEWLINE = 8, /* \r and \n */
    UNICODE_UPPER = 16,  /* Lu Lt Lm Lo M */
    UNICODE_LOWER = 32,  /* Ll Lm Lo M */
    UNICODE_WORD = 64    /* of a word: L M Nd Nl Pc, and joiners */
};

/* By code point: its classes, or'ed. */
struct unicode {
    uint8_t of[UNICODE_COUNT];
};

enum err unicode_create(struct unicode **out);
void unicode_destroy(struct unicode *unicode);

/* The code point at `text`, which is valid UTF-8, and its length. */
static inline uint32_t unicode_at(const uint8_t *text, size_t *length)
{
    uint32_t first = text[0];
    if (first < 0x80) {
        *length = 1;
        return first;
    }
    if (first < 0xE0) {
        *length = 2;
        return (first & 0x1F) << 6 | (text[1] & 0x3Fu);
    }
    if (first < 0xF0) {
        *length = 3;
        return (first & 0x0F) << 12 | (text[1] & 0x3Fu) << 6 |
               (text[2] & 0x3Fu);
    }
    *length = 4;
    return (first & 0x07) << 18 | (text[1] & 0x3Fu) << 12 |
           (text[2] & 0x3Fu) << 6 | (text[3] & 0x3Fu);
}

/* The code point that ends at `end`, which is not 0; U+FFFD where the text is
 * not valid. */
uint32_t unicode_before(const uint8_t *text, size_t end);

/* UTF-8 of a code point into out; its length. */
size_t unicode_put(uint32_t point, uint8_t out[4]);

/* How many of the first bytes are whole characters of valid UTF-8. */
size_t unicode_valid(const uint8_t *text, size_t bytes);

/* How many bytes are of no character. *rest: that many at the end may begin one
 * that goes on behind them, and are not counted. */
size_t unicode_invalid(const uint8_t *text, size_t bytes, size_t *rest);

/* Append the text with U+FFFD for each maximal part of an invalid sequence. */
enum err unicode_repair(const uint8_t *text, size_t bytes, struct buffer *out);

#endif
