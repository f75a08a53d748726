#include "tests/soak/shim.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SHORT_WRITE 100000 /* no errno */

static const struct {
    const char *name;
    int number;
} errors[] = {
    { "ENOSPC", ENOSPC }, { "EDQUOT", EDQUOT }, { "EIO", EIO },
    { "EROFS", EROFS },   { "EINVAL", EINVAL }, { "SHORT", SHORT_WRITE },
};

static bool armed;
static long matches;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void shim_arm(bool on)
{
    armed = on;
    matches = 0;
}

/* The next definition of a function; ISO C has no cast for it. */
static void next(const char *name, void *function)
{
    *(void **)function = dlsym(RTLD_NEXT, name);
}

__attribute__((constructor)) static void begin(void)
{
    const char *store = getenv("SHIM_STORE"), *root = getenv("SHIM_ROOT");
    if (store != NULL && root != NULL)
        shim_store_begin(store, root);
}

static void trace(const char *call, const char *path)
{
    const char *name = getenv("SHIM_TRACE");
    FILE *file = NULL;
    if (name == NULL)
        return;
    armed = false; /* these calls come here too */
    file = fopen(name, "a");
    if (file != NULL) {
        fprintf(file, "%s %s\n", call, path);
        fclose(file);
    }
    armed = true;
}

static bool rank_meant(void)
{
    const char *want = getenv("SHIM_RANK");
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    return want == NULL || strcmp(want, rank == NULL ? "0" : rank) == 0;
}

/* The error of the fault if this call on this path is hit, else 0. */
static int fault_of(const char *call, const char *path)
{
    char want[32], error[32], more[16] = "";
    long nth = 0;
    const char *fault = getenv("SHIM_FAULT");
    const char *glob = getenv("SHIM_PATH");
    if (glob != NULL && fnmatch(glob, path, 0) != 0)
        return 0;
    if (!rank_meant())
        return 0;
    trace(call, path);
    if (fault == NULL ||
        sscanf(fault, "%31[^:]:%31[^:]:%ld:%15s", want, error, &nth, more) < 3)
        return 0;
    bool changes = strcmp(call, "open") != 0 && strcmp(call, "direct") != 0 &&
                   strcmp(call, "close") != 0;
    if (strcmp(want, call) != 0 && !(strcmp(want, "any") == 0 && changes))
        return 0;
    matches++;
    if (matches != nth && !(matches > nth && more[0] != '\0'))
        return 0;
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (strcmp(errors[i].name, error) == 0)
            return errors[i].number;
    abort();
}

/* What a metadata server is asked takes longer. */
static void delay(const char *call, const char *path)
{
    static const char *const others[] = { "write", "close", "create",
                                          "direct" };
    const char *ms = getenv("SHIM_DELAY_MS"), *glob = getenv("SHIM_PATH");
    struct stat status;
    bool asks = ms != NULL && (glob == NULL || fnmatch(glob, path, 0) == 0);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        asks = asks && strcmp(call, others[i]) != 0;
    if (asks && strcmp(call, "fsync") == 0)
        asks = syscall(SYS_newfstatat, AT_FDCWD, path, &status, 0) == 0 &&
               S_ISDIR(status.st_mode);
    if (asks)
        usleep((useconds_t)atoi(ms) * 1000);
}

static int hit(const char *call, const char *path)
{
    delay(call, path);
    if (!armed)
        return 0;
    pthread_mutex_lock(&mutex);
    int number = fault_of(call, path);
    pthread_mutex_unlock(&mutex);
    return number;
}

static void path_of(int fd, char path[PATH_MAX])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t bytes = readlink(link, path, PATH_MAX - 1);
    path[bytes < 0 ? 0 : bytes] = '\0';
}

static int hit_fd(const char *call, int fd)
{
    char path[PATH_MAX];
    path_of(fd, path);
    return hit(call, path);
}

static int failed(int number)
{
    errno = number;
    return -1;
}

/* --- the calls --- */

static int open_any(const char *path, int flags, mode_t mode)
{
    static int (*real)(const char *, int, ...);
    if (real == NULL)
        next("open64", &real);
    bool creates = (flags & O_CREAT) != 0;
    int number = hit("open", path);
    if (number == 0 && creates)
        number = hit("create", path);
    if (number == 0 && (flags & O_DIRECT) != 0)
        number = hit("direct", path);
    if (number != 0)
        return failed(number);
    bool fresh = creates && syscall(SYS_access, path, F_OK) != 0;
    int fd = real(path, flags, mode);
    if (fd >= 0 && fresh) {
        int saved = errno;
        shim_store_made(path);
        errno = saved;
    }
    return fd;
}

static mode_t mode_of(int flags, va_list list)
{
    return (flags & (O_CREAT | O_TMPFILE)) != 0 ? (mode_t)va_arg(list, int) : 0;
}

#define OPEN(name)                                                             \
    int name(const char *path, int flags, ...)                                 \
    {                                                                          \
        va_list list;                                                          \
        va_start(list, flags);                                                 \
        mode_t mode = mode_of(flags, list);                                    \
        va_end(list);                                                          \
        return open_any(path, flags, mode);                                    \
    }
OPEN(open)
OPEN(open64)

/* Of a path; what is opened in an open folder is nothing of a save's. */
int openat(int dir, const char *path, int flags, ...)
{
    int (*real)(int, const char *, int, ...);
    va_list list;
    next("openat", &real);
    va_start(list, flags);
    mode_t mode = mode_of(flags, list);
    va_end(list);
    return dir == AT_FDCWD ? open_any(path, flags, mode)
                           : real(dir, path, flags, mode);
}

