/* Files and folders: whole reads, atomic writes, sync, removal. Large transfers
 * of checkpoints are checkpoint/files/ckpt_io.c.
 *
 * A file that is replaced is at all times the old one or the new one. The new
 * one is written under a name that nobody looks for, in the same folder, as
 * rename() works within a file system alone. fsync() before the rename, or
 * after a power cut the name may lead to a file without its bytes; fsync() of
 * the folder after it, or the name itself may be lost. What may be lost is
 * written without both. Network file systems tell of a full disk at fsync() or
 * close() only, so both are checked. */
#include "src/base/fsio.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* One transfer; Linux itself moves at most 2 GiB per call. */
#define FSIO_CHUNK_BYTES ((size_t)1 << 30)
/* The first buffer for files whose size is not known (/proc, pipes). */
#define FSIO_FIRST_BYTES ((size_t)4096)
/* Folders that nftw() keeps open at once. */
#define FSIO_WALK_FDS 16
/* A tree that another process removes at the same time is walked again. */
#define FSIO_WALK_TRIES 8
/* Names that a new temporary file tries. */
#define FSIO_NAME_TRIES 100

enum err fsio_path(char out[FSIO_PATH_MAX], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(out, FSIO_PATH_MAX, format, args);
    va_end(args);
    if (n < 0 || n >= FSIO_PATH_MAX) {
        out[FSIO_PATH_MAX - 1] = '\0';
        return err_set(
            ERR_USAGE,
            "path longer than %d bytes, use a shorter one: %.200s...",
            FSIO_PATH_MAX - 1, out);
    }
    return ERR_OK;
}

enum err fsio_parent(const char *path, char out[FSIO_PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL)
        return fsio_path(out, ".");
    if (slash == path)
        return fsio_path(out, "/");
    return fsio_path(out, "%.*s", (int)(slash - path), path);
}

enum err fsio_own_folder(char out[FSIO_PATH_MAX])
{
    char self[FSIO_PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        return err_errno("/proc/self/exe");
    self[length] = '\0';
    return fsio_parent(self, out);
}

static enum err fsio_open_read(const char *path, int *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        *out = fd;
        return ERR_OK;
    }
    if (errno == ENOENT || errno == ENOTDIR)
        return err_set(ERR_DATA, "%s: no such file", path);
    return err_errno("%s: open", path);
}

/* Reads to the end of the file, which may lie before or after st_size: /proc
 * files say 0, and a log may grow meanwhile. */
static enum err fsio_read_all(int fd, const char *path, size_t bytes_max,
                              char **data, size_t *bytes, size_t room)
{
    for (;;) {
        if (*bytes == room) {
            if (room > SIZE_MAX / 2 - 1)
                return err_set(ERR_MEMORY, "%s: too large for memory", path);
            size_t larger =
                room < FSIO_FIRST_BYTES / 2 ? FSIO_FIRST_BYTES : room * 2;
            char *grown = realloc(*data, larger + 1);
            if (grown == NULL)
                return err_set(ERR_MEMORY, "%s: no memory for %zu bytes", path,
                               larger);
            *data = grown;
            room = larger;
        }
        size_t want = room - *bytes;
        if (want > FSIO_CHUNK_BYTES)
            want = FSIO_CHUNK_BYTES;
        ssize_t n = read(fd, *data + *bytes, want);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno("%s: read", path);
        if (n == 0)
            return ERR_OK;
        *bytes += (size_t)n;
        if (*bytes > bytes_max)
            return err_set(ERR_DATA, "%s: larger than the limit of %zu bytes",
                           path, bytes_max);
    }
}

bool fsio_is_given(const char *path)
{
    return strcmp(path, "/dev/stdin") == 0 ||
           strncmp(path, "/dev/fd/", 8) == 0 ||
           strncmp(path, "/proc/self/fd/", 14) == 0;
}

