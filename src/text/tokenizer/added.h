/* Added tokens: texts that are tokens of their own wherever they stand, found
 * before anything else is done. Of several at one place the longest counts. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/text/unicode.h"

#define ADDED_BYTES_MAX 1024 /* of a token: bounds the search at one place */

enum added_flag {
    ADDED_SPECIAL = 1,
    ADDED_LSTRIP = 2,      /* takes white space before it */
    ADDED_RSTRIP = 4,      /* ... and behind it */
    ADDED_SINGLE_WORD = 8, /* not where a word's character is beside it */
    /* of their texts, found out here */
    ADDED_BLANK = 16,      /* has ASCII white space or a control character */
    ADDED_REPLACEMENT = 32 /* has U+FFFD */
};

struct added;

enum err added_create(struct added **out);
void added_destroy(struct added *added);
/* ERR_DATA: empty, too long or there already. flags: enum added_flag. */
enum err added_add(struct added *added, const uint8_t *text, size_t bytes,
                   int32_t token, unsigned flags);

/* Which flags any of its tokens has. */
unsigned added_flags(const struct added *added);
/* The token that is written so; -1. */
int32_t added_find(const struct added *added, const uint8_t *text,
                   size_t bytes);

struct added_match {
    size_t start, end; /* with the white space that it takes */
    int32_t token;
};

/* A search through one text. Zeros: at its beginning. */
struct added_search {
    size_t from; /* where the next match may begin */
    size_t done; /* the end of the last match, with its white space */
};

/* The next match; false: there is none. special: special ones count, too. */
bool added_next(const struct added *added, const struct unicode *unicode,
                const uint8_t *text, size_t bytes, bool special,
                struct added_search *search, struct added_match *match);

/* Whether a token may begin before `cut` and end behind it (touch: or there), or
 * take white space from behind it, in a text of which `bytes` are known. */
bool added_straddles(const struct added *added, const uint8_t *text,
                     size_t bytes, size_t cut, bool touch);
