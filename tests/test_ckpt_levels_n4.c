/* Both levels of checkpoints together, on four ranks of three nodes: which step
 * a load takes, whose it must be, and what scavenging saves. The nodes are this
 * machine under several names, which only root can give. */
#include <signal.h>
#include <sys/resource.h>

#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/tools/ckpt_tools.h"
#include "tests/ckpt_ranks.h"

#define RANKS 4

struct levels {
    struct comm *comm;
    char folder[FSIO_PATH_MAX];
    char run[FSIO_PATH_MAX];
    char local[FSIO_PATH_MAX]; /* of this rank's node */
};

/* --- what the levels hold --- */

/* A run of its own, known as u-1, and the nodes' folders beside it. */
static void begin(struct levels *l, const char *name)
{
    int node = node_of[comm_rank(l->comm)];
    fsio_path(l->run, "%s/%s", l->folder, name);
    fsio_path(l->local, "%s/%s-node%d", l->folder, name, node);
    enum err rc =
        comm_rank(l->comm) == 0 ? ckpt_index_uuid_write(l->run, "u-1") : ERR_OK;
    everywhere(l->comm, rc == ERR_OK, "%s: a run", name);
}

static bool save_on_nodes(const struct levels *l, int64_t step)
{
    struct ckpt_item items[FIXTURE_ITEMS];
    struct ckpt_saver *saver = NULL;
    struct ckpt_progress progress = { 0 };
    struct ckpt_options options = { .attempt = "3.1",
                                    .stage = true,
                                    .timeout_s = TIMEOUT_S,
                                    .local_dir = l->local };
    ranks_items(items, FIXTURE_ITEMS, comm_rank(l->comm), RANKS);
    enum err rc = ckpt_saver_create(l->comm, l->run, &options, items,
                                    FIXTURE_ITEMS, &saver);
    if (rc == ERR_OK)
        rc = ranks_save(l->comm, saver, items, FIXTURE_ITEMS, step, &progress);
    ckpt_saver_destroy(saver);
    fixture_free(items, FIXTURE_ITEMS);
    return rc == ERR_OK && progress.phase == CKPT_COMMITTED;
}

/* This rank loads another's part. */
static void loads(const struct levels *l, int64_t want, bool want_local,
                  const char *when)
{
    bool local;
    int64_t step = ranks_load(l->comm, l->run, l->local, FIXTURE_ITEMS,
                              RANKS - 1 - comm_rank(l->comm), RANKS, &local);
    if (step != want || local != want_local)
        fprintf(stderr, "# step %lld%s\n", (long long)step,
                local ? " of the nodes" : "");
    everywhere(l->comm, step == want && local == want_local,
               "%s: step %lld of %s", when, (long long)want,
               want_local ? "the nodes" : "the run directory");
    comm_barrier(l->comm);
}

/* Flip a byte of the first extent of a shard, or, with shard -1, cut off the
 * manifest; of `folder`, which is RUN or a node's. */