enum err fsio_read_file(const char *path, size_t bytes_max, char **data,
                        size_t *bytes)
{
    enum err rc = ERR_OK;
    int fd = -1;
    char *buffer = NULL;
    size_t length = 0;
    struct stat st;
    *data = NULL;
    *bytes = 0;
    /* nobody may ever write to it */
    if (stat(path, &st) == 0 && S_ISFIFO(st.st_mode) && !fsio_is_given(path))
        TRY_OUT(err_set(ERR_DATA, "%s: is a pipe, not a regular file", path));
    TRY_OUT(fsio_open_read(path, &fd));
    if (fstat(fd, &st) != 0)
        TRY_OUT(err_errno("%s: stat", path));
    if (S_ISDIR(st.st_mode))
        TRY_OUT(err_set(ERR_DATA, "%s: is a folder, not a file", path));
    if (st.st_size > 0 && (uint64_t)st.st_size > bytes_max)
        TRY_OUT(err_set(ERR_DATA, "%s: %lld bytes, the limit is %zu", path,
                        (long long)st.st_size, bytes_max));
    /* one byte more than the size, so that the end is seen without growing */
    size_t room = (size_t)st.st_size + 1;
    buffer = malloc(room + 1);
    if (buffer == NULL)
        TRY_OUT(err_set(ERR_MEMORY, "%s: no memory for %zu bytes", path, room));
    TRY_OUT(fsio_read_all(fd, path, bytes_max, &buffer, &length, room));
    buffer[length] = '\0';
    *data = buffer;
    *bytes = length;
    buffer = NULL;
out:
    free(buffer);
    fsio_close(fd);
    return rc;
}

/* A link is somebody's wish to have it elsewhere. */
enum err fsio_check_replaceable(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0 || S_ISREG(st.st_mode))
        return ERR_OK;
    return err_set(ERR_SPACE,
                   "%s: is %s, not a regular file, and is not replaced: remove "
                   "it or name another file",
                   path,
                   S_ISLNK(st.st_mode)   ? "a link"
                   : S_ISDIR(st.st_mode) ? "a folder"
                                         : "a device, pipe or socket");
}

enum err fsio_create_temporary(const char *path, char temporary[FSIO_PATH_MAX],
                               int *fd)
{
    enum err rc = ERR_OK;
    char parent[FSIO_PATH_MAX];
    TRY(fsio_path(temporary, "%s.tmp.%ld", path, (long)getpid()));
    for (int i = 1;; i++) {
        *fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (*fd >= 0 || errno != EEXIST || i == FSIO_NAME_TRIES)
            break;
        TRY(fsio_path(temporary, "%s.tmp.%ld.%d", path, (long)getpid(), i));
    }
    if (*fd < 0 && errno == ENOENT && fsio_parent(path, parent) == ERR_OK &&
        fsio_exists(parent)) /* /proc */
        rc = err_set(ERR_SPACE, "%s: no file can be made there", path);
    else if (*fd < 0)
        rc = err_errno("%s: create", temporary);
    return rc;
}

/* A new file is filled and closed, or it does not stay. */
static enum err fill(int fd, const char *path, const void *data, size_t bytes,
                     bool durable)
{
    enum err rc = fsio_pwrite(fd, data, bytes, 0, path);
    if (rc == ERR_OK && durable && fsync(fd) != 0)
        rc = err_errno("%s: fsync", path);
    /* NFS reports a full disk or quota only here */
    if (close(fd) != 0 && rc == ERR_OK)
        rc = err_errno("%s: close", path);
    if (rc != ERR_OK)
        unlink(path);
    return rc;
}

enum err fsio_write_new(const char *path, const void *data, size_t bytes,
                        bool durable)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return err_errno("%s: create", path);
    return fill(fd, path, data, bytes, durable);
}

static enum err write_replace(const char *path, const void *data, size_t bytes,
                              bool durable)
{
    int fd = -1;
    char temporary[FSIO_PATH_MAX], parent[FSIO_PATH_MAX];
    TRY(fsio_check_replaceable(path));
    TRY(fsio_parent(path, parent));
    TRY(fsio_create_temporary(path, temporary, &fd));
    TRY(fill(fd, temporary, data, bytes, durable));
    if (rename(temporary, path) != 0) {
        enum err rc = err_errno("%s: rename to %s", temporary, path);
        unlink(temporary);
        return rc;
    }
    return durable ? fsio_fsync_dir(parent) : ERR_OK;
}

