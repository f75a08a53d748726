/* Killed at every point of the protocol, a save leaves either the old newest
 * checkpoint or the new one, bit for bit, and never an unusable run. */
#include <signal.h>
#include <sys/wait.h>

#include "checkpoint/ckpt.h"
#include "checkpoint/files/ckpt_crash.h"
#include "checkpoint/files/ckpt_index.h"
#include "src/base/log.h"
#include "tests/ckpt_fixture.h"

struct world {
    struct comm *comm;
    char folder[FSIO_PATH_MAX];
};

/* What the child does; it must not come back. */
typedef enum err (*doomed_fn)(struct world *world, const char *run);

static enum err save_new_step(struct world *world, const char *run)
{
    return fixture_save(world->comm, run, 3, 3, 1);
}

static enum err save_same_step(struct world *world, const char *run)
{
    return fixture_save(world->comm, run, 2, 4, 1);
}

static enum err save_first_step(struct world *world, const char *run)
{
    return fixture_save(world->comm, run, 3, 3, 1);
}

/* A file system that can't exchange: step 2 is replaced by two renames. */
static enum err commit_aside(struct world *world, const char *run)
{
    char other[FSIO_PATH_MAX], from[FSIO_PATH_MAX], tmp[FSIO_PATH_MAX];
    TRY(fsio_path(other, "%s.other", run));
    TRY(fixture_save(world->comm, other, 2, 4, 0));
    TRY(ckpt_index_path(from, other, 2));
    TRY(ckpt_index_tmp_path(tmp, run, 2, "1.1"));
    if (rename(from, tmp) != 0)
        return err_errno("rename");
    setenv("TESSERA_CRASH_AT", getenv("CRASH_LATER"), 1);
    return ckpt_index_commit(run, 2, tmp, false, NULL);
}

/* Whether a child that runs `doomed` with this crash point dies of it. */
static bool dies(struct world *world, const char *run, doomed_fn doomed,
                 const char *variable, const char *point)
{
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        setenv(variable, point, 1);
        _exit(doomed(world, run) == ERR_OK ? 0 : 1);
    }
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

static const char *const names[] = { CKPT_CRASH_RUN, NULL };

static int place(const char *point)
{
    int i = 0;
    while (names[i] != NULL && strcmp(names[i], point) != 0)
        i++;
    return i;
}

/* Load twice, with a sweep and a new save between, as a next attempt does. */
static void check_after(struct world *world, const char *run, const char *point,
                        int64_t want_step, int64_t want_values)
{
    int64_t step = -2, values = -2;
    enum err rc = fixture_load(world->comm, run, &step, &values);
    bool good = rc == ERR_OK && step == want_step && values == want_values;
    if (!tap_ok(good, "%s: step %lld with its values is loaded", point,
                (long long)want_step))
        tap_note("%s %s, step %lld, values %lld", err_name(rc), err_text(),
                 (long long)step, (long long)values);
    tap_is_int(fixture_count(run, ".bad"), 0, "%s: nothing is damaged", point);
    rc = ckpt_index_sweep(run);
    good = rc == ERR_OK && fixture_count(run, ".") <= 2 &&
           fixture_load(world->comm, run, &step, &values) == ERR_OK &&
           step == want_step && values == want_values;
    tap_ok(good, "%s: the same after sweeping, nothing hidden stays", point);
    rc = fixture_save(world->comm, run, 9, 9, 1);
    good = rc == ERR_OK &&
           fixture_load(world->comm, run, &step, &values) == ERR_OK &&
           step == 9 && values == 9 && fixture_count(run, "step-") == 1;
    tap_ok(good, "%s: the next save works", point);
}

static void prepare(struct world *world, const char *run)
{
    enum err rc = fixture_save(world->comm, run, 1, 1, 0);
    if (rc == ERR_OK)
        rc = fixture_save(world->comm, run, 2, 2, 0);
    if (rc != ERR_OK)
        tap_ok(false, "set up: %s", err_text());
}

/* One point, in each of the situations in which a save can meet it. */
static void test_point(struct world *world, const char *point)
{
    char run[FSIO_PATH_MAX];
    bool committed = place(point) >= place("commit-renamed");
    bool prunes = strcmp(point, "prune-renamed") == 0;
    if (strcmp(point, "old-aside") != 0) {
        fsio_path(run, "%s/new-%s", world->folder, point);
        prepare(world, run);
        tap_ok(dies(world, run, save_new_step, "TESSERA_CRASH_AT", point),
               "%s: a save dies there", point);
        check_after(world, run, point, committed ? 3 : 2, committed ? 3 : 2);

        fsio_path(run, "%s/same-%s", world->folder, point);
        prepare(world, run);
        tap_ok(dies(world, run, save_same_step, "TESSERA_CRASH_AT", point),
               "%s: a save of the same step dies there", point);
        check_after(world, run, point, 2, committed ? 4 : 2);
    }
    if (strcmp(point, "old-aside") != 0 && !prunes) {
        fsio_path(run, "%s/first-%s", world->folder, point);
        tap_ok(dies(world, run, save_first_step, "TESSERA_CRASH_AT", point),
               "%s: the first save of a run dies there", point);
        check_after(world, run, point, committed ? 3 : -1, committed ? 3 : -1);
    }
    if (strcmp(point, "old-aside") == 0 || prunes ||
        strncmp(point, "commit", 6) == 0) {
        fsio_path(run, "%s/aside-%s", world->folder, point);
        prepare(world, run);
        tap_ok(dies(world, run, commit_aside, "CRASH_LATER", point),
               "%s: a commit by two renames dies there", point);
        check_after(world, run, point, 2, committed ? 4 : 2);
    }
}

static void test_rank(struct world *world)
{
    char run[FSIO_PATH_MAX];
    fsio_path(run, "%s/rank", world->folder);
    prepare(world, run);
    tap_ok(!dies(world, run, save_new_step, "TESSERA_CRASH_AT", "begin:1"),
           "rank 0 ignores a crash point of rank 1");
    tap_ok(dies(world, run, save_new_step, "TESSERA_CRASH_AT", "begin:0"),
           "but not its own");
}

int main(void)
{
    struct world world = { 0 };
    log_init("test", 0, LOG_ERROR);
    unsetenv("TESSERA_CRASH_AT");
    enum err rc = comm_create("self", NULL, NULL, 30.0, &world.comm);
    if (rc != ERR_OK || fsio_path(world.folder, "%s", tap_folder()) != ERR_OK) {
        tap_ok(false, "set up: %s", err_text());
        return tap_done();
    }
    for (const char *const *at = names; *at != NULL; at++)
        test_point(&world, *at);
    test_rank(&world);
    comm_destroy(world.comm);
    return tap_done();
}
