/* Regular expressions of tokenizer files, by PCRE2. They are written for
 * Oniguruma, so only what means the same in both is taken. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/array.h"
#include "src/base/err.h"
#include "src/text/unicode.h"

struct pretoken_regex;

/* unicode: lent. literal: the pattern is a text, not an expression. ERR_DATA: it can't be
 * compiled, or has what is not known to mean the same. */
enum err pretoken_regex_create(const struct unicode *unicode,
                               const char *pattern, bool literal,
                               struct pretoken_regex **out);
void pretoken_regex_destroy(struct pretoken_regex *regex);

struct pretoken_span {
    size_t start, end;
    bool match; /* else it is what lies between two */
};

/* A list that grows, and what matching needs; zeros: an empty one. One per
 * thread. */
struct pretoken_spans {
    struct pretoken_span *span;
    size_t count, capacity;
    struct pretoken_search *search;
};

void pretoken_regex_free(struct pretoken_spans *spans);

/* Append the whole text as matches and what lies between them. Any number of
 * threads may. ERR_DATA: the expression takes too long on this text. */
enum err pretoken_regex_split(const struct pretoken_regex *regex,
                              const uint8_t *text, size_t bytes,
                              struct pretoken_spans *spans);

/* --- classes of characters, by this tree's Unicode table and not by PCRE2's ---
 *
 * Before a pattern that asks for categories is matched, each character of the
 * text beyond ASCII is replaced by a stand-in of as many bytes of UTF-8, one for
 * each category and each interval between the characters that the pattern names.
 * So a category is a few ranges in the pattern, and places stay what they are.
 * Stand-ins are Hebrew to NKo and of private use: none has a large and a small
 * form. Three characters stand for themselves: U+0085, which is white space but a
 * control, and U+017F and U+212A, which are s and k where case does not matter. */

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

/* Append the expression for PCRE2, with a NUL, for texts with the stand-ins of
 * `classes`, which are filled; zeros: for texts as they are. ERR_DATA names the
 * first byte of what can't be used. */
enum err pretoken_onig_translate(const struct unicode *unicode,
                                 const char *pattern,
                                 struct pretoken_classes *classes,
                                 struct buffer *out);
