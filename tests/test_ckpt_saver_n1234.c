/* Saving behind the caller's back: what is committed is what was there at the
 * start, every rank hears the same, and a save that fails leaves nothing. Works
 * with any number of ranks. */
#include <limits.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "checkpoint/ckpt.h"
#include "checkpoint/files/ckpt_index.h"
#include "src/base/clock.h"
#include "tests/ckpt_ranks.h"

#define DEADLINE_S 1.0
#define STEP_S 60.0

/* Large enough that a rank's shard meets the limit of its files. */
#define FILE_LIMIT ((rlim_t)1 << 20)
struct world {
    struct comm *comm;
    int rank, ranks;
    char run[FSIO_PATH_MAX];
    struct ckpt_item items[ITEMS];
    struct ckpt_options options;
    int committed, failed; /* records, rank 0 */
};

static void count_record(void *arg, const struct ckpt_progress *progress)
{
    struct world *world = arg;
    world->committed += progress->phase == CKPT_COMMITTED;
    world->failed += progress->phase == CKPT_FAILED;
}

static bool loads(struct world *world, int64_t want)
{
    return ranks_load(world->comm, world->run, NULL, ITEMS,
                      world->ranks - 1 - world->rank, world->ranks,
                      NULL) == want;
}

static enum err start(struct world *world, struct ckpt_saver *saver,
                      int64_t step)
{
    json_t *state = world->rank == 0 ? fixture_state(step) : NULL;
    fixture_fill(world->items, ITEMS, step);
    enum err rc = ckpt_saver_start(saver, step, state);
    /* What comes now must not be in the checkpoint. */
    fixture_fill(world->items, ITEMS, step + 1000);
    if (state != NULL)
        json_object_set_new(state, "values", json_integer(-1));
    json_decref(state);
    return rc;
}

static void test_isolation(struct world *world, struct ckpt_saver *saver)
{
    struct ckpt_progress progress = { 0 };
    bool ordered = true;
    enum err rc = ckpt_saver_poll(saver, &progress);
    everywhere(world->comm, rc == ERR_OK && progress.phase == CKPT_IDLE,
               "idle");
    everywhere(world->comm, start(world, saver, 10) == ERR_OK, "a save starts");
    everywhere(world->comm, ckpt_saver_start(saver, 11, NULL) == ERR_BUSY,
               "a second one in flight is refused");
    rc = ckpt_saver_poll(saver, &progress);
    enum ckpt_phase last = CKPT_STAGED;
    while (rc == ERR_OK && progress.phase < CKPT_COMMITTED &&
           progress.phase != CKPT_IDLE) {
        ordered &= progress.phase >= last;
        last = progress.phase;
        clock_sleep(1e-4);
        rc = ckpt_saver_poll(saver, &progress);
    }
    everywhere(world->comm, rc == ERR_OK && progress.phase == CKPT_COMMITTED,
               "polling ends in COMMITTED");
    everywhere(world->comm, ordered && progress.phase >= last,
               "after what it has seen of STAGED and PERSISTED");
    everywhere(world->comm,
               progress.step == 10 && progress.bytes > 1700 * 1024 * 4 &&
                   progress.persist_s > 0.0 && progress.commit_s > 0.0,
               "step, bytes and times are told");
    rc = ckpt_saver_poll(saver, &progress);
    everywhere(world->comm, rc == ERR_OK && progress.phase == CKPT_IDLE,
               "the end is reported once");
    everywhere(world->comm, loads(world, 10),
               "what is committed was there at the start");
    tap_ok(world->rank != 0 || world->committed == 1, "it was recorded once");
}

