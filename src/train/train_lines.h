/* The run directory's files of JSON lines that only ever grow: metrics.jsonl
 * and eval.jsonl. Rank 0 writes. */
#ifndef TESSERA_TRAIN_TRAIN_LINES_H
#define TESSERA_TRAIN_TRAIN_LINES_H

#include <stddef.h>

#include "src/base/err.h"
#include "src/base/fsio.h"

/* Open RUN/name for reading and appending, and set `path` to it; a torn last
 * line of an earlier crash is ended with a newline. */
enum err train_lines_open(const char *run_dir, const char *name,
                          char path[FSIO_PATH_MAX], int *fd);

/* Append one line, in one write. */
enum err train_lines_append(int fd, const char *path, const char *line,
                            size_t bytes);

#endif
