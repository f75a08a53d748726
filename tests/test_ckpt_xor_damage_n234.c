/* Node-local checkpoints with XOR parity and damage: while saving, and in what
 * is left when a node is lost. Every rank is a node of its own; works with 2 to
 * 4 ranks. */
#include <sys/stat.h>

#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/local/ckpt_parity.h"
#include "checkpoint/local/ckpt_xor.h"
#include "tests/ckpt_world.h"

/* --- damage --- */

enum harm { FLIP_HEAD, FLIP_PARITY, CUT_PARITY, NO_PARITY, FLIP_SHARD, HARMS };

static const char *const harm_names[HARMS] = {
    "the head of a parity file is damaged", "parity is damaged",
    "a parity file is truncated",           "a parity file is gone",
    "a shard that is left is damaged",
};

static bool do_harm(const struct world *world, int64_t step, enum harm harm)
{
    char dir[FSIO_PATH_MAX], path[FSIO_PATH_MAX] = "";
    struct stat status;
    const char *prefix = harm == FLIP_SHARD ? "shard-" : CKPT_PARITY_PREFIX;
    ckpt_index_path(dir, world->local, step);
    DIR *folder = opendir(dir);
    if (folder == NULL)
        return false;
    bool good = true;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        fsio_path(path, "%s/%s", dir, entry->d_name);
        if (harm == FLIP_SHARD)
            good = good && stat(path, &status) == 0 &&
                   fixture_flip(path, status.st_size * 2 / 3);
    }
    closedir(folder);
    if (stat(path, &status) != 0)
        return false;
    switch (harm) {
    case FLIP_SHARD:
        return good;
    case FLIP_HEAD:
        return fixture_flip(path, 70);
    case CUT_PARITY:
        return truncate(path, status.st_size - 1) == 0;
    case NO_PARITY:
        return unlink(path) == 0;
    default:
        return fixture_flip(path, status.st_size * 2 / 3);
    }
}

/* Node 0 is lost and node `at` has damage: nothing of the step is used. */
static void test_damage(const struct world *world, int group, int at,
                        int64_t *step)
{
    for (int harm = 0; harm < HARMS; harm++) {
        bool local = true;
        everywhere(world->comm, saves(world, group, cuts[0], ++*step),
                   "a save");
        lose(world, 0);
        everywhere(world->comm,
                   world->rank != at || do_harm(world, *step, (enum harm)harm),
                   "%s", harm_names[harm]);
        int64_t got = loads(world, &local);
        everywhere(world->comm, got == 0 && !local,
                   "it is seen, and the run's step comes back");
        lose(world, world->rank);
    }
}

/* All nodes are there, and a shard on the first `harmed` of them is damaged: of
 * one it is made good by parity; of all of them it is in pairs, where parity
 * alone is the other's shard, and can't be in larger groups. */
static void test_mended(const struct world *world, int group, int64_t *step)
{
    bool pairs = group <= 2 && world->ranks % 2 == 0;
    for (int harmed = 1; harmed <= world->ranks; harmed += world->ranks - 1) {
        bool local = false, good = harmed == 1 || pairs;
        everywhere(world->comm, saves(world, group, cuts[0], ++*step),
                   "a save");
        everywhere(world->comm,
                   world->rank >= harmed || do_harm(world, *step, FLIP_SHARD),
                   "a shard is damaged");
        int64_t got = loads(world, &local);
        everywhere(world->comm,
                   good ? got == *step && local : got == 0 && !local, "%s",
                   good ? "a damaged shard counts as lost"
                        : "as all of them: the run's step comes back");
        lose(world, world->rank);
    }
}

/* --- damage while saving --- */

/* A folder with nothing but the own shard of a step of the run. */
static bool own_shard(const struct world *world, int64_t step, const char *dir,
                      char path[FSIO_PATH_MAX])
{
    char from[FSIO_PATH_MAX], name[64];
    char *data = NULL;
    size_t bytes = 0;
    snprintf(name, sizeof name, "shard-%05d-of-%05d.h5", world->rank,
             world->ranks);
    ckpt_index_path(from, world->local, step);
    fsio_path(path, "%s/%s", from, name);
    bool good = fsio_read_file(path, 1 << 26, &data, &bytes) == ERR_OK;
    fsio_path(path, "%s/%s", dir, name);
    good = good && fsio_remove_tree(dir) == ERR_OK &&
           fsio_mkdirs(dir) == ERR_OK &&
           fsio_write_atomic(path, data, bytes) == ERR_OK;
    free(data);
    return good;
}

