/* Checkpoints of several ranks: sharded save, load by other intervals, one
 * decision for all ranks. Works with any number of ranks.
 *
 *     test_ckpt_n1234                  the tests
 *     test_ckpt_n1234 save RUN STEP    save, each rank its part
 *     test_ckpt_n1234 load RUN STEP    load with this number of ranks; 0 if
 *                                      exactly that step's values came back
 */
#include "checkpoint/ckpt.h"
#include "checkpoint/files/ckpt_index.h"
#define BIG_ROWS 1700 /* as the commands' tests know it */
#include "tests/ckpt_ranks.h"

static enum err save(struct comm *comm, const char *run, int64_t step, int part,
                     int parts)
{
    struct ckpt_item items[ITEMS];
    struct ckpt_options options = { .attempt = "7.1", .keep = 3 };
    ranks_items(items, ITEMS, part, parts);
    fixture_fill(items, ITEMS, step);
    json_t *state = comm_rank(comm) == 0 ? fixture_state(step) : NULL;
    enum err rc =
        ckpt_save(comm, run, step, state, items, ITEMS, &options, NULL);
    json_decref(state);
    fixture_free(items, ITEMS);
    return rc;
}

static bool loads(struct comm *comm, const char *run, int64_t want, int part,
                  int parts)
{
    return ranks_load(comm, run, NULL, ITEMS, part, parts, NULL) == want;
}