enum err fsio_write_atomic(const char *path, const void *data, size_t bytes)
{
    return write_replace(path, data, bytes, true);
}

enum err fsio_write_hint(const char *path, const void *data, size_t bytes)
{
    return write_replace(path, data, bytes, false);
}

enum err fsio_write_private(const char *path, const void *data, size_t bytes)
{
    mode_t mask = umask(077);
    enum err rc = write_replace(path, data, bytes, true);
    umask(mask);
    return rc;
}

void fsio_close(int fd)
{
    if (fd >= 0)
        close(fd);
}

enum err fsio_rename_new(const char *from, const char *to)
{
    struct stat st;
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return ERR_OK;
    /* Some network file systems know no flags. */
    if (errno == EINVAL || errno == ENOSYS) {
        if (lstat(to, &st) == 0)
            errno = EEXIST;
        else if (rename(from, to) == 0)
            return ERR_OK;
    }
    if (errno == EEXIST)
        return err_set(ERR_USAGE,
                       "%s was made by another process meanwhile; name a new "
                       "one",
                       to);
    return err_errno("%s: rename to %s", from, to);
}

/* All of it, in as many calls as that takes. */
static enum err fsio_transfer(int fd, void *data, size_t bytes, int64_t offset,
                              const char *path, bool writes)
{
    assert(offset >= 0);
    char *at = data;
    assert(fd >= 0 && (data != NULL || bytes == 0));
    while (bytes > 0) {
        size_t want = bytes < FSIO_CHUNK_BYTES ? bytes : FSIO_CHUNK_BYTES;
        ssize_t n = writes ? pwrite(fd, at, want, (off_t)offset)
                           : pread(fd, at, want, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno("%s: %s of %zu bytes at %lld", path,
                             writes ? "write" : "read", want,
                             (long long)offset);
        if (n == 0 && writes)
            return err_set(ERR_IO, "%s: write at %lld accepted no bytes", path,
                           (long long)offset);
        if (n == 0)
            return err_set(ERR_DATA,
                           "%s: truncated: ends at %lld, %zu more bytes needed",
                           path, (long long)offset, bytes);
        at += n;
        bytes -= (size_t)n;
        offset += n;
    }
    return ERR_OK;
}

enum err fsio_pwrite(int fd, const void *data, size_t bytes, int64_t offset,
                     const char *path)
{
    return fsio_transfer(fd, (void *)data, bytes, offset, path, true);
}

enum err fsio_pread(int fd, void *data, size_t bytes, int64_t offset,
                    const char *path)
{
    return fsio_transfer(fd, data, bytes, offset, path, false);
}

enum err fsio_fsync_dir(const char *path)
{
    enum err rc = ERR_OK;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_errno("%s: open folder", path);
    /* some file systems cannot sync folders and need not: they say EINVAL */
    if (fsync(fd) != 0 && errno != EINVAL)
        rc = err_errno("%s: fsync folder", path);
    close(fd);
    return rc;
}

/* Something that is no folder has the name. */
static enum err fsio_not_folder(const char *path)
{
    char target[FSIO_PATH_MAX];
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0 || fsio_exists(path)) {
        errno = ENOTDIR;
        return err_errno("%s: create folder", path);
    }
    target[length] = '\0';
    return err_set(ERR_USAGE,
                   "%s is a link to %s, which does not exist: make that folder "
                   "or remove the link",
                   path, target);
}

static enum err fsio_mkdir_one(const char *path)
{
    char parent[FSIO_PATH_MAX];
    if (mkdir(path, 0777) == 0)
        return ERR_OK;
    /* on network and read-only mounts an existing folder may be answered with
     * something else than EEXIST: what counts is that it is there */
    int saved = errno;
    struct stat st;
    bool seen = stat(path, &st) == 0;
    if (seen && S_ISDIR(st.st_mode))
        return ERR_OK;
    if (saved == EEXIST && (seen || errno == ENOENT || errno == ELOOP))
        return fsio_not_folder(path);
    if (saved == EEXIST)
        return err_errno("%s: look at", path);
    /* /proc says so of what it does not know */
    if (saved == ENOENT && fsio_parent(path, parent) == ERR_OK &&
        fsio_exists(parent))
        return err_set(ERR_USAGE, "%s: no folder can be made there", path);
    errno = saved;
    return err_errno("%s: create folder", path);
}

