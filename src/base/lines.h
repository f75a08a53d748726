/* Files of lines that only ever grow, as the run directory's *.jsonl. A crash
 * can leave half a line at the end: the next line ends it, so that it costs
 * itself and nothing else. */
#pragma once

#include "src/base/err.h"
#include "src/base/fsio.h"

/* Open DIR/name for reading and appending, made if need be, and set `path` to
 * it. The caller closes *fd, -1 after an error. ERR_SPACE for what is no regular
 * file, and for a link, which in a folder that others may write to could lead
 * anywhere; DIR itself may be one. */
enum err lines_open(const char *dir, const char *name, char path[FSIO_PATH_MAX],
                    int *fd);

/* Append the line, which has no newline of its own, in one write. What a full
 * file system takes of it is cut off again. */
enum err lines_append(int fd, const char *path, const char *line);

/* The same, durable when it returns. */
enum err lines_append_durable(int fd, const char *path, const char *line);

/* From now on a full file system is no error of these two: the process keeps
 * what finds no room, up to LINES_KEPT_MAX bytes of each path, in its order, and
 * tries again, at most once a second, when more lines come. The log says so, and
 * how many lines were lost because that was not enough. The one state of a
 * process beside the log's and the stop flag. Thread-safe. */
#define LINES_KEPT_MAX ((size_t)16 << 20)
void lines_keep(void);

/* Try again at once, for all paths: ERR_FULL while something is still kept. */
enum err lines_settle(void);

/* What is kept of this path: whole lines, for the caller to free; NULL where
 * there is nothing. */
char *lines_kept(const char *path);
