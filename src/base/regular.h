/* Files that are read: regular ones only. Opening never waits, as for the
 * writer of a FIFO. Links to regular files are fine. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "src/base/err.h"

/* ERR_DATA when there is no such file or it is not a regular one. */
enum err regular_size(const char *path, int64_t *bytes);

/* The same, and open it for reading. */
enum err regular_open(const char *path, int *fd, int64_t *bytes);

/* The same as a stream; where there is no such file ERR_OK and NULL. */
enum err regular_stream(const char *path, FILE **file);

/* For a file that is read once from its beginning: a regular one, or what the
 * process was given open (fsio_is_given(): a pipe, a terminal), but no folder.
 * ERR_USAGE: it is something else, or not there. */
enum err regular_readable(const char *path);

/* How many a data set may have open at a time: a quarter of what the process
 * may, since a run has two data sets and other files. The process's limit is
 * raised to REGULAR_LIMIT, where it is lower and that is allowed. */
#define REGULAR_LIMIT 4096
enum err regular_limit(int64_t *files);

/* fsio_read_file() of one. */
enum err regular_read(const char *path, size_t bytes_max, char **data,
                      size_t *bytes);

/* ERR_USAGE for "s3://bucket/set" and other places that are not in this
 * machine's file systems, whatever a folder "s3:" may hold. */
enum err regular_local(const char *path);
