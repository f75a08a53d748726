/* Node-local checkpoints on four ranks of three nodes, which are a pair that the
 * odd one has joined: what can still be put together when folders are lost, also
 * from copies on the next node, which versions before parity have left. The
 * nodes are this machine under several names, which only root can give.
 *
 *     test_ckpt_local_n4                    the tests
 *     test_ckpt_local_n4 save FOLDER STEP [GROUP]
 *                                           save a step on the nodes, in pairs
 *                                           or groups of so many
 *     test_ckpt_local_n4 load FOLDER        load the newest, print its step; 1
 *                                           if its values are wrong
 */
#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/local/ckpt_local.h"
#include "checkpoint/local/ckpt_parity.h"
#include "tests/ckpt_ranks.h"

#define RANKS 4

/* who has the copy of a rank's shard, where there are copies */
static const int keeper_of[RANKS] = { 2, 2, 3, 0 };

/* --- putting together --- */

/* What rank r put into the folder of node `node`, copied from the run. */
static bool copy_file(const char *run, int64_t step, const char *local,
                      const char *name)
{
    char from[FSIO_PATH_MAX], to[FSIO_PATH_MAX], dir[FSIO_PATH_MAX];
    char *data = NULL;
    size_t bytes = 0;
    ckpt_index_path(dir, run, step);
    fsio_path(from, "%s/%s", dir, name);
    ckpt_index_path(dir, local, step);
    fsio_path(to, "%s/%s", dir, name);
    bool good = fsio_mkdirs(dir) == ERR_OK &&
                fsio_read_file(from, 1 << 24, &data, &bytes) == ERR_OK &&
                fsio_write_atomic(to, data, bytes) == ERR_OK;
    free(data);
    return good;
}

static bool sign(const char *local, int64_t step, const char *key)
{
    char dir[FSIO_PATH_MAX], *text;
    size_t bytes;
    struct ckpt_manifest *manifest = NULL;
    ckpt_index_path(dir, local, step);
    bool good = ckpt_manifest_read(dir, &text, &bytes, &manifest) == ERR_OK &&
                ckpt_sign(dir, key, text, bytes) == ERR_OK;
    ckpt_manifest_destroy(manifest);
    free(text);
    return good;
}

/* A checkpoint of the run as nodes have it from before there was parity alone:
 * own shards, copies of those of the node before, and the manifest. */
static bool spread(struct comm *comm, const char *run, int64_t step,
                   const char *local)
{
    bool good = true;
    for (int r = 0; r < RANKS; r++) {
        char name[64];
        snprintf(name, sizeof name, "shard-%05d-of-%05d.h5", r, RANKS);
        if (r == comm_rank(comm) || keeper_of[r] == comm_rank(comm))
            good &= copy_file(run, step, local, name);
    }
    return good && copy_file(run, step, local, CKPT_MANIFEST_FILE) &&
           sign(local, step, "");
}

static void lose(struct comm *comm, const char *local, int64_t step, int node)
{
    char dir[FSIO_PATH_MAX];
    ckpt_index_path(dir, local, step);
    if (node_of[comm_rank(comm)] == node)
        fsio_remove_tree(dir);
    comm_barrier(comm);
}

static bool chooses(struct comm *comm, const char *local, int64_t above,
                    int64_t below, int64_t want)
{
    struct ckpt_local chosen;
    enum err rc =
        ckpt_local_choose(comm, local, NULL, "u-1", above, below, &chosen);
    bool good =
        rc == ERR_OK && chosen.step == want &&
        (want < 0 ? chosen.manifest == NULL : chosen.manifest->step == want);
    ckpt_local_free(&chosen);
    return good;
}

