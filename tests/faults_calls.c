/* Calls of the C library and of jansson, in place of theirs. */
#include "tests/faults_calls.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <jansson.h>
#include <link.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define RANGES_MAX 64

struct faults_calls faults_calls = { .errors = -1 };

/* --- which call fails --- */

/* Where the code of libraries lies that end the program without memory
 * (libgomp), lose it then (HDF5, MPI), or are between us and a network. */
static struct {
    uintptr_t begin, end;
} spared[RANGES_MAX];
static int spared_count;
static const char *const spared_names[] = { "libgomp",   "libhdf5", "libmpi",
                                            "libopen-",  "libcurl", "libssl",
                                            "libcrypto", "libpmix", "libevent",
                                            "libhwloc",  NULL };
extern char __executable_start, etext;

static int spare(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    (void)bytes, (void)arg;
    for (int n = 0; spared_names[n] != NULL; n++)
        for (int p = 0; strstr(info->dlpi_name, spared_names[n]) != NULL &&
                        p < info->dlpi_phnum && spared_count < RANGES_MAX;
             p++)
            if (info->dlpi_phdr[p].p_type == PT_LOAD) {
                uintptr_t at = info->dlpi_addr + info->dlpi_phdr[p].p_vaddr;
                spared[spared_count].begin = at;
                spared[spared_count++].end = at + info->dlpi_phdr[p].p_memsz;
            }
    return 0;
}

void faults_calls_begin(void)
{
    faults_calls.errors = dup(STDERR_FILENO);
    dl_iterate_phdr(spare, NULL);
}

static bool own(const void *caller)
{
    return (const char *)caller >= &__executable_start &&
           (const char *)caller < &etext;
}

static _Thread_local bool within; /* nothing fails */

static bool hit(bool memory, const void *caller)
{
    if (within || !atomic_load(&faults_calls.armed) ||
        memory != (faults_calls.mode <= MEMORY_ON) ||
        faults_calls.mode == FILES_SHORT || (!memory && !own(caller)))
        return false;
    for (int i = 0; memory && i < spared_count; i++)
        if ((uintptr_t)caller >= spared[i].begin &&
            (uintptr_t)caller < spared[i].end)
            return false;
    long call = atomic_fetch_add(&faults_calls.calls, 1) + 1;
    bool on = faults_calls.mode == MEMORY_ON || faults_calls.mode == FILES_ON;
    if (call == faults_calls.nth && faults_calls.tracing) {
        void *frames[24];
        dprintf(faults_calls.errors, "# call %ld of %s:\n", call,
                faults_calls.about);
        backtrace_symbols_fd(frames, backtrace(frames, 24),
                             faults_calls.errors);
    }
    return faults_calls.nth > 0 &&
           (call == faults_calls.nth || (on && call > faults_calls.nth));
}

#define HIT(memory) hit((memory), __builtin_return_address(0))

/* --- memory: below is ASan's, where it is linked, or the C library's --- */

#define BELOW(type, name, params)                                              \
    extern type __libc_##name params;                                          \
    extern type __interceptor_##name params __attribute__((weak));
BELOW(void *, malloc, (size_t))
BELOW(void *, calloc, (size_t, size_t))
BELOW(void *, realloc, (void *, size_t))
BELOW(void *, memalign, (size_t, size_t))
BELOW(void, free, (void *))
#define CALL_BELOW(name)                                                       \
    (__interceptor_##name != NULL ? __interceptor_##name : __libc_##name)

static void *given(void *block)
{
    if (block != NULL)
        atomic_fetch_add(&faults_calls.blocks, 1);
    else
        errno = ENOMEM;
    return block;
}

void *malloc(size_t bytes)
{
    return given(HIT(true) ? NULL : CALL_BELOW(malloc)(bytes));
}

void *calloc(size_t count, size_t bytes)
{
    return given(HIT(true) ? NULL : CALL_BELOW(calloc)(count, bytes));
}

void *realloc(void *old, size_t bytes)
{
    void *block = HIT(true) ? NULL : CALL_BELOW(realloc)(old, bytes);
    if (old == NULL)
        return given(block);
    if (block == NULL && bytes > 0)
        errno = ENOMEM;
    else if (block == NULL)
        atomic_fetch_sub(&faults_calls.blocks, 1);
    return block;
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return given(HIT(true) ? NULL : CALL_BELOW(memalign)(alignment, bytes));
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    void *block =
        given(HIT(true) ? NULL : CALL_BELOW(memalign)(alignment, bytes));
    if (block != NULL)
        *out = block;
    return block != NULL ? 0 : ENOMEM;
}

char *strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *block = given(HIT(true) ? NULL : CALL_BELOW(malloc)(bytes));
    return block != NULL ? memcpy(block, text, bytes) : NULL;
}

void free(void *block)
{
    if (block != NULL)
        atomic_fetch_sub(&faults_calls.blocks, 1);
    CALL_BELOW(free)(block);
}

/* The next definition of a function; ISO C has no cast for it. */
static void next(const char *name, void *function)
{
    if (*(void **)function == NULL)
        *(void **)function = dlsym(RTLD_NEXT, name);
}

/* A text of JSON, read or written, is one call here: where memory fails inside,
 * jansson 2.14 frees what it never had, or leaves out a key. */
json_t *json_loadb(const char *text, size_t bytes, size_t flags,
                   json_error_t *problem)
{
    static json_t *(*real)(const char *, size_t, size_t, json_error_t *);
    next("json_loadb", &real);
    if (HIT(true)) {
        if (problem != NULL)
            memset(problem, 0, sizeof *problem);
        errno = ENOMEM;
        return NULL;
    }
    within = true;
    json_t *root = real(text, bytes, flags, problem);
    within = false;
    return root;
}

