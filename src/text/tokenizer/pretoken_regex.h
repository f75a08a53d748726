/* Regular expressions of tokenizer files, by PCRE2. They are written for
 * Oniguruma, so only what means the same in both is taken. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/text/tokenizer/pretoken_classes.h"

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

/* Append the expression for PCRE2, with a NUL, for texts with the stand-ins of
 * `classes`, which are filled; zeros: for texts as they are. ERR_DATA names the
 * first byte of what can't be used. */
enum err pretoken_onig_translate(const struct unicode *unicode,
                                 const char *pattern,
                                 struct pretoken_classes *classes,
                                 struct buffer *out);