/* A long step: nobody looks at the save until it is over. */
static void test_unobserved(struct world *world, struct ckpt_saver *saver)
{
    struct ckpt_progress progress = { 0 };
    struct ckpt_options options = world->options;
    struct ckpt_progress blocking = { 0 };
    char path[FSIO_PATH_MAX];
    fixture_fill(world->items, ITEMS, 12);
    json_t *state = fixture_state(12);
    double best_s = STEP_S;
    enum err rc = ERR_OK;
    for (int i = 0; i < 5 && rc == ERR_OK; i++) {
        comm_barrier(world->comm);
        rc = ckpt_save(world->comm, world->run, 12, state, world->items, ITEMS,
                       &options, &blocking);
        if (blocking.total_s < best_s)
            best_s = blocking.total_s;
    }
    json_decref(state);
    everywhere(world->comm, rc == ERR_OK, "blocking saves");
    double begin_s = clock_now(), took_s = 0.0;
    rc = start(world, saver, 13);
    ckpt_index_path(path, world->run, 13);
    while (took_s == 0.0 && clock_now() - begin_s < STEP_S) {
        clock_sleep(1e-3);
        if (access(path, F_OK) == 0)
            took_s = clock_now() - begin_s;
    }
    everywhere(world->comm, rc == ERR_OK && took_s > 0.0,
               "a save commits while no rank looks");
    if (world->rank == 0)
        printf("# staged to committed %.3f s, a blocking save %.3f s\n", took_s,
               best_s);
    rc = ckpt_saver_wait(saver, &progress);
    everywhere(world->comm,
               rc == ERR_OK && progress.phase == CKPT_COMMITTED &&
                   progress.step == 13,
               "and its end is told at the next look");
    everywhere(world->comm, loads(world, 13), "it holds");
}

/* The same failure on all ranks, nothing left, and the next save works. */
static void check_failure(struct world *world, struct ckpt_saver *saver,
                          int64_t step, enum err want, int who)
{
    char rank[32], text[512], folder[64];
    struct ckpt_progress progress = { 0 };
    snprintf(rank, sizeof rank, "rank %d (", who);
    snprintf(folder, sizeof folder, "step-%09lld", (long long)step);
    int failed = world->failed;
    enum err rc = start(world, saver, step);
    if (rc == ERR_OK)
        rc = ckpt_saver_wait(saver, &progress);
    everywhere(world->comm, rc == ERR_OK && progress.phase == CKPT_FAILED,
               "a failure is no error of the saver");
    everywhere(world->comm, progress.error == want, "every rank has its code");
    snprintf(text, sizeof text, "%s", progress.text);
    comm_broadcast(world->comm, text, sizeof text, 0);
    everywhere(world->comm,
               strcmp(text, progress.text) == 0 &&
                   (world->ranks == 1 || strstr(text, rank) == text),
               "and its text, with the rank");
    everywhere(world->comm,
               fixture_count(world->run, ".tmp") <= 0 &&
                   fixture_count(world->run, folder) <= 0,
               "nothing of it stays");
    tap_ok(world->rank != 0 || world->failed == failed + 1, "it was recorded");
}

static void check_next(struct world *world, struct ckpt_saver *saver,
                       int64_t step)
{
    struct ckpt_progress progress = { 0 };
    enum err rc = start(world, saver, step);
    if (rc == ERR_OK)
        rc = ckpt_saver_wait(saver, &progress);
    everywhere(world->comm, rc == ERR_OK && progress.phase == CKPT_COMMITTED,
               "the next save works");
    everywhere(world->comm, loads(world, step), "and holds");
}

static void test_failures(struct world *world, struct ckpt_saver *saver)
{
    struct rlimit before, small;
    char root[FSIO_PATH_MAX], aside[FSIO_PATH_MAX];
    bool last = world->rank == world->ranks - 1;
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = FILE_LIMIT;
    if (last)
        setrlimit(RLIMIT_FSIZE, &small);
    check_failure(world, saver, 20, ERR_IO, world->ranks - 1);
    setrlimit(RLIMIT_FSIZE, &before);
    everywhere(world->comm, loads(world, 13),
               "the older checkpoint stays good");
    check_next(world, saver, 21);

    ckpt_index_root(root, world->run);
    fsio_path(aside, "%s.aside", root);
    bool moved = world->rank != 0 || (rename(root, aside) == 0 &&
                                      fsio_write_atomic(root, "", 0) == ERR_OK);
    everywhere(world->comm, moved, "a file stands where the folder was");
    check_failure(world, saver, 22, ERR_SPACE, 0);
    if (world->rank == 0)
        moved = unlink(root) == 0 && rename(aside, root) == 0;
    everywhere(world->comm, moved, "it is gone again");
    check_next(world, saver, 23);
}

static void test_destroy(struct world *world, struct ckpt_saver **saver)
{
    everywhere(world->comm, start(world, *saver, 30) == ERR_OK,
               "one more save");
    ckpt_saver_destroy(*saver);
    *saver = NULL;
    everywhere(world->comm, loads(world, 30),
               "destroying the saver waits for it");
    everywhere(world->comm, fixture_count(world->run, ".") == 2,
               "nothing else");
}

