/* Regular files, and nothing else that has the name. Opening never waits, as for
 * the writer of a FIFO.
 *
 * Whether a link is followed depends on whose the folder is. A user's own path
 * may be one. Run directories may be writable for a group: a link in one of
 * them must not lead a run into other files, neither to write nor to read. The
 * folder itself may be a link. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "src/base/err.h"

enum regular_links { REGULAR_FOLLOW, REGULAR_NO_LINK };

/* Open the file called `name` in the folder `at` (AT_FDCWD: `path` itself), made
 * where the flags of open() say so; `path` is for messages. Where it is none,
 * or a link that is not to be followed, ERR_DATA if it is to be read, ERR_SPACE
 * if it is to be written. The caller closes *fd, -1 after an error. */
enum err regular_open_at(int at, const char *name, int flags,
                         enum regular_links links, const char *path, int *fd);

/* The folder `path`, made if need be, but not its parents, and no link: *fd is
 * open on it. ERR_SPACE where something else has the name. */
enum err regular_folder(const char *path, int *fd);

/* All of it to the file's end, or none: what came of a write that failed is cut
 * off. */
enum err regular_append(int fd, const char *path, const void *data,
                        size_t bytes);

/* "a folder", "a pipe", ... of what is no regular file. */
const char *regular_kind(mode_t mode);

/* ERR_DATA when there is no such file or it is not a regular one. */
enum err regular_size(const char *path, int64_t *bytes);

/* The same, and open it for reading; a link is followed. */
enum err regular_open(const char *path, int *fd, int64_t *bytes);

/* The same as a stream; where there is no such file ERR_OK and NULL. */
enum err regular_stream(const char *path, FILE **file);

/* For a file that is read once from its beginning: a regular one, or what the
 * process was given open (fsio_is_given(): a pipe, a terminal), but no folder.
 * ERR_USAGE: it is something else, or not there. */
enum err regular_readable(const char *path);

/* How many of `wanted` > 0 files a data set may have open at a time: a quarter of
 * what the process may, since a run has two data sets and other files. Where it
 * is lower and that is allowed, the process's limit is raised to
 * REGULAR_LIMIT, or for more files to what they need, up to
 * REGULAR_LIMIT_MAX. 1 <= *files <= wanted. */
#define REGULAR_LIMIT 4096
#define REGULAR_LIMIT_MAX 65536
enum err regular_limit(int64_t wanted, int64_t *files);

/* fsio_read_file() of one. */
enum err regular_read(const char *path, size_t bytes_max, char **data,
                      size_t *bytes);

/* ERR_USAGE for "s3://bucket/set" and other places that are not in this
 * machine's file systems, whatever a folder "s3:" may hold. */
enum err regular_local(const char *path);