static void test_exchange(const struct world *world, int64_t *step)
{
    static const char *const cases[] = { "nothing", "before", "under way" };
    int shards[RANKS_MAX] = { 0, 1, 2, 3 };
    char dir[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
    struct ckpt_manifest *manifest = NULL;
    struct ckpt_xor *x = NULL;
    bool good = saves(world, world->ranks, cuts[0], ++*step);
    ckpt_index_path(dir, world->local, *step);
    good =
        good && ckpt_manifest_read(dir, NULL, NULL, &manifest) == ERR_OK &&
        ckpt_xor_create(world->comm, world->ranks, world->local, &x) == ERR_OK;
    everywhere(world->comm, good, "a step to exchange again");
    fsio_path(dir, "%s/again", world->local);
    struct ckpt_xor_save save = {
        .dir = dir, .manifest = manifest, .manifest_crc = 1, .shards = shards
    };
    for (int i = 0; i < 3 && good; i++) {
        bool harmed = world->rank == 1 && i > 0;
        good = own_shard(world, *step, dir, path);
        if (harmed && i == 1)
            good = good && fixture_flip(path, 300000);
        enum err rc = ckpt_xor_prepare(x, &save);
        if (harmed && i == 2)
            good = good && fixture_flip(path, 300000);
        tap_note("damage: %s", cases[i]);
        everywhere(world->comm,
                   good && rc == (harmed && i == 1 ? ERR_CHECKPOINT : ERR_OK),
                   "a damaged shard is not taken");
        if (i == 1) {
            ckpt_xor_release(x);
            continue;
        }
        everywhere(world->comm, ckpt_xor_exchange(x, TIMEOUT_S) == ERR_OK,
                   "the exchange ends");
        rc = ckpt_xor_verify(x, &save);
        int64_t failed = rc == ERR_IO;
        comm_all_reduce_i64(world->comm, &failed, 1, COMM_SUM);
        everywhere(world->comm, i == 0 ? rc == ERR_OK : failed == 1,
                   "who got damaged bytes says so");
    }
    ckpt_xor_destroy(x);
    ckpt_manifest_destroy(manifest);
}

/* A node that can't make its parity file, or can't rename when the others have:
 * all hear of it and take the step back, nothing is left, and the next save
 * works. */
static void test_failure(struct world *world, bool at_commit, int64_t *step)
{
    struct ckpt_progress progress;
    char tmp[FSIO_PATH_MAX], block[FSIO_PATH_MAX];
    everywhere(world->comm, saves(world, world->ranks, cuts[0], ++*step),
               "a save");
    ckpt_index_tmp_path(tmp, world->local, ++*step, "3.1");
    fsio_path(block, "%s/" CKPT_PARITY_PREFIX "00000-01", tmp);
    world->doomed = at_commit ? tmp : NULL;
    enum err rc =
        save(world, world->ranks, cuts[0], *step,
             !at_commit && world->rank == 1 ? block : NULL, &progress);
    world->doomed = NULL;
    everywhere(world->comm,
               rc == ERR_OK && progress.phase == CKPT_FAILED &&
                   strstr(progress.text, at_commit ? "rank 0 (node0)"
                                                   : "rank 1 (node1)") != NULL,
               "a node that can't %s: all hear of it",
               at_commit ? "commit" : "make its parity file");
    everywhere(world->comm,
               fixture_count(world->local, "") == 3 &&
                   comes_back(world, *step - 1),
               "the step before is there, and nothing of this one anywhere");
    everywhere(world->comm, saves(world, world->ranks, cuts[0], ++*step),
               "the next save works");
}

/* --- all ------------------------------------------------------------------ */

static void run_tests(struct world *world)
{
    int64_t step = 1;
    test_exchange(world, &step);
    test_failure(world, false, &step);
    test_failure(world, true, &step);
    lose(world, world->rank);
    everywhere(world->comm, saves_run(world), "a step of the run");
    test_damage(world, world->ranks, world->ranks - 1, &step);
    test_mended(world, world->ranks, &step);
    test_mended(world, 0, &step);
}

int main(int argc, char **argv)
{
    return world_main(argc, argv, run_tests);
}
