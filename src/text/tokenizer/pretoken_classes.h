/* Classes of characters in patterns, by this tree's Unicode table and not by that
 * of the library that matches.
 *
 * Before a pattern that asks for categories is matched, each character of the
 * text beyond ASCII is replaced by a stand-in of as many bytes of UTF-8, one for
 * each category and each interval between the characters that the pattern names.
 * So a category is a few ranges in the pattern, and places stay what they are.
 * Stand-ins are Hebrew to NKo and of private use: none has a large and a small
 * form. Three characters stand for themselves: U+0085, which is white space but a
 * control, and U+017F and U+212A, which are s and k where case does not matter. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/array.h"
#include "src/base/err.h"
#include "src/text/unicode.h"

/* Intervals at most: what the characters of two bytes have room for. */
#define PRETOKEN_CLASSES_INTERVALS 20

/* Zeros: the pattern asks for no categories, texts are matched as they are. */
struct pretoken_classes {
    uint32_t first[PRETOKEN_CLASSES_INTERVALS]; /* of each interval, rising */
    uint32_t count;
};

/* Divide at the points from `low` to `high`. ERR_DATA: into too many. */
enum err pretoken_classes_divide(struct pretoken_classes *classes, uint32_t low,
                                 uint32_t high);

/* For a set between brackets: the characters of the categories whose bits are
 * set; those from low to high, beyond ASCII, of a pattern with classes. */
enum err pretoken_classes_put(const struct pretoken_classes *classes,
                              const struct unicode *unicode,
                              uint32_t categories, struct buffer *out);
enum err pretoken_classes_put_range(const struct pretoken_classes *classes,
                                    uint32_t low, uint32_t high,
                                    struct buffer *out);

/* The text with stand-ins, in place of what is in `out`. */
enum err pretoken_classes_map(const struct pretoken_classes *classes,
                              const struct unicode *unicode,
                              const uint8_t *text, size_t bytes,
                              struct buffer *out);

/* Whether all of the text is ASCII. */
bool pretoken_classes_ascii(const uint8_t *text, size_t bytes);