static ssize_t write_any(int fd, const void *data, size_t bytes, off_t offset,
                         bool placed)
{
    static ssize_t (*real)(int, const void *, size_t);
    static ssize_t (*real_placed)(int, const void *, size_t, off_t);
    if (real == NULL)
        next("write", &real);
    if (real_placed == NULL)
        next("pwrite64", &real_placed);
    int number = hit_fd("write", fd);
    if (number == SHORT_WRITE)
        bytes = bytes > 1 ? bytes / 2 : bytes;
    else if (number != 0)
        return failed(number);
    return placed ? real_placed(fd, data, bytes, offset)
                  : real(fd, data, bytes);
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    return write_any(fd, data, bytes, 0, false);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    return write_any(fd, data, bytes, offset, true);
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off_t offset)
{
    return write_any(fd, data, bytes, offset, true);
}

static int sync_any(const char *name, int fd)
{
    int (*real)(int);
    char path[PATH_MAX];
    next(name, &real);
    int number = hit_fd("fsync", fd);
    if (number != 0)
        return failed(number);
    int result = real(fd);
    if (result == 0) {
        path_of(fd, path);
        shim_store_synced(path);
    }
    return result;
}

int fsync(int fd)
{
    return sync_any("fsync", fd);
}

int fdatasync(int fd)
{
    return sync_any("fdatasync", fd);
}

int close(int fd)
{
    static int (*real)(int);
    if (real == NULL)
        next("close", &real);
    int number = hit_fd("close", fd);
    int result = real(fd);
    return number != 0 ? failed(number) : result;
}

#define ALLOCATE(name)                                                         \
    int name(int fd, int mode, off_t offset, off_t bytes)                      \
    {                                                                          \
        int (*real)(int, int, off_t, off_t);                                   \
        next(#name, &real);                                                    \
        int number = hit_fd("fallocate", fd);                                  \
        return number != 0 ? failed(number) : real(fd, mode, offset, bytes);   \
    }
ALLOCATE(fallocate)
ALLOCATE(fallocate64)

/* This one returns the error itself. */
#define POSIX_ALLOCATE(name)                                                   \
    int name(int fd, off_t offset, off_t bytes)                                \
    {                                                                          \
        int (*real)(int, off_t, off_t);                                        \
        next(#name, &real);                                                    \
        int number = hit_fd("fallocate", fd);                                  \
        return number != 0 ? number : real(fd, offset, bytes);                 \
    }
POSIX_ALLOCATE(posix_fallocate)
POSIX_ALLOCATE(posix_fallocate64)

#define TRUNCATE(name)                                                         \
    int name(int fd, off_t bytes)                                              \
    {                                                                          \
        int (*real)(int, off_t);                                               \
        next(#name, &real);                                                    \
        int number = hit_fd("ftruncate", fd);                                  \
        return number != 0 ? failed(number) : real(fd, bytes);                 \
    }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

int rename(const char *from, const char *to)
{
    int (*real)(const char *, const char *);
    next("rename", &real);
    int number = hit("rename", to);
    return number != 0 ? failed(number) : real(from, to);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to,
              unsigned flags)
{
    int (*real)(int, const char *, int, const char *, unsigned);
    next("renameat2", &real);
    int number = hit("renameat2", to);
    return number != 0 ? failed(number)
                       : real(from_dir, from, to_dir, to, flags);
}

int mkdir(const char *path, mode_t mode)
{
    int (*real)(const char *, mode_t);
    next("mkdir", &real);
    int number = hit("mkdir", path);
    if (number != 0)
        return failed(number);
    int result = real(path, mode);
    int saved = errno;
    if (result == 0)
        shim_store_made(path);
    errno = saved;
    return result;
}

#define REMOVE(name)                                                           \
    int name(const char *path)                                                 \
    {                                                                          \
        int (*real)(const char *);                                             \
        next(#name, &real);                                                    \
        int number = hit("remove", path);                                      \
        return number != 0 ? failed(number) : real(path);                      \
    }
REMOVE(remove)
REMOVE(unlink)
REMOVE(rmdir)

int unlinkat(int dir, const char *name, int flags)
{
    int (*real)(int, const char *, int);
    char path[2 * PATH_MAX];
    next("unlinkat", &real);
    path_of(dir, path);
    strcat(strcat(path, "/"), name);
    int number = hit("remove", path);
    return number != 0 ? failed(number) : real(dir, name, flags);
}

#define LOOK(name, type, answer)                                               \
    int name(const char *path, type answer)                                    \
    {                                                                          \
        int (*real)(const char *, type);                                       \
        next(#name, &real);                                                    \
        int number = hit("look", path);                                        \
        return number != 0 ? failed(number) : real(path, answer);              \
    }
LOOK(access, int, mode)
LOOK(stat, struct stat *, status)
LOOK(stat64, struct stat64 *, status)
LOOK(lstat, struct stat *, status)
LOOK(lstat64, struct stat64 *, status)
LOOK(statvfs, struct statvfs *, status)
LOOK(statvfs64, struct statvfs64 *, status)

DIR *opendir(const char *path)
{
    DIR *(*real)(const char *);
    next("opendir", &real);
    errno = hit("look", path);
    return errno != 0 ? NULL : real(path);
}
