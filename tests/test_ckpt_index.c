/* Which steps stay, which temporaries are reaped, and which modes files have.
 */
#include <fcntl.h>
#include <time.h>

#include "checkpoint/ckpt.h"
#include "checkpoint/files/ckpt_index.h"
#include "tests/ckpt_fixture.h"

#define STEPS 12
#define ALL "1 2 3 4 5 6 7 8 9 10 11 12"

static void join(char *text, size_t bytes, const int64_t *steps, int count)
{
    text[0] = '\0';
    for (int i = 0; i < count; i++) {
        size_t used = strlen(text);
        snprintf(text + used, bytes - used, "%s%lld", i > 0 ? " " : "",
                 (long long)steps[i]);
    }
}

static void damage(const char *run, int64_t step)
{
    char dir[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
    ckpt_index_path(dir, run, step);
    fsio_path(path, "%s/MANIFEST.json", dir);
    if (truncate(path, 10) != 0)
        tap_note("can't damage %s", path);
}

static void test_retention(struct comm *comm, const char *run)
{
    static const struct {
        struct ckpt_retention retention;
        int64_t step;
        const char *want;
    } cases[] = {
        { { 0, 0, 0, 0, NULL }, 12, "" },
        { { 1, 0, 0, 0, NULL }, 12, "1 2 4 5 6 7 8 9 10 11" },
        { { 2, 0, 0, 0, NULL }, 12, "1 2 4 5 6 7 8 9" },
        { { 2, 0, 0, 7, NULL }, 12, "1 2 4 5 6 8 9" },
        /* 11 is damaged: it does not count among the good */
        { { 3, 0, 0, 0, NULL }, 12, "1 2 4 5 6 7 8" },
        { { 3, 4, 0, 0, NULL }, 12, "1 2 5 6 7" },
        { { 1, 1, 0, 0, NULL }, 12, "" },
        { { 1, 5, 0, 0, NULL }, 12, "1 2 4 6 7 8 9 11" },
        /* nothing newer than the step just committed */
        { { 1, 0, 0, 0, NULL }, 5, "1 2 4" },
        { { 99, 0, 0, 0, NULL }, 12, "" },
    };
    char dir[FSIO_PATH_MAX], text[128];
    int64_t *steps = NULL;
    int count;
    bool evidence;
    for (int step = 1; step <= STEPS; step++)
        if (fixture_save(comm, run, step, step, 0) != ERR_OK)
            tap_ok(false, "set up: %s", err_text());
    ckpt_index_path(dir, run, 3);
    is_ok(ckpt_index_pin(dir, "the paper's"), "step 3 is pinned");
    damage(run, 11);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        is_ok(ckpt_index_prunable(run, &cases[i].retention, cases[i].step,
                                  &steps, &count),
              "a dry run");
        join(text, sizeof text, steps, count);
        tap_is_str(text, cases[i].want, "keep %d, every %lld, step %lld",
                   cases[i].retention.keep,
                   (long long)cases[i].retention.keep_every,
                   (long long)cases[i].step);
        free(steps);
    }
    is_ok(ckpt_index_steps(run, &steps, &count, &evidence), "list");
    join(text, sizeof text, steps, count);
    tap_is_str(text, ALL, "a dry run deletes nothing");
    free(steps);
    struct ckpt_retention retention = { .keep = 3, .keep_every = 4 };
    char trash[FSIO_PATH_MAX];
    is_ok(ckpt_index_prune(run, &retention, STEPS, trash), "prune");
    tap_ok(strstr(trash, ".trash-step-000000007.0") != NULL &&
               fsio_exists(trash),
           "the newest that goes stays, hidden");
    is_ok(ckpt_index_discard(run, trash), "and is trash to whoever finds it");
    is_ok(ckpt_index_steps(run, &steps, &count, &evidence), "list");
    join(text, sizeof text, steps, count);
    tap_is_str(text, "3 4 8 9 10 11 12", "what was listed is gone");
    tap_is_int(fixture_count(run, "."), 2, "and no trash stays");
    free(steps);
}

