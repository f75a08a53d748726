/* Unicode as tokenizers see it: UTF-8, classes of code points, and the text of
 * a file made valid. Classes come from a table of this tree (unicode_table.h), so
 * that they are the same whatever libraries a system has. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/array.h"
#include "src/base/err.h"

#define UNICODE_COUNT 0x110000
#define UNICODE_VERSION "16.0" /* of the table */

/* General categories, those of a group side by side. */
enum unicode_category {
    UNICODE_LU,
    UNICODE_LL,
    UNICODE_LT,
    UNICODE_LM,
    UNICODE_LO,
    UNICODE_MN,
    UNICODE_MC,
    UNICODE_ME,
    UNICODE_ND,
    UNICODE_NL,
    UNICODE_NO,
    UNICODE_PC,
    UNICODE_PD,
    UNICODE_PS,
    UNICODE_PE,
    UNICODE_PI,
    UNICODE_PF,
    UNICODE_PO,
    UNICODE_SM,
    UNICODE_SC,
    UNICODE_SK,
    UNICODE_SO,
    UNICODE_ZS,
    UNICODE_ZL,
    UNICODE_ZP,
    UNICODE_CC,
    UNICODE_CF,
    UNICODE_CS,
    UNICODE_CO,
    UNICODE_CN,
    UNICODE_CATEGORIES
};

enum unicode_class {
    UNICODE_LETTER = 1, /* L */
    UNICODE_NUMBER = 2, /* N */
    UNICODE_SPACE = 4,  /* the property White_Space, \s of a pattern */
    UNICODE_MARK = 8,   /* M */
    UNICODE_WORD = 16,  /* of a word: L M Nd Nl Pc, and joiners */
    UNICODE_LATER = 32  /* Unicode 9 did not have it, or its normal form */
};

/* By code point: its classes, or'ed, and its category. */
struct unicode {
    uint8_t of[UNICODE_COUNT];
    uint8_t category[UNICODE_COUNT];
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
/* What a digit of a number in hexadecimal is worth; -1: it is none. */
int unicode_hex(char digit);

/* How many of the first bytes are whole characters of valid UTF-8. */
size_t unicode_valid(const uint8_t *text, size_t bytes);

/* How many bytes are of no character. *rest: that many at the end may begin one
 * that goes on behind them, and are not counted. */
size_t unicode_invalid(const uint8_t *text, size_t bytes, size_t *rest);

/* Append the text with U+FFFD for each maximal part of an invalid sequence. */
enum err unicode_repair(const uint8_t *text, size_t bytes, struct buffer *out);
/* The same as a string of JSON, which is UTF-8; NULL: out of memory. */
json_t *unicode_json(const uint8_t *text, size_t bytes);

/* Append the text, which is valid UTF-8, with all control characters but tab
 * and line feed written out as in JSON, "\u001b": a terminal would obey them. */
enum err unicode_add_visible(const char *text, size_t bytes,
                             struct buffer *out);

/* Bytes of the white space that begins or ends a text of UTF-8, as Python's
 * str.strip() has it. */
size_t unicode_blank_front(const char *text, size_t bytes);
size_t unicode_blank_back(const char *text, size_t bytes);