/* Rank 0 flips a bit in the last shard of a step. */
static void damage(struct comm *comm, const char *run, int64_t step)
{
    int last = comm_size(comm) - 1;
    if (comm_rank(comm) == 0) {
        char dir[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
        ckpt_index_path(dir, run, step);
        fsio_path(path, "%s/shard-%05d-of-%05d.h5", dir, last, last + 1);
        fixture_flip(path, 1 << 20);
    }
    comm_barrier(comm);
}

static void test_partitions(struct comm *comm, const char *run)
{
    int rank = comm_rank(comm), ranks = comm_size(comm);
    everywhere(comm, loads(comm, run, -1, 0, 1), "there is nothing to load");
    everywhere(comm, save(comm, run, 1, rank, ranks) == ERR_OK,
               "every rank saves its part");
    everywhere(comm, loads(comm, run, 1, rank, ranks), "and loads it");
    everywhere(comm, loads(comm, run, 1, ranks - 1 - rank, ranks),
               "the ranks load each other's parts");
    everywhere(comm, loads(comm, run, 1, rank, ranks + 3),
               "parts of other sizes, not all of them");
    everywhere(comm, loads(comm, run, 1, 0, 1), "all ranks load everything");
    everywhere(comm, loads(comm, run, 1, rank / 2, (ranks + 1) / 2),
               "two ranks load the same part");
}

/* Only the last rank owns anything, as one replica of several does. */
static void test_one_writer(struct comm *comm, const char *run)
{
    int rank = comm_rank(comm), ranks = comm_size(comm);
    struct ckpt_item items[ITEMS];
    struct ckpt_options options = { .attempt = "7.1", .keep = 1 };
    char dir[FSIO_PATH_MAX], hex[2][65] = { "", "?" };
    ranks_items(items, ITEMS, rank == ranks - 1 ? 0 : 1, 1);
    for (int i = 0; i < ITEMS && rank != ranks - 1; i++)
        items[i].part.end = items[i].part.begin = 0;
    fixture_fill(items, ITEMS, 1);
    json_t *state = fixture_state(1);
    ckpt_index_path(dir, run, 1);
    everywhere(comm, ckpt_digest(dir, hex[0]) == ERR_OK, "digest");
    enum err rc = ckpt_save(comm, run, 1, state, items, ITEMS, &options, NULL);
    json_decref(state);
    everywhere(comm, rc == ERR_OK, "one rank writes everything");
    fixture_free(items, ITEMS);
    everywhere(comm, loads(comm, run, 1, rank, ranks), "all ranks load it");
    everywhere(
        comm, ckpt_digest(dir, hex[1]) == ERR_OK && strcmp(hex[0], hex[1]) == 0,
        "the digest does not depend on the sharding");
}

static void test_fall_back(struct comm *comm, const char *run)
{
    int rank = comm_rank(comm), ranks = comm_size(comm);
    everywhere(comm, save(comm, run, 2, rank, ranks) == ERR_OK, "step 2");
    damage(comm, run, 2);
    everywhere(comm, loads(comm, run, 1, rank, ranks),
               "damage that one rank sees makes all fall back");
    everywhere(comm, fixture_count(run, ".bad-step-000000002.0") == 1,
               "and is set aside once");
}

static void test_refusals(struct comm *comm, const char *run)
{
    int rank = comm_rank(comm), ranks = comm_size(comm);
    struct ckpt_item items[ITEMS];
    struct ckpt_options options = { .attempt = "7.1", .keep = 1 };
    if (ranks == 1) {
        tap_skip("disagreements need two ranks");
        return;
    }
    everywhere(comm, save(comm, run, 5, 0, 1) == ERR_CHECKPOINT,
               "elements written twice fail on all ranks");
    everywhere(comm, save(comm, run, 5, rank, ranks + 1) == ERR_CHECKPOINT,
               "elements written by nobody fail on all ranks");
    ranks_items(items, ITEMS, rank, ranks);
    if (rank == ranks - 1)
        items[2].shape[0]++;
    enum err rc = ckpt_save(comm, run, 5, NULL, items, ITEMS, &options, NULL);
    everywhere(comm, rc == ERR_INTERNAL, "different tensors fail on all ranks");
    if (rank == ranks - 1)
        items[2].part.end = 100;
    rc = ckpt_save(comm, run, 5, NULL, items, ITEMS, &options, NULL);
    everywhere(comm, rc == ERR_INTERNAL, "one rank's mistake fails on all");
    fixture_free(items, ITEMS);
    /* Rank 0 removes what it left after the agreement. */
    comm_barrier(comm);
    everywhere(comm,
               fixture_count(run, ".tmp") == 0 &&
                   fixture_count(run, "step-000000005") == 0,
               "nothing of it stays");
}

static enum err taken_over(void *arg)
{
    (void)arg;
    return err_set(ERR_BUSY, "another process has this run");
}

/* Who has lost the run directory after the last byte was written commits
 * nothing. */
static void test_lost(struct comm *comm, const char *run)
{
    struct ckpt_item items[ITEMS];
    struct ckpt_options options = { .attempt = "7.1",
                                    .keep = 1,
                                    .may_commit = taken_over };
    ranks_items(items, ITEMS, comm_rank(comm), comm_size(comm));
    fixture_fill(items, ITEMS, 6);
    enum err rc = ckpt_save(comm, run, 6, NULL, items, ITEMS, &options, NULL);
    everywhere(comm, rc == ERR_BUSY,
               "a commit that is refused fails everywhere");
    fixture_free(items, ITEMS);
    comm_barrier(comm);
    everywhere(comm,
               fixture_count(run, ".tmp") == 0 &&
                   fixture_count(run, "step-000000006") == 0,
               "and leaves nothing");
}

int main(int argc, char **argv)
{
    char folder[FSIO_PATH_MAX] = "", run[FSIO_PATH_MAX];
    struct comm *comm = ranks_begin(&argc, &argv);
    int rank = comm_rank(comm), ranks = comm_size(comm);
    if (argc == 4) {
        bool saving = strcmp(argv[1], "save") == 0;
        int64_t step = atoll(argv[3]);
        bool good = saving ? save(comm, argv[2], step, rank, ranks) == ERR_OK
                           : loads(comm, argv[2], step, rank, ranks);
        if (saving && !good)
            fprintf(stderr, "%s\n", err_text());
        comm_destroy(comm);
        return !good;
    }
    ranks_folder(comm, folder);
    fsio_path(run, "%s/run", folder);
    test_partitions(comm, run);
    test_one_writer(comm, run);
    test_fall_back(comm, run);
    test_refusals(comm, run);
    test_lost(comm, run);
    return ranks_end(comm);
}
