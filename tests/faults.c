#include "tests/faults.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <jansson.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/digest.h"
#include "src/base/fsio.h"
#include "src/cmd/cmd_main.h"
#include "tests/data_fixture.h"

#define RUN_SECONDS 60 /* one that takes longer hangs */
#define RANGES_MAX 64

/* --- which call fails --- */

enum mode { MEMORY_ONCE, MEMORY_ON, FILES_ONCE, FILES_ON, FILES_SHORT, MODES };
static const char *const mode_names[] = { "memory", "memory from then on",
                                          "files", "files from then on",
                                          "short transfers" };

static const char *folder;
static int terminal = -1; /* stdout, which is /dev/null while programs run */
static int errors = -1;   /* stderr */
static int nothing = -1;
static char about[256]; /* the run at hand */
static bool tracing;

static struct {
    atomic_bool armed;
    enum mode mode;
    long nth; /* from 1; 0: only counted */
    atomic_long calls, blocks;
} fault;

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

static bool own(const void *caller)
{
    return (const char *)caller >= &__executable_start &&
           (const char *)caller < &etext;
}

static _Thread_local bool within; /* nothing fails */

static bool hit(bool memory, const void *caller)
{
    if (within || !atomic_load(&fault.armed) ||
        memory != (fault.mode <= MEMORY_ON) || fault.mode == FILES_SHORT ||
        (!memory && !own(caller)))
        return false;
    for (int i = 0; memory && i < spared_count; i++)
        if ((uintptr_t)caller >= spared[i].begin &&
            (uintptr_t)caller < spared[i].end)
            return false;
    long call = atomic_fetch_add(&fault.calls, 1) + 1;
    bool on = fault.mode == MEMORY_ON || fault.mode == FILES_ON;
    if (call == fault.nth && tracing) {
        void *frames[24];
        dprintf(errors, "# call %ld of %s:\n", call, about);
        backtrace_symbols_fd(frames, backtrace(frames, 24), errors);
    }
    return fault.nth > 0 && (call == fault.nth || (on && call > fault.nth));
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
        atomic_fetch_add(&fault.blocks, 1);
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
        atomic_fetch_sub(&fault.blocks, 1);
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
        atomic_fetch_sub(&fault.blocks, 1);
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
    errno = fault.mode == FILES_ON ? ENOSPC : EIO;
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
    if (!atomic_load(&fault.armed) || fault.mode != FILES_SHORT || !own(caller))
        return false;
    errno = EINTR;
    if (*bytes > 1)
        *bytes /= 2;
    return atomic_fetch_add(&fault.calls, 1) % 2 == 0;
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

/* --- programs: what they end with is kept, nothing is printed --- */

int data_main(int argc, char **argv);
int ckpt_main(int argc, char **argv);
int hf_main(int argc, char **argv);
static enum err ended;

/* In place of src/cmd/cmd_main.c. */
int cmd_main(const struct cmd_main *cmd, int argc, char **argv)
{
    struct options options;
    int exit_code = 0;
    ended = options_parse(cmd->program, argc, argv, cmd->into, &options);
    if (ended == ERR_OK)
        ended = cmd->run(&options, &exit_code);
    if (ended == ERR_OK && exit_code != 0)
        ended = err_set(ERR_INTERNAL, "it ends with %d", exit_code);
    return 0;
}

static enum err command(const char *line)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } programs[] = { { "data", data_main },
                     { "ckpt", ckpt_main },
                     { "hf", hf_main } };
    char text[512], *argv[32];
    int argc = 0;
    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok(text, " "); word != NULL && argc < 31;
         word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    ended = ERR_INTERNAL;
    for (size_t p = 0; p < sizeof programs / sizeof *programs; p++)
        if (strcmp(programs[p].name, argv[0]) == 0)
            programs[p].run(argc, argv);
    return ended;
}

/* --- the folder --- */

static void quiet(bool on)
{
    fflush(stdout);
    dup2(on ? nothing : terminal, STDOUT_FILENO);
    dup2(on ? nothing : errors, STDERR_FILENO);
}

static void died(int number)
{
    atomic_store(&fault.armed, false);
    dprintf(errors, "# signal %d in: %s, call %ld\n", number, about, fault.nth);
    signal(number, SIG_DFL);
    if (number == SIGALRM)
        abort();
    raise(number);
}