static void damage_manifest(struct comm *comm, const char *local, int64_t step,
                            int node)
{
    char dir[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
    ckpt_index_path(dir, local, step);
    fsio_path(path, "%s/%s", dir, CKPT_MANIFEST_FILE);
    if (node_of[comm_rank(comm)] == node && truncate(path, 100) != 0)
        tap_note("cannot damage %s", path);
    comm_barrier(comm);
}

static void test_choose(struct comm *comm, const char *folder)
{
    char run[FSIO_PATH_MAX], local[FSIO_PATH_MAX];
    fsio_path(run, "%s/run", folder);
    fsio_path(local, "%s/node%d", folder, node_of[comm_rank(comm)]);
    everywhere(comm, chooses(comm, local, -1, INT64_MAX, -1),
               "there is nothing yet");
    for (int64_t step = 1; step <= 3; step++) {
        everywhere(comm,
                   fixture_save(comm, run, step, step, 0) == ERR_OK &&
                       spread(comm, run, step, local),
                   "a step is on its nodes");
        comm_barrier(comm);
    }
    everywhere(comm, chooses(comm, local, -1, INT64_MAX, 3), "the newest");
    everywhere(comm, chooses(comm, local, -1, 3, 2), "the newest below 3");
    everywhere(comm, chooses(comm, local, 3, INT64_MAX, -1), "none above 3");
    lose(comm, local, 3, 1);
    everywhere(comm, chooses(comm, local, -1, INT64_MAX, 3),
               "a lost node is made up for by the copies on the next");
    lose(comm, local, 3, 2);
    everywhere(comm, chooses(comm, local, -1, INT64_MAX, 2),
               "two neighbours lost: the step before");
    damage_manifest(comm, local, 2, 0);
    everywhere(comm, chooses(comm, local, -1, INT64_MAX, 2),
               "a damaged manifest is a lost node");
    damage_manifest(comm, local, 2, 1);
    everywhere(comm, chooses(comm, local, -1, INT64_MAX, 1),
               "two of them: the step before");
    everywhere(comm, chooses(comm, local, 1, INT64_MAX, -1),
               "and nothing newer than that");
}

/* --- saving --- */

static bool committed(enum err rc, const struct ckpt_progress *progress,
                      int64_t step)
{
    return rc == ERR_OK && progress->phase == CKPT_COMMITTED &&
           progress->local && progress->step == step;
}

/* The shards of its ranks and its parity, and no other shard. */
static bool has_its_own(const char *local, int rank, int64_t step)
{
    char dir[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
    bool good = true;
    ckpt_index_path(dir, local, step);
    for (int r = 0; r < RANKS; r++) {
        fsio_path(path, "%s/shard-%05d-of-%05d.h5", dir, r, RANKS);
        good &= fsio_exists(path) == (node_of[r] == node_of[rank]);
    }
    for (int set = 0; set < 2; set++) {
        fsio_path(path, "%s/%s%05d-%02d", dir, CKPT_PARITY_PREFIX, set,
                  node_of[rank]);
        good &= fsio_exists(path);
    }
    return good;
}

static void test_save(struct comm *comm, const char *folder)
{
    int rank = comm_rank(comm);
    char run[FSIO_PATH_MAX], local[FSIO_PATH_MAX], block[FSIO_PATH_MAX];
    struct ckpt_item items[FIXTURE_ITEMS];
    struct ckpt_saver *saver = NULL;
    struct ckpt_progress progress;
    struct ckpt_options options = { .attempt = "3.1",
                                    .stage = true,
                                    .local_dir = local };
    fsio_path(run, "%s/saved", folder);
    fsio_path(local, "%s/saved-node%d", folder, node_of[rank]);
    ranks_items(items, FIXTURE_ITEMS, rank, RANKS);
    enum err rc =
        ckpt_saver_create(comm, run, &options, items, FIXTURE_ITEMS, &saver);
    everywhere(comm, rc == ERR_OK, "a saver with a local level");
    rc = ranks_save(comm, saver, items, FIXTURE_ITEMS, 5, &progress);
    everywhere(comm, committed(rc, &progress, 5), "a local save is committed");
    everywhere(comm, has_its_own(local, rank, 5),
               "each node has its own shards, and parity of the two sets");
    everywhere(comm, fixture_count(run, "step-") == 0,
               "nothing is in the run directory");
    rc = ranks_save(comm, saver, items, FIXTURE_ITEMS, 6, &progress);
    everywhere(comm,
               committed(rc, &progress, 6) &&
                   chooses(comm, local, -1, INT64_MAX, 6),
               "the next one is the newest");
    everywhere(comm, fixture_count(local, "") == 3,
               "and nothing else is left"); /* with . and .. */

    /* Node 1 can't make its temporary folder. */
    comm_barrier(comm);
    ckpt_index_tmp_path(block, local, 7, options.attempt);
    if (node_of[rank] == 1)
        fsio_write_atomic(block, "x", 1);
    comm_barrier(comm);
    rc = ranks_save(comm, saver, items, FIXTURE_ITEMS, 7, &progress);
    everywhere(comm,
               rc == ERR_OK && progress.phase == CKPT_FAILED &&
                   strstr(progress.text, "rank 2 (node1)") != NULL,
               "a node that can't write: all hear of it");
    everywhere(comm,
               fixture_count(local, "") == 3 &&
                   chooses(comm, local, -1, INT64_MAX, 6),
               "the step before is there, and nothing of this one");
    rc = ranks_save(comm, saver, items, FIXTURE_ITEMS, 8, &progress);
    everywhere(comm, committed(rc, &progress, 8), "the next save works");
    lose(comm, local, 8, 0);
    everywhere(comm, chooses(comm, local, -1, INT64_MAX, 8),
               "its first node may be lost");
    rc = ranks_save(comm, saver, items, FIXTURE_ITEMS, 9, &progress);
    everywhere(comm, committed(rc, &progress, 9), "one more");
    lose(comm, local, 9, 1);
    lose(comm, local, 9, 2);
    everywhere(comm, chooses(comm, local, -1, INT64_MAX, -1),
               "two of a group may not");
    ckpt_saver_destroy(saver);
    fixture_free(items, FIXTURE_ITEMS);
}

/* --- one save or load, for crashes --- */

static enum err run_save(struct comm *comm, const char *run, char *local,
                         int64_t step, int xor_group)
{
    enum err rc = ERR_OK;
    struct ckpt_item items[FIXTURE_ITEMS];
    struct ckpt_saver *saver = NULL;
    struct ckpt_progress progress;
    struct ckpt_options options = { .attempt = "3.1",
                                    .stage = true,
                                    .timeout_s = TIMEOUT_S,
                                    .local_dir = local,
                                    .xor_group = xor_group };
    ranks_items(items, FIXTURE_ITEMS, comm_rank(comm), RANKS);
    rc = comm_rank(comm) == 0 ? ckpt_index_uuid_write(run, "u-1") : ERR_OK;
    TRY_OUT(comm_agree(comm, rc));
    TRY_OUT(
        ckpt_saver_create(comm, run, &options, items, FIXTURE_ITEMS, &saver));
    TRY_OUT(ranks_save(comm, saver, items, FIXTURE_ITEMS, step, &progress));
    if (progress.phase != CKPT_COMMITTED)
        rc = err_set(ERR_IO, "%s", progress.text);
out:
    ckpt_saver_destroy(saver);
    fixture_free(items, FIXTURE_ITEMS);
    return rc;
}

/* Each rank loads another's part, so that most of it must be sent. */
static enum err run_load(struct comm *comm, const char *run, const char *local)
{
    bool from_nodes;
    int64_t step = ranks_load(comm, run, local, FIXTURE_ITEMS,
                              RANKS - 1 - comm_rank(comm), RANKS, &from_nodes);
    bool good = step == -1 || (step >= 0 && from_nodes);
    TRY(comm_agree(comm, good ? ERR_OK
                              : err_set(ERR_CHECKPOINT, "not what was saved")));
    if (comm_rank(comm) == 0)
        printf("%lld\n", (long long)step);
    return ERR_OK;
}

static int run_command(struct comm *comm, char **words, int count)
{
    char run[FSIO_PATH_MAX], local[FSIO_PATH_MAX];
    fsio_path(run, "%s/run", words[1]);
    fsio_path(local, "%s/node%d", words[1], node_of[comm_rank(comm)]);
    int group = count == 4 ? (int)strtol(words[3], NULL, 10) : 0;
    enum err rc =
        strcmp(words[0], "save") == 0 && count >= 3
            ? run_save(comm, run, local, strtoll(words[2], NULL, 10), group)
            : run_load(comm, run, local);
    if (rc != ERR_OK)
        fprintf(stderr, "%s\n", err_text());
    return rc != ERR_OK;
}

int main(int argc, char **argv)
{
    char folder[FSIO_PATH_MAX] = "";
    bool named = become_node(false);
    struct comm *comm = ranks_begin(&argc, &argv);
    named = named && comm_size(comm) == RANKS;
    if (argc > 2 && named) {
        log_set_level(LOG_INFO);
        int status = run_command(comm, argv + 1, argc - 1);
        comm_destroy(comm);
        return status;
    }
    need_nodes(comm, named);
    ranks_folder(comm, folder);
    test_choose(comm, folder);
    test_save(comm, folder);
    return ranks_end(comm);
}
