/* A program that saves checkpoints of known contents and can tell, whatever
 * happened to it, whether what is there now is right. tests/soak/matrix runs
 * it.
 *
 *   victim [-l] [-p] [-t SECONDS] save RUN JOURNAL STEP:VALUES...
 *   victim [-b] [-h] check RUN JOURNAL [old | new]
 *   victim flips FOLDER
 *   victim points
 *
 * save writes to JOURNAL, outside the run, "pid RANK PID", and for every step
 * "start STEP VALUES" and "commit ..." or "fail ...". VALUES chooses the
 * contents, so that two checkpoints of one step can be told apart. Shims are
 * armed during the first save only; if that one fails, the older checkpoint
 * must still load and the next save must work. -l takes the run lock first, -p
 * says that the fault stays, so that even cleaning up may fail.
 *
 * check loads: it must get what was committed last, or, if the last line is a
 * start, that; `old` and `new` allow only one of the two. Then it sweeps, loads
 * again and saves a next step. -b: damaged checkpoints may be found; -h: hidden
 * leftovers may stay. */
#include "tests/soak/victim.h"

#include <fcntl.h>
#include <inttypes.h>

#include "checkpoint/files/ckpt_crash.h"
#include "checkpoint/files/ckpt_index.h"
#include "src/base/log.h"
#include "src/job/lock.h"
#include "tests/ckpt_fixture.h"

enum { EXIT_WRONG = 1, EXIT_FAILED = 2, EXIT_REFUSED = 3, EXIT_USAGE = 64 };

/* There only when the shim is loaded. */
void shim_arm(bool on) __attribute__((weak));

struct options {
    bool lock, persistent, bad, hidden;
    double timeout_s;
};

struct found {
    int64_t step, values;
};

static bool same(struct found a, struct found b)
{
    return a.step == b.step && a.values == b.values;
}

/* --- journal --- */

static void journal_write(const char *journal, const char *what, int64_t a,
                          int64_t b)
{
    char line[96];
    int length =
        snprintf(line, sizeof line, "%s %" PRId64 " %" PRId64 "\n", what, a, b);
    int fd = open(journal, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, line, (size_t)length) != length || fsync(fd) != 0)
        abort();
    close(fd);
}

/* The newest committed checkpoint, step -1 if none; *pending is one whose save
 * was cut off. */
static void journal_read(const char *journal, struct found *committed,
                         struct found *pending)
{
    char what[16];
    int64_t a, b;
    *committed = *pending = (struct found){ -1, -1 };
    FILE *file = fopen(journal, "r");
    if (file == NULL)
        return;
    while (fscanf(file, "%15s %" SCNd64 " %" SCNd64, what, &a, &b) == 3) {
        if (strcmp(what, "pid") == 0)
            continue;
        bool unsure = strcmp(what, "start") == 0 || strcmp(what, "unsure") == 0;
        *pending = unsure ? (struct found){ a, b } : (struct found){ -1, -1 };
        if (strcmp(what, "commit") == 0 && a >= committed->step)
            *committed = (struct found){ a, b };
    }
    fclose(file);
}

/* --- save --- */

/* What a failed save must leave behind: the checkpoint before it. */
static bool still_there(struct comm *comm, const char *run, const char *journal)
{
    struct found got, committed, pending;
    enum err rc = fixture_load(comm, run, &got.step, &got.values);
    journal_read(journal, &committed, &pending);
    if (rc == ERR_OK && same(got, committed))
        return true;
    printf("after the failed save: %s, step %" PRId64 " of %" PRId64 "\n",
           rc == ERR_OK ? "loaded" : err_text(), got.step, committed.step);
    return false;
}

static int save_one(struct comm *comm, const struct options *options,
                    const char *run, const char *journal, struct found next,
                    bool arm)
{
    bool first = comm_rank(comm) == 0;
    if (first)
        journal_write(journal, "start", next.step, next.values);
    if (arm && shim_arm != NULL)
        shim_arm(true);
    enum err rc = fixture_save_within(comm, run, next.step, next.values, 2,
                                      options->timeout_s);
    if (arm && shim_arm != NULL)
        shim_arm(false);
    if (rc == ERR_OK) {
        if (first)
            journal_write(journal, "commit", next.step, next.values);
        return 0;
    }
    fprintf(stderr, "rank %d: save: %s: %s\n", comm_rank(comm), err_name(rc),
            err_text());
    if (rc == ERR_COMM)
        comm_abort(comm, EXIT_FAILED);
    if (first)
        journal_write(journal, options->persistent ? "unsure" : "fail",
                      next.step, next.values);
    if (comm_barrier(comm) != ERR_OK)
        comm_abort(comm, EXIT_FAILED);
    if (!options->persistent && !still_there(comm, run, journal))
        return EXIT_WRONG;
    return EXIT_FAILED;
}

/* As a training program does: load, then save step after step. */
static int victim_save(struct comm *comm, const struct options *options,
                       const char *run, const char *journal, char **steps)
{
    struct found got, next;
    int status = 0;
    journal_write(journal, "pid", comm_rank(comm), getpid());
    enum err rc = fixture_load(comm, run, &got.step, &got.values);
    if (rc != ERR_OK || (got.step >= 0 && got.values < 0)) {
        printf("load: %s\n", rc != ERR_OK ? err_text() : "a mixture");
        return EXIT_WRONG;
    }
    for (int i = 0; steps[i] != NULL && status != EXIT_WRONG; i++) {
        if (sscanf(steps[i], "%" SCNd64 ":%" SCNd64, &next.step,
                   &next.values) != 2)
            return EXIT_USAGE;
        status = save_one(comm, options, run, journal, next, i == 0);
    }
    return status;
}