/* What is known to be good is not looked at; what has been looked at is known. */
static void test_known(struct comm *comm, const char *run)
{
    struct ckpt_index_known known = { 0 };
    struct ckpt_retention retention = { .keep = 2, .known = &known };
    char text[256];
    int64_t *steps = NULL;
    int count = 0;
    for (int step = 1; step <= 4; step++)
        is_ok(fixture_save(comm, run, step, step, 0), "save");
    ckpt_index_know(&known, 4);
    damage(run, 4);
    is_ok(ckpt_index_prunable(run, &retention, 5, &steps, &count), "look");
    join(text, sizeof text, steps, count);
    tap_is_str(text, "1 2", "a step that is known counts, whatever it is");
    free(steps);
    damage(run, 3);
    is_ok(ckpt_index_prunable(run, &retention, 5, &steps, &count), "again");
    join(text, sizeof text, steps, count);
    tap_is_str(text, "1 2", "one that was looked at counts as it was then");
    free(steps);
    for (int i = 0; i < CKPT_INDEX_KNOWN; i++)
        ckpt_index_know(&known, 100 + i);
    is_ok(ckpt_index_prunable(run, &retention, 5, &steps, &count), "later");
    join(text, sizeof text, steps, count);
    tap_is_str(text, "", "what was known long ago is looked at again");
    free(steps);
}

/* Saves a step whose state has a loss of a set, unless that is 0. */
static void save_scored(struct comm *comm, const char *run, int64_t step,
                        double loss, const char *set, int keep)
{
    const struct ckpt_options options = {
        .attempt = "1.1", .keep = keep, .keep_best = true, .timeout_s = 60.0
    };
    json_t *state = loss > 0 ? json_pack("{s:{s:f, s:i}, s:s}", "eval", "loss",
                                         loss, "tokens", 640, "eval_set", set)
                             : json_object();
    is_ok(fixture_save_state(comm, run, step, step, &options, state), "save");
}

/* A saver keeps the best one beside the newest; what is best follows from what is
 * there. */
static void test_best(struct comm *comm, const char *run)
{
    char text[FSIO_PATH_MAX], path[FSIO_PATH_MAX], want[FSIO_PATH_MAX];
    int64_t best = -1;
    int64_t *steps = NULL;
    int count = 0;
    bool evidence;
    fsio_path(text, "%s#best", run);
    save_scored(comm, run, 1, 0, "", 0);
    tap_is_int(ckpt_index_named(text, path), ERR_USAGE, "none is scored");
    save_scored(comm, run, 2, 1.5, "a", 1);
    save_scored(comm, run, 3, 2.5, "a", 1);
    save_scored(comm, run, 4, 0, "", 1);
    save_scored(comm, run, 5, 1.75, "a", 1);
    is_ok(ckpt_index_steps(run, &steps, &count, &evidence), "list");
    join(want, sizeof want, steps, count);
    tap_is_str(want, "2 5", "the best and the newest stay");
    free(steps);
    ckpt_index_path(want, run, 2);
    is_ok(ckpt_index_named(text, path), "the best");
    tap_is_str(path, want, "is the one with the least loss");
    save_scored(comm, run, 2, 0, "", 0);
    is_ok(ckpt_index_best(run, true, &best), "what is best");
    tap_ok(best == 5, "a step that is saved again without a loss is none");
    json_t *eval = json_pack("{s:f, s:i}", "loss", 1.25, "tokens", 640);
    ckpt_index_loss_write(run, 9, eval);
    save_scored(comm, run, 6, 1.7, "b", 0);
    is_ok(ckpt_index_best(run, true, &best), "what is best");
    tap_ok(best == 6, "of the newest set");
    ckpt_index_loss_write(run, 5, eval);
    damage(run, 6);
    is_ok(ckpt_index_best(run, true, &best), "what is best");
    tap_ok(best == 5, "a damaged one is not");
    json_decref(eval);
    ckpt_index_path(want, run, 5);
    fsio_path(path, "%s/MANIFEST.json", want);
    fsio_path(want, "%s.kept", path);
    if (rename(path, want) != 0 || symlink(path, path) != 0)
        tap_note("can't hide %s", path);
    tap_is_int(ckpt_index_best(run, true, &best), ERR_SPACE,
               "one that cannot be read now may be the best: %s", err_text());
    if (rename(want, path) != 0)
        tap_note("can't show %s", path);
    fsio_path(text, "%s#5", run);
    ckpt_index_path(want, run, 5);
    is_ok(ckpt_index_named(text, path), "a step");
    tap_is_str(path, want, "by its number");
    fsio_path(text, "%s#7", run);
    tap_is_int(ckpt_index_named(text, path), ERR_USAGE, "that is not there");
    is_ok(ckpt_index_named("runs/x#ema", path), "what is no step");
    tap_is_str(path, "runs/x#ema", "stays");
}