enum err fsio_mkdirs(const char *path)
{
    char part[FSIO_PATH_MAX];
    struct stat st;
    TRY(fsio_path(part, "%s", path));
    /* mostly it is there, or its parent is */
    if (mkdir(path, 0777) == 0 ||
        (errno == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode)))
        return ERR_OK;
    for (char *p = part + 1; part[0] != '\0' && *p != '\0'; p++) {
        if (*p != '/' || p[-1] == '/')
            continue;
        *p = '\0';
        TRY(fsio_mkdir_one(part));
        *p = '/';
    }
    return fsio_mkdir_one(part);
}

enum err fsio_mkdir_new(const char *prefix, char out[FSIO_PATH_MAX])
{
    char parent[FSIO_PATH_MAX];
    unsigned random;
    TRY(fsio_parent(prefix, parent));
    TRY(fsio_mkdirs(parent));
    do {
        if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
            return err_errno("getrandom");
        TRY(fsio_path(out, "%s.%ld.%08x", prefix, (long)getpid(), random));
    } while (mkdir(out, 0777) != 0 && errno == EEXIST);
    return fsio_mkdir_one(out);
}

enum err fsio_relative(const char *folder, const char *path,
                       char out[FSIO_PATH_MAX])
{
    assert(folder[0] == '/' && path[0] == '/');
    size_t shared = 0; /* up to the end of the last folder of both */
    size_t i = 0;
    size_t ups = 0;
    static const char parent[] = "../";
    for (; folder[i] != '\0' && folder[i] == path[i]; i++)
        if (folder[i] == '/')
            shared = i;
    if ((folder[i] == '\0' || folder[i] == '/') &&
        (path[i] == '\0' || path[i] == '/'))
        shared = i;
    for (const char *rest = folder + shared; *rest != '\0'; rest++)
        ups += *rest == '/' && rest[1] != '\0';
    path += shared;
    path += *path == '/';
    if (*path == '\0' && ups == 0)
        return fsio_path(out, ".");
    if (3 * ups + strlen(path) >= FSIO_PATH_MAX)
        return err_set(ERR_USAGE,
                       "the way from %.200s to .../%.200s is too long", folder,
                       path);
    for (size_t u = 0; u < ups; u++)
        memcpy(out + 3 * u, parent, 3);
    memcpy(out + 3 * ups, path, strlen(path) + 1);
    return ERR_OK;
}

bool fsio_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static int fsio_remove_cb(const char *path, const struct stat *st, int kind,
                          struct FTW *walk)
{
    (void)st;
    (void)kind;
    (void)walk;
    if (remove(path) == 0 || errno == ENOENT)
        return 0;
    return (int)err_errno("%s: remove", path);
}

static bool fsio_is_missing(const char *path)
{
    int saved = errno;
    struct stat st;
    bool missing =
        lstat(path, &st) != 0 && (errno == ENOENT || errno == ENOTDIR);
    errno = saved;
    return missing;
}

enum err fsio_remove_tree(const char *path)
{
    assert(path[0] != '\0');
    for (int i = 0; i < FSIO_WALK_TRIES; i++) {
        int n = nftw(path, fsio_remove_cb, FSIO_WALK_FDS, FTW_DEPTH | FTW_PHYS);
        if (n > 0)
            return (enum err)n;
        if (n == 0 || fsio_is_missing(path))
            return ERR_OK;
    }
    return err_errno("%s: remove", path);
}

enum err fsio_free_bytes(const char *path, uint64_t *bytes)
{
    struct statvfs st;
    if (statvfs(path, &st) != 0)
        return err_errno("%s: free space", path);
    *bytes = (uint64_t)st.f_bavail * (uint64_t)st.f_frsize;
    return ERR_OK;
}