char *json_dumps(const json_t *value, size_t flags)
{
    static char *(*real)(const json_t *, size_t);
    next("json_dumps", &real);
    if (HIT(true)) {
        errno = ENOMEM;
        return NULL;
    }
    within = true;
    char *text = real(value, flags);
    within = false;
    return text;
}

json_t *json_loads(const char *text, size_t flags, json_error_t *problem)
{
    return json_loadb(text, strlen(text), flags, problem);
}

/* --- files --- */

static bool file_fails(const void *caller)
{
    if (!hit(false, caller))
        return false;
    errno = faults_calls.mode == FILES_ON ? ENOSPC : EIO;
    return true;
}

#define FAILS() file_fails(__builtin_return_address(0))

#define CALL(type, name, params, args, failed)                                 \
    type name params                                                           \
    {                                                                          \
        static type(*real) params;                                             \
        next(#name, &real);                                                    \
        return FAILS() ? (failed) : real args;                                 \
    }
/* Nothing here has to outlive a power cut. */
#define SYNC(name)                                                             \
    int name(int fd)                                                           \
    {                                                                          \
        (void)fd;                                                              \
        return FAILS() ? -1 : 0;                                               \
    }
SYNC(fsync)
SYNC(fdatasync)
CALL(int, rename, (const char *a, const char *b), (a, b), -1)
CALL(int, renameat2,
     (int da, const char *a, int db, const char *b, unsigned flags),
     (da, a, db, b, flags), -1)
CALL(int, ftruncate, (int fd, off_t bytes), (fd, bytes), -1)
CALL(int, mkdir, (const char *path, mode_t mode), (path, mode), -1)
CALL(int, mkdirat, (int fd, const char *path, mode_t mode), (fd, path, mode),
     -1)
CALL(int, stat, (const char *restrict path, struct stat *restrict out),
     (path, out), -1)
CALL(int, lstat, (const char *restrict path, struct stat *restrict out),
     (path, out), -1)
CALL(int, fstat, (int fd, struct stat *out), (fd, out), -1)
CALL(int, fstatat,
     (int fd, const char *restrict path, struct stat *restrict out, int flags),
     (fd, path, out, flags), -1)
CALL(int, flock, (int fd, int what), (fd, what), -1)
CALL(int, posix_fallocate, (int fd, off_t offset, off_t bytes),
     (fd, offset, bytes), errno)
CALL(off_t, lseek, (int fd, off_t offset, int from), (fd, offset, from), -1)
CALL(DIR *, opendir, (const char *path), (path), NULL)
CALL(DIR *, fdopendir, (int fd), (fd), NULL)
CALL(struct dirent *, readdir, (DIR * dir), (dir), NULL)
CALL(FILE *, fopen, (const char *restrict path, const char *restrict mode),
     (path, mode), NULL)
CALL(FILE *, fdopen, (int fd, const char *mode), (fd, mode), NULL)
CALL(int, link, (const char *from, const char *to), (from, to), -1)
CALL(char *, realpath, (const char *restrict path, char *restrict out),
     (path, out), NULL)
CALL(void *, mmap,
     (void *at, size_t bytes, int prot, int flags, int fd, off_t offset),
     (at, bytes, prot, flags, fd, offset), MAP_FAILED)

/* What ends with the call all the same. */
#define CLOSE(type, name, is_file)                                             \
    int name(type file)                                                        \
    {                                                                          \
        static int (*real)(type);                                              \
        next(#name, &real);                                                    \
        bool fails = (is_file) && FAILS();                                     \
        int saved = errno, rc = real(file);                                    \
        if (fails)                                                             \
            errno = saved;                                                     \
        return fails ? -1 : rc;                                                \
    }
CLOSE(int, close, true)
CLOSE(FILE *, fclose, fileno(file) >= 0)
CLOSE(FILE *, fflush, file != NULL && fileno(file) >= 0)

/* Half of it, and every second time a signal comes first. */
static bool interrupted(const void *caller, size_t *bytes)
{
    if (!atomic_load(&faults_calls.armed) || faults_calls.mode != FILES_SHORT ||
        !own(caller))
        return false;
    errno = EINTR;
    if (*bytes > 1)
        *bytes /= 2;
    return atomic_fetch_add(&faults_calls.calls, 1) % 2 == 0;
}

#define TRANSFER(name, data_type, more, ...)                                   \
    ssize_t name(int fd, data_type data, size_t bytes more)                    \
    {                                                                          \
        static ssize_t (*real)(int, data_type, size_t more);                   \
        next(#name, &real);                                                    \
        bool fails =                                                           \
            FAILS() || interrupted(__builtin_return_address(0), &bytes);       \
        return fails ? -1 : real(fd, data, bytes __VA_ARGS__);                 \
    }
#define OFFSET , off_t offset
TRANSFER(read, void *, , )
TRANSFER(write, const void *, , )
TRANSFER(pread, void *, OFFSET, , offset)
TRANSFER(pwrite, const void *, OFFSET, , offset)

#define OPEN(name, params, args)                                               \
    int name params                                                            \
    {                                                                          \
        static int(*real) params;                                              \
        next(#name, &real);                                                    \
        va_list list;                                                          \
        va_start(list, flags);                                                 \
        mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0                     \
                          ? (mode_t)va_arg(list, int)                          \
                          : 0;                                                 \
        va_end(list);                                                          \
        return FAILS() ? -1 : real args;                                       \
    }
OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, (int dir, const char *path, int flags, ...),
     (dir, path, flags, mode))
