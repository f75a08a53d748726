/* Texts that nobody here wrote, shown to people: a terminal obeys control
 * characters, and what is in a file is not to move its cursor, rename its window
 * or write its clipboard. Whole texts in a language's own form are
 * src/text/unicode.h's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* In place: control characters (C0, DEL, C1) become blanks, as do bytes that are
 * not UTF-8 question marks; `lines`: but line ends and tabs stay. */
void clean_text(char *text, bool lines);

/* printf() and fprintf() of the cleaned text, lines kept. */
void clean_printf(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
void clean_fprintf(FILE *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Appends to the text in out[bytes], behind `between` where there is one already,
 * as far as there is room. */
void clean_join(char *out, size_t bytes, const char *between,
                const char *format, ...) __attribute__((format(printf, 4, 5)));

/* A word for a shell, as it is where nothing in it means more; in quotes else. */
#define CLEAN_QUOTED_BYTES(length) (4 * (length) + 3)
void clean_quote(const char *text, char *out, size_t bytes);

/* Paths that work but tell a reader nothing, /proc/self/fd/N (own.h): from now on
 * clean_paths() puts `path` where a text has `at`. The entry that was `from` is
 * replaced: "" of a new one, at "" of one that is over. Of CLEAN_ALIASES_MAX at
 * a time; what finds no room stays in texts as it is. Thread-safe. */
#define CLEAN_ALIASES_MAX 32
#define CLEAN_AT "/proc/self/fd/"
void clean_alias(const char *from, const char *at, const char *path);
void clean_paths(char *text, size_t bytes);