static int save_locked(struct comm *comm, const struct options *options,
                       const char *run, const char *journal, char **steps)
{
    struct lock *lock = NULL;
    if (options->lock && comm_rank(comm) == 0) {
        enum err rc = lock_acquire(run, LOCK_BEAT_S, &lock);
        if (rc != ERR_OK) {
            printf("refused: %s\n", err_text());
            return rc == ERR_BUSY ? EXIT_REFUSED : EXIT_WRONG;
        }
    }
    int status = victim_save(comm, options, run, journal, steps);
    lock_release(lock);
    return status;
}

/* --- check --- */

static bool wrong(const char *text)
{
    printf(", WRONG: %s", text);
    return false;
}

static bool check_first(struct comm *comm, const char *run, const char *journal,
                        const char *want, struct found *got)
{
    struct found committed, pending;
    journal_read(journal, &committed, &pending);
    enum err rc = fixture_load(comm, run, &got->step, &got->values);
    if (rc != ERR_OK)
        return wrong(err_text());
    bool old = same(*got, committed);
    bool new = pending.step >= 0 && same(*got, pending);
    if (got->step < 0)
        printf("starts afresh");
    else
        printf("resumes step %" PRId64, got->step);
    if (committed.step < 0)
        printf(" (none committed");
    else
        printf(" (committed %" PRId64, committed.step);
    printf("%s)", new ? ", and now the new one" : "");
    if (got->step >= 0 && got->values < 0)
        return wrong("a mixture of checkpoints");
    if (!old && !new)
        return wrong("not a checkpoint that was committed last");
    if (want != NULL && strcmp(want, "old") == 0 && !old)
        return wrong("nothing was committed yet");
    if (want != NULL && strcmp(want, "new") == 0 && !new &&pending.step >= 0)
        return wrong("the new one was committed");
    return true;
}

/* A next attempt sweeps and goes on. */
static bool check_goes_on(struct comm *comm, const struct options *options,
                          const char *run, struct found before)
{
    struct found got;
    if (!options->bad && fixture_count(run, ".bad") != 0)
        return wrong("a checkpoint was set aside as damaged");
    enum err rc = ckpt_index_sweep(run);
    if (rc != ERR_OK)
        return wrong(err_text());
    if (!options->hidden && !options->bad && fixture_count(run, ".") > 2)
        return wrong("hidden leftovers stay after sweeping");
    rc = fixture_load(comm, run, &got.step, &got.values);
    if (rc != ERR_OK || !same(got, before))
        return wrong("sweeping changed what is loaded");
    struct found next = { before.step + 1, 77 };
    rc = fixture_save(comm, run, next.step, next.values, 2);
    if (rc != ERR_OK)
        return wrong(err_text());
    rc = fixture_load(comm, run, &got.step, &got.values);
    if (rc != ERR_OK || !same(got, next))
        return wrong("the next save is not what is loaded then");
    return true;
}

static int victim_check(struct comm *comm, const struct options *options,
                        const char *run, const char *journal, const char *want)
{
    struct found got;
    bool right = check_first(comm, run, journal, want, &got) &&
                 check_goes_on(comm, options, run, got);
    printf("\n");
    return right ? 0 : EXIT_WRONG;
}

/* -------------------------------------------------------------------------- */

static int usage(void)
{
    fprintf(stderr, "usage: victim save|check|flips|points ...\n");
    return EXIT_USAGE;
}

static int run_command(struct comm *comm, const struct options *options,
                       int count, char **words)
{
    if (count >= 4 && strcmp(words[0], "save") == 0)
        return save_locked(comm, options, words[1], words[2], words + 3);
    if (count >= 3 && strcmp(words[0], "check") == 0)
        return victim_check(comm, options, words[1], words[2], words[3]);
    if (count == 2 && strcmp(words[0], "flips") == 0)
        return victim_flips(comm, words[1]);
    return usage();
}

int main(int argc, char **argv)
{
    struct options options = { .timeout_s = 30 };
    struct comm *comm = NULL;
    for (int flag; (flag = getopt(argc, argv, "+lpbht:")) != -1;) {
        options.lock |= flag == 'l';
        options.persistent |= flag == 'p';
        options.bad |= flag == 'b';
        options.hidden |= flag == 'h';
        if (flag == 't')
            options.timeout_s = strtod(optarg, NULL);
        if (flag == '?')
            return usage();
    }
    if (argc - optind == 1 && strcmp(argv[optind], "points") == 0) {
        static const char *const names[] = { CKPT_CRASH_RUN };
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            puts(names[i]);
        return 0;
    }
    log_init("victim", 0, LOG_ERROR);
    if (comm_create("auto", NULL, NULL, options.timeout_s, &comm) != ERR_OK) {
        fprintf(stderr, "%s\n", err_text());
        return EXIT_WRONG;
    }
    int status = run_command(comm, &options, argc - optind, argv + optind);
    comm_destroy(comm);
    return status;
}
