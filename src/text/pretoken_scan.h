/* Patterns that are scanned by hand: each takes a text's first word, of which
 * it looks at nothing but that text, so that words can be taken one by one. */
#ifndef TESSERA_TEXT_PRETOKEN_SCAN_H
#define TESSERA_TEXT_PRETOKEN_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/text/unicode.h"

/* Length of the first word of a text, which is valid UTF-8 and not empty. */
typedef size_t pretoken_scan_fn(const struct unicode *unicode,
                                const uint8_t *text, size_t bytes);

/* The scanner of this regular expression; NULL: there is none. */
pretoken_scan_fn *pretoken_scan_find(const char *pattern);

/* GPT-2's pattern, which ByteLevel has of itself. */
pretoken_scan_fn pretoken_scan_gpt2;
/* A digit, or a row of digits, or of what is none. */
pretoken_scan_fn pretoken_scan_digit;
pretoken_scan_fn pretoken_scan_digits;

/* Whether this one begins a word at each white space after a letter or number,
 * and at each blank after anything but white space. */
bool pretoken_scan_breaks(pretoken_scan_fn *scan);

#endif