static bool damage(const char *folder, int64_t step, int shard)
{
    char dir[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
    struct ckpt_manifest *manifest = NULL;
    ckpt_index_path(dir, folder, step);
    fsio_path(path, "%s/%s", dir, CKPT_MANIFEST_FILE);
    if (shard < 0)
        return truncate(path, 100) == 0;
    if (ckpt_manifest_read(dir, NULL, NULL, &manifest) != ERR_OK)
        return false;
    fsio_path(path, "%s/%s", dir, manifest->shards[shard].file);
    off_t at = (off_t)manifest->shards[shard].extents[0].offset;
    ckpt_manifest_destroy(manifest);
    return fixture_flip(path, at);
}

static bool run_damage(const struct levels *l, int64_t step, int shard)
{
    comm_barrier(l->comm);
    bool done = comm_rank(l->comm) != 0 || damage(l->run, step, shard);
    comm_barrier(l->comm);
    return done;
}

/* On this node alone, or, with node -1, on all that have the shard. */
static bool node_damage(const struct levels *l, int64_t step, int node,
                        int shard)
{
    int rank = comm_rank(l->comm);
    bool leads = rank == 0 || node_of[rank - 1] != node_of[rank];
    bool mine = leads && (node < 0 || node_of[rank] == node);
    comm_barrier(l->comm);
    bool done = !mine || damage(l->local, step, shard) || node < 0;
    comm_barrier(l->comm);
    return done;
}

/* --- the newest intact step of both levels --- */

static void test_levels(struct levels *l)
{
    begin(l, "levels");
    everywhere(l->comm,
               fixture_save(l->comm, l->run, 10, 10, 0) == ERR_OK &&
                   save_on_nodes(l, 20),
               "step 10 in the run directory, 20 on the nodes");
    loads(l, 20, true, "the nodes are newer");
    everywhere(l->comm, fixture_save(l->comm, l->run, 20, 20, 0) == ERR_OK,
               "20 in the run directory too");
    loads(l, 20, true, "the same step");
    everywhere(l->comm, fixture_save(l->comm, l->run, 30, 30, 0) == ERR_OK,
               "30 in the run directory");
    loads(l, 30, false, "the run directory is newer");
    everywhere(l->comm, run_damage(l, 30, 1), "30 damaged");
    loads(l, 20, true, "the nodes have the newest intact one");
    everywhere(l->comm, fixture_count(l->run, ".bad-step-000000030") == 1,
               "30 is set aside");
    everywhere(l->comm, node_damage(l, 20, -1, 0), "20 damaged on a node");
    loads(l, 20, true, "made again from parity");
    everywhere(l->comm, node_damage(l, 20, -1, 0) && node_damage(l, 20, -1, 2),
               "20 damaged on two nodes");
    loads(l, 20, false, "the run directory has the same step");
    everywhere(l->comm, run_damage(l, 20, -1), "20's manifest damaged");
    loads(l, 10, false, "back to the oldest");
    everywhere(l->comm, fixture_save(l->comm, l->run, 30, 30, 0) == ERR_OK,
               "30 again");
    everywhere(l->comm, save_on_nodes(l, 20) && run_damage(l, 30, -1),
               "20 on the nodes, 30's manifest damaged");
    loads(l, 20, true, "a damaged manifest is passed over too");
    everywhere(l->comm, node_damage(l, 20, 0, -1) && node_damage(l, 20, 1, -1),
               "20's manifest lost on two nodes");
    loads(l, 10, false, "nothing newer is whole");
    everywhere(l->comm, save_on_nodes(l, 25) && run_damage(l, 10, 0),
               "25 on the nodes, 10 damaged");
    loads(l, 25, true, "the nodes alone");
    everywhere(l->comm, node_damage(l, 25, -1, 2) && node_damage(l, 25, -1, 3),
               "25 damaged");
    loads(l, -2, false, "nothing is left, and that is no fresh start");
}

/* --- whose --- */

static enum err identify(const struct levels *l, const char *uuid)
{
    enum err rc = ERR_OK;
    comm_barrier(l->comm);
    if (comm_rank(l->comm) == 0)
        rc = ckpt_index_uuid_write(l->run, uuid);
    return comm_agree(l->comm, rc);
}

static void test_afresh(struct levels *l)
{
    char root[FSIO_PATH_MAX];
    begin(l, "afresh");
    everywhere(l->comm,
               fixture_save(l->comm, l->run, 10, 10, 0) == ERR_OK &&
                   save_on_nodes(l, 20),
               "step 10 in the run directory, 20 on the nodes");
    loads(l, 20, true, "nothing has happened");
    ckpt_index_root(root, l->run);
    comm_barrier(l->comm);
    enum err rc = comm_rank(l->comm) == 0 ? fsio_remove_tree(root) : ERR_OK;
    everywhere(l->comm, rc == ERR_OK, "the checkpoints are deleted");
    loads(l, -1, false, "a fresh start");
    everywhere(l->comm, identify(l, "u-2") == ERR_OK, "it is another run now");
    loads(l, -1, false, "still a fresh start");
    everywhere(l->comm, identify(l, "u-1") == ERR_OK, "it is that run again");
    loads(l, 20, true, "its copies count");
}

/* --- scavenging --- */

static void scavenges(const struct levels *l, int64_t want, const char *when)
{
    struct ckpt_scavenged scavenged;
    enum err rc = ckpt_scavenge(l->comm, l->run, l->local, NULL, "7.scavenge",
                                &scavenged);
    comm_barrier(l->comm);
    everywhere(l->comm,
               rc == ERR_OK && scavenged.step == want &&
                   (want < 0) == (scavenged.bytes == 0),
               "%s: step %lld is scavenged", when, (long long)want);
    everywhere(l->comm, fixture_count(l->run, ".tmp-") == 0,
               "nothing is left over");
}

/* Nobody has the nodes' folders any more; every byte is verified. */
static void holds(struct levels *l, int64_t step)
{
    char dir[FSIO_PATH_MAX], local[FSIO_PATH_MAX];
    memcpy(local, l->local, sizeof local);
    fsio_path(l->local, "%s/none", l->folder);
    loads(l, step, false, "without the nodes");
    memcpy(l->local, local, sizeof local);
    ckpt_index_path(dir, l->run, step);
    everywhere(l->comm,
               ckpt_index_latest_read(l->run) == step &&
                   (comm_rank(l->comm) != 0 || fixture_verify(dir) == ERR_OK),
               "step %lld is verified, with its view", (long long)step);
}

/* An empty folder in place of the node's: as after its loss, with a spare. */
static void lose_node(const struct levels *l, int node)
{
    comm_barrier(l->comm);
    if (node_of[comm_rank(l->comm)] == node)
        fsio_remove_tree(l->local);
    comm_barrier(l->comm);
}

static void test_scavenge(struct levels *l)
{
    begin(l, "scavenge");
    scavenges(l, -1, "nothing anywhere");
    everywhere(l->comm, save_on_nodes(l, 20), "20 on the nodes");
    scavenges(l, 20, "an empty run directory");
    holds(l, 20);
    scavenges(l, -1, "the run directory has it");
    everywhere(l->comm, save_on_nodes(l, 30), "30 on the nodes");
    lose_node(l, 1);
    scavenges(l, 30, "a node is lost");
    holds(l, 30);
    everywhere(l->comm, save_on_nodes(l, 40), "40 on the nodes");
    lose_node(l, 1);
    lose_node(l, 2);
    scavenges(l, -1, "two neighbours are lost");
    loads(l, 30, false, "the one before is there");
    everywhere(l->comm, save_on_nodes(l, 50) && node_damage(l, 50, 0, 0),
               "50 on the nodes, damaged on one");
    scavenges(l, 50, "parity is whole");
    holds(l, 50);
    everywhere(l->comm,
               save_on_nodes(l, 60) && node_damage(l, 60, -1, 0) &&
                   node_damage(l, 60, -1, 3),
               "60 on the nodes, damaged on two");
    scavenges(l, -1, "parity cannot make both");
    everywhere(l->comm, save_on_nodes(l, 70) && identify(l, "u-2") == ERR_OK,
               "70 on the nodes, and another run here");
    scavenges(l, -1, "it is not this run's");
    everywhere(l->comm, identify(l, "u-1") == ERR_OK, "this run again");
    everywhere(l->comm, fixture_save(l->comm, l->run, 80, 80, 0) == ERR_OK,
               "80 in the run directory");
    scavenges(l, -1, "the run directory is newer");
    everywhere(l->comm, run_damage(l, 80, -1), "80 damaged");
    scavenges(l, 70, "and damaged");
}

/* Files of this process can't grow beyond so many bytes; 0: as they like. */
static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes > 0 ? bytes : limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);
}