void faults_begin(void)
{
    char temporary[FSIO_PATH_MAX];
    folder = tap_folder();
    terminal = dup(STDOUT_FILENO);
    errors = dup(STDERR_FILENO);
    nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dl_iterate_phdr(spare, NULL);
    tracing = getenv("FAULTS_TRACE") != NULL;
    signal(SIGABRT, died);
    signal(SIGALRM, died);
    if (__interceptor_malloc == NULL)
        signal(SIGSEGV, died);
    fixture_need(fsio_path(temporary, "%s/tmp", folder));
    if (chdir(folder) != 0 || setenv("TMPDIR", temporary, 1) != 0)
        exit(1);
}

void faults_need(const char *line)
{
    quiet(true);
    enum err rc = command(line);
    quiet(false);
    fixture_need(rc);
}

void faults_rest(void)
{
    atomic_store(&fault.armed, false);
}

int faults_done(void)
{
    return tap_done();
}

/* The sum of all files' names and contents, whatever the order. */
static uint64_t sum;
static int add_file(const char *path, const struct stat *status, int kind,
                    struct FTW *walk)
{
    (void)walk;
    uint32_t crc = crc32c(0, path, strlen(path));
    char *data = NULL;
    size_t bytes = 0;
    if (kind == FTW_F && fsio_read_file(path, SIZE_MAX / 2, &data, &bytes) == 0)
        crc = crc32c(crc, data, bytes);
    free(data);
    sum += (uint64_t)crc * (uint64_t)(status->st_mode | 1);
    return 0;
}

static uint64_t tree_sum(const char *path)
{
    sum = 0;
    nftw(path, add_file, 16, FTW_PHYS);
    return sum;
}

static int copy_file(const char *path, const struct stat *status, int kind,
                     struct FTW *walk)
{
    (void)status, (void)walk;
    char to[FSIO_PATH_MAX], *data = NULL;
    size_t bytes = 0;
    fixture_need(fsio_path(to, "work/%s", path));
    if (kind == FTW_D)
        return mkdir(to, 0777);
    fixture_need(fsio_read_file(path, SIZE_MAX / 2, &data, &bytes));
    fixture_write_file(to, data, bytes);
    free(data);
    return 0;
}

static void prepare(const struct faults_row *row)
{
    fixture_need(fsio_remove_tree("tmp")); /* caches */
    fixture_need(fsio_remove_tree("work"));
    if (mkdir("tmp", 0777) != 0 || mkdir("work", 0777) != 0 ||
        (row->copy != NULL && nftw(row->copy, copy_file, 16, FTW_PHYS) != 0))
        fixture_need(err_errno("work"));
}

/* --- runs --- */

struct sweep {
    const struct faults_row *row;
    enum mode mode;
    uint64_t good; /* the sum after a success */
    int bad, done, failed;
};

static enum err run(const struct sweep *sweep, long nth)
{
    const struct faults_row *row = sweep->row;
    quiet(true);
    alarm(RUN_SECONDS);
    fault.mode = sweep->mode;
    fault.nth = nth;
    atomic_store(&fault.calls, 0);
    atomic_store(&fault.armed, nth >= 0);
    enum err rc = row->line != NULL ? command(row->line) : row->call();
    atomic_store(&fault.armed, false);
    alarm(0);
    quiet(false);
    return rc;
}

static void wrong(struct sweep *sweep, long nth, const char *what, enum err rc)
{
    if (sweep->bad++ < 6)
        tap_note("%s, call %ld: %s: %s: %s", about, nth, what, err_name(rc),
                 rc == ERR_OK ? "" : err_text());
}

static int lowest_fd(void)
{
    int fd = dup(nothing);
    close(fd);
    return fd;
}

static void judge_success(struct sweep *sweep, long nth)
{
    bool on = sweep->mode == MEMORY_ON || sweep->mode == FILES_ON;
    if (!sweep->row->varies && !on && tree_sum("work") != sweep->good)
        wrong(sweep, nth, "another result", ERR_OK);
    if (sweep->row->then == NULL)
        return;
    quiet(true);
    enum err rc = command(sweep->row->then);
    quiet(false);
    if (rc != ERR_OK)
        wrong(sweep, nth, sweep->row->then, rc);
}