static void test_pins(struct comm *comm, const char *run)
{
    char dir[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
    char *text = NULL;
    size_t bytes;
    is_ok(fixture_save(comm, run, 5, 5, 0), "step 5");
    ckpt_index_path(dir, run, 5);
    fsio_path(path, "%s/PINNED", dir);
    tap_ok(!ckpt_index_pinned(dir), "a step is not pinned");
    is_ok(ckpt_index_unpin(dir), "unpinning it is fine");
    is_ok(ckpt_index_pin(dir, "first"), "pin");
    is_ok(ckpt_index_pin(dir, "second"), "pin again");
    tap_ok(ckpt_index_pinned(dir), "it is pinned");
    is_ok(fixture_verify(dir), "and good");
    is_ok(fixture_save(comm, run, 5, 6, 0), "it is replaced by a replay");
    is_ok(fsio_read_file(path, 100, &text, &bytes), "the pin stays");
    tap_is_str(text, "second", "with its reason");
    free(text);
    is_ok(fixture_save(comm, run, 6, 6, 1), "keep 1");
    tap_is_int(fixture_count(run, "step-"), 2, "the pinned step stays");
    is_ok(ckpt_index_unpin(dir), "unpin");
    is_ok(fixture_save(comm, run, 7, 7, 1), "keep 1");
    tap_is_int(fixture_count(run, "step-"), 1, "now it goes");
    tap_ok(!ckpt_index_pinned(dir), "its pin, too");
    tap_is_int(ckpt_index_pin(dir, "gone"), ERR_CHECKPOINT,
               "a missing step can't be pinned");

    ckpt_index_path(dir, run, 7);
    fsio_path(path, "%s/moved", run);
    tap_ok(rename(dir, path) == 0 && symlink(path, dir) == 0,
           "a step lies elsewhere");
    is_ok(fixture_save(comm, run, 8, 8, 1), "keep 1");
    tap_is_int(fixture_count(run, "step-"), 1, "the link goes");
    is_ok(fixture_verify(path), "and nothing of what it leads to");
}

/* A process's start time as /proc tells it. */
static long long start_time(pid_t pid)
{
    char path[64], *text = NULL;
    size_t bytes;
    unsigned long long ticks = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (fsio_read_file(path, 4096, &text, &bytes) == ERR_OK)
        sscanf(strrchr(text, ')') + 1,
               " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d "
               "%*d %*d %*d %*d %llu",
               &ticks);
    free(text);
    return (long long)ticks;
}

static void make_old(const char *path)
{
    struct timespec times[2] = { { time(NULL) - 4000, 0 },
                                 { time(NULL) - 4000, 0 } };
    utimensat(AT_FDCWD, path, times, 0);
}

static void test_sweep(const char *run)
{
    char here[256] = "";
    gethostname(here, sizeof here - 1);
    long long now = start_time(getpid());
    const struct {
        const char *host; /* NULL: no OWNER */
        pid_t pid;
        long long started;
        bool old;
        int want; /* folders that stay */
        const char *what;
    } cases[] = {
        { here, getpid(), now, false, 1, "of a live process" },
        { here, getpid(), now, true, 1, "of a live process, long ago" },
        { here, getpid(), now - 1, false, 0,
          "of an earlier one of its number" },
        { here, 0x7ffffffe, now, false, 0, "of a dead process" },
        { "elsewhere", 1, 1, false, 1, "of another host, changed now" },
        { "elsewhere", 1, 1, true, 0, "of another host, silent for an hour" },
        { NULL, 0, 0, false, 0, "of nobody" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char dir[FSIO_PATH_MAX], path[FSIO_PATH_MAX], text[512];
        ckpt_index_tmp_path(dir, run, 1, "1.1");
        fsio_mkdirs(dir);
        fsio_path(path, "%s/OWNER", dir);
        int length = snprintf(text, sizeof text,
                              "{\"host\": \"%s\", \"pid\": %d, "
                              "\"start_time\": %lld, \"attempt\": \"1.1\"}",
                              cases[i].host != NULL ? cases[i].host : "",
                              (int)cases[i].pid, cases[i].started);
        if (cases[i].host != NULL)
            fsio_write_atomic(path, text, (size_t)length);
        if (cases[i].old) {
            make_old(path);
            make_old(dir);
        }
        is_ok(ckpt_index_sweep(run), "sweep");
        tap_is_int(fixture_count(run, ".tmp-"), cases[i].want,
                   "a temporary folder %s", cases[i].what);
        fsio_remove_tree(dir);
    }
    char dir[FSIO_PATH_MAX];
    ckpt_index_tmp_path(dir, run, 2, "1.1");
    is_ok(ckpt_index_begin(run, dir, "1.1"), "a folder of this process");
    is_ok(ckpt_index_sweep(run), "sweep");
    tap_is_int(fixture_count(run, ".tmp-"), 1, "stays");
}

/* The modes of everything that a save leaves. */
static void test_umask(struct comm *comm, const char *folder)
{
    static const mode_t masks[] = { 0077, 0027, 0002 };
    static const char *const names[] = { "",
                                         "/step-000000001",
                                         "/step-000000001/MANIFEST.json",
                                         "/step-000000001/"
                                         "shard-00000-of-00001.h5",
                                         "/step-000000001/PINNED",
                                         "/LATEST" };
    for (size_t m = 0; m < sizeof masks / sizeof masks[0]; m++) {
        char run[FSIO_PATH_MAX], dir[FSIO_PATH_MAX];
        mode_t before = umask(masks[m]);
        fsio_path(run, "%s/umask-%zu", folder, m);
        is_ok(fixture_save(comm, run, 1, 1, 0), "a save");
        ckpt_index_path(dir, run, 1);
        is_ok(ckpt_index_pin(dir, "x"), "a pin");
        umask(before);
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            char path[FSIO_PATH_MAX];
            struct stat status = { 0 };
            fsio_path(path, "%s/checkpoints%s", run, names[i]);
            stat(path, &status);
            mode_t full = S_ISDIR(status.st_mode) ? 0777 : 0666;
            tap_is_int(status.st_mode & 0777, full & ~masks[m],
                       "umask %03o: checkpoints%s", (unsigned)masks[m],
                       names[i]);
        }
    }
}

int main(void)
{
    char folder[FSIO_PATH_MAX], run[FSIO_PATH_MAX];
    struct comm *comm = fixture_alone(folder);
    fsio_path(run, "%s/retention", folder);
    test_retention(comm, run);
    fsio_path(run, "%s/known", folder);
    test_known(comm, run);
    fsio_path(run, "%s/best", folder);
    test_best(comm, run);
    fsio_path(run, "%s/pins", folder);
    test_pins(comm, run);
    fsio_path(run, "%s/sweep", folder);
    test_sweep(run);
    test_umask(comm, folder);
    comm_destroy(comm);
    return tap_done();
}