/* The last rank starts a save when the others have given it up. */
static void test_deadline(struct world *world)
{
    struct ckpt_saver *saver = NULL;
    struct ckpt_progress progress;
    char rank[32], text[512] = "";
    if (world->ranks == 1) {
        tap_skip("a silent rank needs two ranks");
        return;
    }
    bool silent = world->rank == world->ranks - 1;
    world->options.timeout_s = DEADLINE_S;
    enum err rc = ckpt_saver_create(world->comm, world->run, &world->options,
                                    world->items, ITEMS, &saver);
    everywhere(world->comm, rc == ERR_OK, "a saver with a deadline");
    if (!silent)
        rc = start(world, saver, 40);
    if (rc == ERR_OK && !silent)
        rc = ckpt_saver_wait(saver, &progress);
    snprintf(text, sizeof text, "%s", err_text());
    snprintf(rank, sizeof rank, "rank %d (", world->ranks - 1);
    everywhere(world->comm,
               silent || (rc == ERR_COMM && strstr(text, "step 40") != NULL &&
                          strstr(text, rank) != NULL),
               "a silent rank is named by all others");
    everywhere(world->comm,
               silent || ckpt_saver_poll(saver, &progress) == ERR_COMM,
               "again and again");
    everywhere(world->comm,
               silent || ckpt_saver_start(saver, 41, NULL) == ERR_COMM,
               "no save starts any more");
    rc = start(world, saver, 40);
    if (rc == ERR_OK)
        rc = ckpt_saver_wait(saver, &progress);
    everywhere(world->comm, rc == ERR_COMM, "the late rank finds itself alone");
    ckpt_saver_destroy(saver);
    everywhere(world->comm, loads(world, 30), "nothing was committed");
}

static int removed;

/* In place of the library's, to see who removes files of a step that goes. */
int unlinkat(int folder, const char *name, int flags)
{
    removed += folder != AT_FDCWD && strncmp(name, "shard-", 6) == 0;
    return (int)syscall(SYS_unlinkat, folder, name, flags);
}

/* Of the steps that go, each rank removes the files that it writes. */
static void test_removal(struct world *world, struct ckpt_saver *saver)
{
    struct ckpt_progress progress;
    bool writes = world->options.file_ranks == 0 || world->rank == 0;
    enum err rc = ERR_OK;
    removed = 0;
    for (int64_t step = 24; step < 27 && rc == ERR_OK; step++) {
        rc = start(world, saver, step);
        if (rc == ERR_OK)
            rc = ckpt_saver_wait(saver, &progress);
    }
    everywhere(world->comm, rc == ERR_OK && removed == (writes ? 3 : 0),
               "each removes the file that it has written");
    everywhere(world->comm,
               fixture_count(world->run, "step-") == 2 &&
                   fixture_count(world->run, ".trash-") == 0,
               "two steps stay, and no trash");
}

/* Each rank writes its own file, or all together one. */
static void run_tests(struct world *world, int file_ranks)
{
    struct ckpt_saver *saver = NULL;
    ranks_items(world->items, ITEMS, world->rank, world->ranks);
    world->options = (struct ckpt_options){ .attempt = "7.1",
                                            .keep = 2,
                                            .file_ranks = file_ranks,
                                            .timeout_s = TIMEOUT_S,
                                            .stage = true,
                                            .record = count_record,
                                            .record_arg = world };
    enum err rc = ckpt_saver_create(world->comm, world->run, &world->options,
                                    world->items, ITEMS, &saver);
    everywhere(world->comm, rc == ERR_OK, "a saver");
    if (rc == ERR_OK) {
        test_isolation(world, saver);
        test_unobserved(world, saver);
        test_failures(world, saver);
        test_removal(world, saver);
        test_destroy(world, &saver);
        test_deadline(world);
    }
    fixture_free(world->items, ITEMS);
}

int main(int argc, char **argv)
{
    char folder[FSIO_PATH_MAX] = "";
    struct world world = { .comm = ranks_begin(&argc, &argv) };
    world.rank = comm_rank(world.comm);
    world.ranks = comm_size(world.comm);
    signal(SIGXFSZ, SIG_IGN);
    ranks_folder(world.comm, folder);
    fsio_path(world.run, "%s/run", folder);
    run_tests(&world, 0);
    world.committed = world.failed = 0;
    fsio_path(world.run, "%s/together", folder);
    run_tests(&world, INT_MAX);
    return ranks_end(world.comm);
}
