#include "tests/faults.h"

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <sys/stat.h>

#include "src/base/digest.h"
#include "src/base/fsio.h"
#include "src/cmd/cmd_main.h"
#include "tests/data_fixture.h"
#include "tests/faults_calls.h"

#define RUN_SECONDS 60 /* one that takes longer hangs */

static const char *const mode_names[] = { "memory", "memory from then on",
                                          "files", "files from then on",
                                          "short transfers" };

static const char *folder;
static int terminal = -1; /* stdout, which is /dev/null while programs run */
static int nothing = -1;

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
    dup2(on ? nothing : faults_calls.errors, STDERR_FILENO);
}

static void died(int number)
{
    atomic_store(&faults_calls.armed, false);
    dprintf(faults_calls.errors, "# signal %d in: %s, call %ld\n", number,
            faults_calls.about, faults_calls.nth);
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
    nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    faults_calls_begin();
    faults_calls.tracing = getenv("FAULTS_TRACE") != NULL;
    signal(SIGABRT, died);
    signal(SIGALRM, died);
#ifndef __SANITIZE_ADDRESS__ /* which has a handler of its own */
    signal(SIGSEGV, died);
#endif
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
    atomic_store(&faults_calls.armed, false);
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
    enum faults_mode mode;
    uint64_t good; /* the sum after a success */
    int bad, done, failed;
};

static enum err run(const struct sweep *sweep, long nth)
{
    const struct faults_row *row = sweep->row;
    quiet(true);
    alarm(RUN_SECONDS);
    faults_calls.mode = sweep->mode;
    faults_calls.nth = nth;
    atomic_store(&faults_calls.calls, 0);
    atomic_store(&faults_calls.armed, nth >= 0);
    enum err rc = row->line != NULL ? command(row->line) : row->call();
    atomic_store(&faults_calls.armed, false);
    alarm(0);
    quiet(false);
    return rc;
}

static void wrong(struct sweep *sweep, long nth, const char *what, enum err rc)
{
    if (sweep->bad++ < 6)
        tap_note("%s, call %ld: %s: %s: %s", faults_calls.about, nth, what,
                 err_name(rc), rc == ERR_OK ? "" : err_text());
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
        long blocks = atomic_load(&faults_calls.blocks);
        enum err rc = run(sweep, nth);
        long more = atomic_load(&faults_calls.blocks) - blocks;
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
    snprintf(faults_calls.about, sizeof faults_calls.about, "%s, %s",
             name_of(sweep->row), mode_names[sweep->mode]);
    sweep->bad = sweep->done = sweep->failed = 0;
    prepare(sweep->row);
    enum err rc = run(sweep, 0);
    long calls = atomic_load(&faults_calls.calls);
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
           "%s: %d of %ld calls failed, %d errors, %d done all the same",
           faults_calls.about, sweep->done + sweep->failed, calls,
           sweep->failed, sweep->done);
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