static void test_scavenge_fails(struct levels *l)
{
    struct ckpt_scavenged scavenged;
    char tmp[FSIO_PATH_MAX], left[FSIO_PATH_MAX];
    int rank = comm_rank(l->comm);
    begin(l, "failing");
    everywhere(l->comm, save_on_nodes(l, 20), "20 on the nodes");
    if (rank == 2)
        limit_files(1000);
    enum err rc = ckpt_scavenge(l->comm, l->run, l->local, NULL, "7.scavenge",
                                &scavenged);
    limit_files(0);
    comm_barrier(l->comm);
    everywhere(l->comm,
               rc != ERR_OK && rc != ERR_CHECKPOINT &&
                   (rank == 2 || strstr(err_text(), "rank 2 (node1)") != NULL),
               "a rank that can't write: all hear of it");
    everywhere(l->comm,
               fixture_count(l->run, ".tmp-") == 0 &&
                   fixture_count(l->run, "step-") == 0,
               "nothing is left of it");
    ckpt_index_tmp_path(tmp, l->run, 20, "7.scavenge");
    fsio_path(left, "%s/MANIFEST.json", tmp);
    comm_barrier(l->comm);
    rc = rank == 0 ? fsio_mkdirs(left) : ERR_OK;
    everywhere(l->comm, rc == ERR_OK, "leftovers in the way");
    scavenges(l, 20, "they are cleared away");
    holds(l, 20);
}

int main(int argc, char **argv)
{
    bool named = become_node(false);
    struct levels l = { .comm = ranks_begin(&argc, &argv) };
    need_nodes(l.comm, named && comm_size(l.comm) == RANKS);
    ranks_folder(l.comm, l.folder);
    test_levels(&l);
    test_afresh(&l);
    test_scavenge(&l);
    test_scavenge_fails(&l);
    return ranks_end(l.comm);
}
