/* TAP (Test Anything Protocol) for C tests, read by prove(1).
 *
 *     int main(void) { tap_ok(1 + 1 == 2, "adds"); return tap_done(); }
 *
 * The plan is printed by tap_done(). Diagnostics start with '#'. What tests take
 * of the C library comes along. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One test point; prints ok / not ok with a number. Returns `pass`. */
bool tap_check(bool pass, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#define tap_ok(pass, ...) tap_check((pass), __FILE__, __LINE__, __VA_ARGS__)

/* Equality that prints both sides when it fails. */
bool tap_is_int(long long got, long long want, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool tap_is_str(const char *got, const char *want, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* |got - want| <= tolerance * max(1, |want|). */
bool tap_is_close(double got, double want, double tolerance, const char *format,
                  ...) __attribute__((format(printf, 4, 5)));

/* A comment line. */
void tap_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* One visible skipped point with its reason. */
void tap_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Print nothing from now on but keep counting: for ranks other than 0. */
void tap_silence(void);

/* Print the plan; the process's exit status (0 all passed, 1 otherwise). */
int tap_done(void);

/* A list within a row of a table: bare braces make clang-format give each value of
 * the row a line. */
#define TUPLE(...)                                                             \
    {                                                                          \
        __VA_ARGS__                                                            \
    }

/* A new folder below TMPDIR, gone with tap_done(); valid until the eighth next
 * call. One that cannot be made ends the test. */
const char *tap_folder(void);