static void judge(struct sweep *sweep, long nth, enum err rc, uint64_t before)
{
    const struct faults_row *row = sweep->row;
    enum err want = sweep->mode <= MEMORY_ON ? ERR_MEMORY : ERR_IO;
    unsigned right = row->also | 1u << want;
    if (sweep->mode == FILES_ON)
        right |= 1u << ERR_FULL;
    if (sweep->mode == FILES_SHORT && rc != ERR_OK)
        wrong(sweep, nth, "not done", rc);
    else if (rc != ERR_OK && (right >> rc & 1) == 0)
        wrong(sweep, nth, "another kind of error", rc);
    sweep->done += rc == ERR_OK;
    sweep->failed += rc != ERR_OK;
    if (rc == ERR_OK) {
        judge_success(sweep, nth);
        return;
    }
    /* from then on nothing can be tidied up; and what is whole already may
     * stay when the folder cannot be synced */
    bool on = sweep->mode == MEMORY_ON || sweep->mode == FILES_ON;
    uint64_t now = tree_sum("work");
    if (!row->leaves && !row->varies && !on && now != before &&
        now != sweep->good)
        wrong(sweep, nth, "something is left", rc);
    if (row->leaves || (row->copy != NULL && now == before)) {
        rc = run(sweep, -1);
        if (rc != ERR_OK && !on)
            wrong(sweep, nth, "fails when it is asked again", rc);
        else if (rc == ERR_OK)
            judge_success(sweep, nth);
    }
}

/* One failure; what a library keeps for itself it keeps once. */
static void fail_once(struct sweep *sweep, long nth)
{
    for (int again = 0; again < 2; again++) {
        prepare(sweep->row);
        uint64_t before = tree_sum("work");
        int fd = lowest_fd();
        long blocks = atomic_load(&fault.blocks);
        enum err rc = run(sweep, nth);
        long more = atomic_load(&fault.blocks) - blocks;
        bool open_more = lowest_fd() != fd;
        if (again == 0)
            judge(sweep, nth, rc, before);
        /* who waits for others no more has to end */
        if ((more <= 0 && !open_more) || rc == ERR_COMM)
            return;
        if (again > 0)
            wrong(sweep, nth, more > 0 ? "memory is lost" : "a file stays open",
                  rc);
    }
}

static const char *name_of(const struct faults_row *row)
{
    return row->name != NULL ? row->name : row->line;
}

static void sweep_mode(struct sweep *sweep)
{
    snprintf(about, sizeof about, "%s, %s", name_of(sweep->row),
             mode_names[sweep->mode]);
    sweep->bad = sweep->done = sweep->failed = 0;
    prepare(sweep->row);
    enum err rc = run(sweep, 0);
    long calls = atomic_load(&fault.calls);
    long most = sweep->row->most > 0 ? sweep->row->most : FAULTS_MOST;
    if (rc != ERR_OK)
        wrong(sweep, 0, "fails by itself", rc);
    if (sweep->mode == MEMORY_ON || sweep->mode == FILES_ON)
        most /= 2;
    if (sweep->mode == FILES_SHORT)
        calls = most = 1;
    long half = most / 2, stride = 1;
    if (calls > most)
        stride = (calls - half + half - 1) / half;
    for (long n = 1; n <= calls && sweep->bad < 20; n += n <= half ? 1 : stride)
        fail_once(sweep, n);
    prepare(sweep->row);
    rc = run(sweep, -1);
    if (rc != ERR_OK)
        wrong(sweep, 0, "fails afterwards", rc);
    else
        judge_success(sweep, 0);
    tap_ok(sweep->bad == 0,
           "%s: %d of %ld calls failed, %d errors, %d done all the same", about,
           sweep->done + sweep->failed, calls, sweep->failed, sweep->done);
}

void faults_sweep(const struct faults_row *rows, int count, int argc,
                  char **argv)
{
    for (int r = 0; r < count; r++) {
        if (argc > 1 && strstr(name_of(&rows[r]), argv[1]) == NULL)
            continue;
        struct sweep sweep = { .row = &rows[r] };
        for (int i = 0; i < 2; i++) { /* the second time nothing is new */
            prepare(&rows[r]);
            enum err rc = run(&sweep, -1);
            if (rc != ERR_OK)
                tap_note("%s", name_of(&rows[r]));
            fixture_need(rc);
        }
        sweep.good = tree_sum("work");
        prepare(&rows[r]);
        uint64_t all = tree_sum(".");
        for (sweep.mode = 0; sweep.mode < MODES; sweep.mode++)
            sweep_mode(&sweep);
        prepare(&rows[r]);
        tap_ok(tree_sum(".") == all, "%s: all else is as it was",
               name_of(&rows[r]));
    }
}
