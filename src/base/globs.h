/* Lists of patterns for names, such as settings have: globs (fnmatch, "*"
 * matches slashes and dots, too), separated by white space. */
#pragma once

#include <stdbool.h>

#define GLOBS_GLOB_MAX 512

/* Takes the next glob off *rest; false: there is none. One of GLOBS_GLOB_MAX
 * bytes or more is empty then and matches nothing: no name is as long. */
bool globs_next(const char **rest, char glob[GLOBS_GLOB_MAX]);

/* Whether one of them matches. */
bool globs_match(const char *globs, const char *name);
