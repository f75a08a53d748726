/* Files and folders that a program was told to write: they replace nothing that
 * it reads, they are begun before the work, so that a place where nothing can be
 * written is told at once, and they appear whole or not at all. */
#pragma once

#include <stddef.h>
#include <stdio.h>

#include "src/base/err.h"
#include "src/base/fsio.h"

struct output {
    char path[FSIO_PATH_MAX], temporary[FSIO_PATH_MAX];
    FILE *file;          /* to write to; NULL: there is none */
    struct output *next; /* of those that a signal removes */
};

/* ERR_USAGE where a file at `path` would be one of the `count` inputs (NULLs are
 * passed over), by whatever name or link, also where neither is there yet; or
 * one that a run directory, a checkpoint, a model or a data set is made of. */
enum err output_check(const char *path, const char *const *inputs,
                      size_t count);

/* PARENT/.NAME.tmp.HOST.PID.N, which nothing has, for what is put at `path`
 * later; those that processes of this host have left who are gone are removed.
 */
enum err output_temporary(const char *path, char temporary[FSIO_PATH_MAX]);

/* output_check(), and a temporary file with the mode of the file that it will
 * replace: TERM, INT, HUP, QUIT and PIPE remove it where they would end the
 * process. What the process was given open (a shell's >(...)) and devices are
 * written as it comes. ERR_SPACE where something else but a file has the name.
 * *out stays where it is until output_end() or output_drop(). */
enum err output_begin(const char *path, const char *const *inputs, size_t count,
                      struct output *out);
/* To the disk and to its place; `fresh`: ERR_USAGE if something is there by now.
 * Gone afterwards in any case; nothing is done where nothing was begun. */
enum err output_end(struct output *out, bool fresh);
void output_drop(struct output *out);
