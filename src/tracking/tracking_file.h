/* Files that sinks write: regular ones, never through a link. */
#pragma once

#include <stddef.h>

#include "src/base/err.h"

/* The folder `path`, made if need be, but not its parents; *fd is open on it.
 * ERR_SPACE where something else has the name, a link to a folder too. */
enum err tracking_file_folder(const char *path, int *fd);

/* Open the file called `name` in the folder `at` (AT_FDCWD: `path` itself) with
 * these flags of open(); `path` is for messages. ERR_SPACE for what is no
 * regular file. */
enum err tracking_file_open(int at, const char *name, int flags,
                            const char *path, int *fd);

/* All of it or none: what came of a write that failed is cut off. */
enum err tracking_file_append(int fd, const char *path, const void *data,
                              size_t bytes);
