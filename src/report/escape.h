/* Text from files, made safe for where it is shown. What is no UTF-8, control
 * characters, and those that turn the direction of writing become U+FFFD, or '?'
 * in a terminal. */
#pragma once

#include <stddef.h>
#include <stdio.h>

/* In HTML and SVG, between tags and in quoted attributes. Line ends stay. */
void escape_html(FILE *out, const char *text);

/* For a terminal: printable ASCII, in at most size - 1 letters; line ends
 * become blanks. */
void escape_terminal(const char *text, char *out, size_t size);
