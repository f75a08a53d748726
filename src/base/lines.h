/* Files of lines that only ever grow, as the run directory's *.jsonl. A crash
 * can leave half a line at the end: the next line ends it, so that it costs
 * itself and nothing else. */
#ifndef TESSERA_BASE_LINES_H
#define TESSERA_BASE_LINES_H

#include "src/base/err.h"
#include "src/base/fsio.h"

/* Open DIR/name for reading and appending, made if need be, and set `path` to
 * it. The caller closes *fd, -1 after an error. ERR_SPACE for what is no regular
 * file, and for a link, which in a folder that others may write to could lead
 * anywhere; DIR itself may be one. */
enum err lines_open(const char *dir, const char *name, char path[FSIO_PATH_MAX],
                    int *fd);

/* Append the line, which has no newline of its own, in one write. */
enum err lines_append(int fd, const char *path, const char *line);

#endif
