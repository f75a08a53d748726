/* Node-local checkpoints with XOR parity, every rank a node of its own: groups,
 * saves, any node lost, two lost. Works with 1 to 4 ranks. */
#include <sys/stat.h>

#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/local/ckpt_parity.h"
#include "checkpoint/local/ckpt_xor.h"
#include "tests/ckpt_world.h"

static int members_of(int ranks, int group)
{
    return ranks == 3 ? 3 : ranks < group ? ranks : group;
}

/* --- any node lost --- */

static int64_t bytes_here(const char *dir, const char *prefix, int *count)
{
    char path[FSIO_PATH_MAX];
    struct stat status;
    int64_t bytes = 0;
    DIR *folder = opendir(dir);
    *count = 0;
    if (folder == NULL)
        return 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0 &&
            fsio_path(path, "%s/%s", dir, entry->d_name) == ERR_OK &&
            stat(path, &status) == 0) {
            bytes += status.st_size;
            (*count)++;
        }
    closedir(folder);
    return bytes;
}

/* Each node has its own shard, if any, and one parity file of the right size;
 * the sum is as small as was promised. */
static void test_space(const struct world *world, int members, int64_t step)
{
    char dir[FSIO_PATH_MAX];
    int shards, parities;
    ckpt_index_path(dir, world->local, step);
    int64_t sums[2] = { bytes_here(dir, "shard-", &shards),
                        bytes_here(dir, CKPT_PARITY_PREFIX, &parities) };
    int64_t largest = sums[0];
    comm_all_reduce_i64(world->comm, &largest, 1, COMM_MAX);
    int64_t bound = largest / (members - 1) + 2 * 4096;
    everywhere(world->comm,
               shards <= 1 && parities == 1 && sums[1] > 0 && sums[1] <= bound,
               "one shard, and one parity file of its share");
    comm_all_reduce_i64(world->comm, sums, 2, COMM_SUM);
    tap_note("groups of %d: %.3f times the shards", members,
             (double)(sums[0] + sums[1]) / (double)sums[0]);
}

/* The lost shard lies on another node again, the very bytes. */
static bool same_shard(const struct world *world, int64_t step,
                       const char *kept)
{
    char dir[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
    char *a = NULL, *b = NULL;
    size_t a_bytes = 0, b_bytes = 0;
    int64_t found = 0, same = 1;
    ckpt_index_path(dir, world->local, step);
    for (int s = 0; s < world->ranks; s++) {
        for (int of = 1; of <= world->ranks; of++) {
            fsio_path(path, "%s/shard-%05d-of-%05d.h5", kept, s, of);
            if (!fsio_exists(path) ||
                fsio_read_file(path, 1 << 26, &a, &a_bytes) != ERR_OK)
                continue;
            fsio_path(path, "%s/shard-%05d-of-%05d.h5", dir, s, of);
            if (fsio_exists(path) &&
                fsio_read_file(path, 1 << 26, &b, &b_bytes) == ERR_OK) {
                found = 1;
                same = a_bytes == b_bytes && memcmp(a, b, a_bytes) == 0;
            }
            free(a);
            free(b);
            a = b = NULL;
        }
    }
    comm_all_reduce_i64(world->comm, &found, 1, COMM_SUM);
    return found == 1 && same == 1;
}

/* Move the step's folder to where all can compare with it. */
static void keep_lost(const struct world *world, int lost, int64_t step,
                      const char *kept)
{
    char dir[FSIO_PATH_MAX];
    ckpt_index_path(dir, world->local, step);
    comm_barrier(world->comm);
    if (world->rank == lost && rename(dir, kept) != 0)
        fprintf(stderr, "# %s was not kept\n", dir);
    comm_barrier(world->comm);
}

static void test_any_lost(const struct world *world, int group, const int *cut,
                          int64_t *step)
{
    char kept[FSIO_PATH_MAX], dir[FSIO_PATH_MAX];
    int left;
    for (int lost = 0; lost < world->ranks; lost++) {
        everywhere(world->comm, saves(world, group, cut, ++*step), "a save");
        if (lost == 0)
            test_space(world, members_of(world->ranks, group), *step);
        fsio_path(kept, "%s/kept", world->run);
        if (world->rank == 0) {
            fsio_mkdirs(world->run);
            fsio_remove_tree(kept);
        }
        keep_lost(world, lost, *step, kept);
        lose(world, lost);
        tap_note("groups of %d, node %d of %d is lost", group, lost,
                 world->ranks);
        everywhere(world->comm, comes_back(world, *step),
                   "the step comes back");
        everywhere(world->comm,
                   cut[lost] == 0 || same_shard(world, *step, kept),
                   "the lost shard is there again, bit for bit");
        ckpt_index_path(dir, world->local, *step);
        bytes_here(dir, ".rebuild", &left);
        everywhere(world->comm, left == 0, "and nothing else is left of it");
    }
}

/* --- more lost --- */

/* Nodes `a` and `b` are lost: the step, or the run's own if `held` is not. */
static void two_lost(const struct world *world, int group, int a, int b,
                     bool held, int64_t *step)
{
    bool local = held;
    everywhere(world->comm, saves(world, group, cuts[0], ++*step), "a save");
    lose(world, a);
    lose(world, b);
    int64_t got = loads(world, &local);
    everywhere(world->comm, held ? got == *step && local : got == 0 && !local,
               "%s",
               held ? "two of different groups lost: the step comes back"
                    : "two of a group lost: the run's step comes back");
    lose(world, world->rank); /* each its own */
}

/* --- all --- */

static void run_tests(struct world *world)
{
    int64_t step = 1;
    bool local;
    if (world->ranks == 1) {
        everywhere(world->comm,
                   saves(world, 8, cuts[0], 2) && comes_back(world, 2),
                   "one node: saved without parity");
        lose(world, 0);
        everywhere(world->comm, loads(world, &local) == -1, "and lost with it");
        return;
    }
    static const int groups[] = { 2, RANKS_MAX };
    for (size_t g = 0; g < 2; g++)
        for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++)
            if (g == 0 || world->ranks == RANKS_MAX)
                test_any_lost(world, groups[g], cuts[c], &step);
    lose(world, world->rank);
    everywhere(world->comm, saves_run(world), "a step of the run");
    two_lost(world, world->ranks, 0, 1, false, &step);
    if (world->ranks == 4) {
        two_lost(world, 0, 0, 2, false, &step); /* 0: pairs */
        two_lost(world, 0, 0, 1, true, &step);
    }
}

int main(int argc, char **argv)
{
    return world_main(argc, argv, run_tests);
}
