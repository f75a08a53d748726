/* Files: whole reads, atomic and durable writes, folders.
 * Every function names the path in its error text. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

#define FSIO_PATH_MAX 1024

/* "a/b" of printf parts into a buffer; ERR_USAGE when longer than
 * FSIO_PATH_MAX-1. */
enum err fsio_path(char out[FSIO_PATH_MAX], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The folder that it lies in: "." for "name", "/" for "/name". */
enum err fsio_parent(const char *path, char out[FSIO_PATH_MAX]);
/* That of this program, with others of ours in it. */
enum err fsio_own_folder(char out[FSIO_PATH_MAX]);

/* Whether it names what the process was given open: /dev/stdin, /dev/fd/N (a
 * shell's <(...)), /proc/self/fd/N. */
bool fsio_is_given(const char *path);

/* Whole file, NUL appended (not counted); the caller frees *data. Files over
 * `bytes_max` are ERR_DATA. ENOENT is ERR_DATA "no such file". A named pipe is
 * ERR_DATA; one that the process was given is read. */
enum err fsio_read_file(const char *path, size_t bytes_max, char **data,
                        size_t *bytes);

/* ERR_SPACE unless there is nothing, or a regular file: what a file may be put
 * over. */
enum err fsio_check_replaceable(const char *path);

/* Write path.tmp.PID, fsync, rename to path, fsync the folder. On failure the
 * old file is untouched and no temporary stays. Anything but a regular file at
 * path is left alone: ERR_SPACE. */
enum err fsio_write_atomic(const char *path, const void *data, size_t bytes);

/* The same for the owner's eyes alone, mode 0600. No other thread may make files
 * meanwhile. */
enum err fsio_write_private(const char *path, const void *data, size_t bytes);

/* The same without a sync, for what may be lost: after a power cut the file may
 * be the old one, empty or gone. */
enum err fsio_write_hint(const char *path, const void *data, size_t bytes);

/* A file that nobody looks for as yet, since its folder is being made: written
 * under its own name, synced where it is to be durable. Its folder is not synced.
 * Nothing may have the name, a link neither; no part of it stays after an error. */
enum err fsio_write_new(const char *path, const void *data, size_t bytes,
                        bool durable);

/* A new file path.tmp.PID, or path.tmp.PID.N where something has that name,
 * which is left alone: open for writing, to be renamed or removed by the
 * caller. */
enum err fsio_create_temporary(const char *path, char temporary[FSIO_PATH_MAX],
                               int *fd);
/* close(), or nothing where `fd` is below 0: no file. */
void fsio_close(int fd);

/* rename() to a name that nothing has; ERR_USAGE where something has it. */
enum err fsio_rename_new(const char *from, const char *to);

/* All of it, retrying short transfers and EINTR. A read that meets the end of
 * file is ERR_DATA "truncated". */
enum err fsio_pwrite(int fd, const void *data, size_t bytes, int64_t offset,
                     const char *path);
enum err fsio_pread(int fd, void *data, size_t bytes, int64_t offset,
                    const char *path);

enum err fsio_fsync_dir(const char *path);
/* mkdir -p, mode 0777 less umask. ERR_USAGE where the path can't be a folder: a
 * link to nothing, /proc. */
enum err fsio_mkdirs(const char *path);
/* A new folder PREFIX.PID.RANDOM, which nobody can have made before: it and its
 * parents are made. For whoever removes it again. */
enum err fsio_mkdir_new(const char *prefix, char out[FSIO_PATH_MAX]);
bool fsio_exists(const char *path);
/* The way from a folder to a path, "../base"; both are absolute, without links,
 * "." and "..", as realpath() has them. ERR_USAGE as fsio_path(). */
enum err fsio_relative(const char *folder, const char *path,
                       char out[FSIO_PATH_MAX]);
/* rm -r; a missing path is fine. Does not follow links. */
enum err fsio_remove_tree(const char *path);
/* Bytes that an unprivileged process can still write below `path`. */
enum err fsio_free_bytes(const char *path, uint64_t *bytes);
