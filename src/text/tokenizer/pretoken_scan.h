/* Patterns that are scanned by hand: each takes a text's first word, of which
 * it looks at nothing but that text, so that words can be taken one by one. */
#pragma once

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

/* Where one begins a word whatever comes before and behind. */
enum pretoken_scan_break {
    /* at a blank behind anything but white space, and at other white space
     * behind a letter or number */
    PRETOKEN_SCAN_SPACES = 1,
    /* at white space behind anything else, too */
    PRETOKEN_SCAN_ALL_SPACES = 2,
    /* behind line ends that follow what is no letter, number, white space */
    PRETOKEN_SCAN_LINES = 4
};

/* enum pretoken_scan_break, or 0: nowhere, and what another step has for one
 * word may be cut there as well. */
unsigned pretoken_scan_breaks(pretoken_scan_fn *scan);
