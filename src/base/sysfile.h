/* Small files of /sys and /proc. A file that is not there, or says that it does not apply (as
 * `speed` of a net device without a carrier does), is not known, and no error. */
#pragma once

#include <glob.h>
#include <stdbool.h>
#include <stddef.h>

/* What the file holds, up to its room, without the last newline; "" and false: not
 * known. */
bool sysfile_text(char *out, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The number that it begins with, decimal or 0x; -1: not known. */
double sysfile_number(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
/* Paths that fit a pattern below root, sorted; the caller calls globfree(). */
void sysfile_find(const char *root, const char *pattern, glob_t *out);
/* What follows the last slash. */
const char *sysfile_name(const char *path);
