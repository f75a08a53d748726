/* Node-local checkpoints with XOR parity: every rank is a node of its own (this
 * machine under several names, which only root can give). Groups, saves, any
 * node lost, two lost, damage. Works with 1 to 4 ranks. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/ckpt_index.h"
#include "checkpoint/ckpt_parity.h"
#include "checkpoint/ckpt_xor.h"
#include "src/base/log.h"
#include "tests/ckpt_fixture.h"

#define ITEMS (FIXTURE_ITEMS + 1)
#define TIMEOUT_S 60.0
#define RANKS_MAX 4

/* So large that a chunk has several segments. */
static const struct ckpt_item big = { .name = "big",
                                      .dims = 2,
                                      .shape = { 2100, 1024 } };

struct world {
    struct comm *comm;
    int rank, ranks;
    char run[FSIO_PATH_MAX], local[FSIO_PATH_MAX];
};

/* How the tensors are cut: rank r saves so many of the parts. Unequal, and one
 * with nothing to save. */
static const int cuts[][RANKS_MAX] = { { 1, 2, 3, 4 }, { 5, 0, 1, 1 } };

static bool become_node(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    char name[32];
    int length =
        snprintf(name, sizeof name, "node%.16s", rank != NULL ? rank : "0");
    return unshare(CLONE_NEWUTS) == 0 && sethostname(name, (size_t)length) == 0;
}

/* A point counts when it holds on every rank. */
static void everywhere(const struct world *world, bool pass, const char *what)
{
    int64_t good = pass;
    if (!pass)
        fprintf(stderr, "# rank %d: %s: %s\n", world->rank, what, err_text());
    enum err rc = comm_all_reduce_i64(world->comm, &good, 1, COMM_MIN);
    tap_ok(rc == ERR_OK && good == 1, "%s", what);
}

static void make_items(const struct world *world, const int *cut,
                       struct ckpt_item *items)
{
    int64_t before = 0, all = 0;
    memcpy(items, fixture_tensors, sizeof fixture_tensors);
    items[FIXTURE_ITEMS] = big;
    for (int r = 0; r < world->ranks; r++) {
        before += r < world->rank ? cut[r] : 0;
        all += cut[r];
    }
    for (int i = 0; i < ITEMS; i++) {
        int64_t elements = fixture_elements(&items[i]);
        items[i].part.begin = elements * before / all;
        items[i].part.end = elements * (before + cut[world->rank]) / all;
        items[i].data =
            calloc((size_t)(items[i].part.end - items[i].part.begin) + 1,
                   dtype_bytes(items[i].dtype));
    }
}

/* `block`: a folder that is made when nothing but the save may make it; NULL:
 * none. */
static enum err save(const struct world *world, int group, const int *cut,
                     int64_t step, const char *block,
                     struct ckpt_progress *progress)
{
    enum err rc = ERR_OK;
    struct ckpt_item items[ITEMS];
    struct ckpt_saver *saver = NULL;
    struct ckpt_options options = { .attempt = "3.1",
                                    .stage = true,
                                    .timeout_s = TIMEOUT_S,
                                    .local_dir = world->local,
                                    .xor_group = group };
    json_t *state = world->rank == 0 ? fixture_state(step) : NULL;
    *progress = (struct ckpt_progress){ 0 };
    make_items(world, cut, items);
    fixture_fill(items, ITEMS, step);
    TRY(ckpt_saver_create(world->comm, world->run, &options, items, ITEMS,
                          &saver));
    if (block != NULL)
        TRY(fsio_mkdirs(block));
    TRY(ckpt_saver_start_local(saver, step, state));
    fixture_fill(items, ITEMS, step + 1000);
    TRY(ckpt_saver_wait(saver, progress));
out:
    ckpt_saver_destroy(saver);
    json_decref(state);
    fixture_free(items, ITEMS);
    return rc;
}

static bool saves(const struct world *world, int group, const int *cut,
                  int64_t step)
{
    struct ckpt_progress progress;
    return save(world, group, cut, step, NULL, &progress) == ERR_OK &&
           progress.phase == CKPT_COMMITTED;
}

/* The step that is loaded, from the nodes if *local; -2: an error or other
 * values. */
static int64_t loads(const struct world *world, bool *local)
{
    struct ckpt_item items[ITEMS];
    struct ckpt_load_options options = { .local_dir = world->local };
    struct ckpt_load_stats stats;
    json_t *state = NULL;
    int64_t step = -2;
    memcpy(items, fixture_tensors, sizeof fixture_tensors);
    items[FIXTURE_ITEMS] = big;
    fixture_make(items, ITEMS, world->ranks - 1 - world->rank, world->ranks);
    enum err rc = ckpt_load(world->comm, world->run, &options, items, ITEMS,
                            &step, &state, &stats);
    *local = stats.local;
    if (rc != ERR_OK || (step >= 0 && !fixture_holds(items, ITEMS, step)))
        step = -2;
    json_decref(state);
    fixture_free(items, ITEMS);
    return step;
}

static bool comes_back(const struct world *world, int64_t step)
{
    bool local;
    return loads(world, &local) == step && local;
}

/* Node `lost` loses its folder. */
static void lose(const struct world *world, int lost)
{
    comm_barrier(world->comm);
    if (world->rank == lost)
        fsio_remove_tree(world->local);
    comm_barrier(world->comm);
}

static int members_of(int ranks, int group)
{
    return ranks == 3 ? 3 : ranks < group ? ranks : group;
}

/* --- groups --------------------------------------------------------------- */

static void test_groups(const struct world *world)
{
    static const struct {
        int ranks, group, smallest, largest;
    } cases[] = { { 1, 8, 1, 1 }, { 2, 2, 2, 2 }, { 2, 8, 2, 2 },
                  { 3, 8, 3, 3 }, { 3, 3, 3, 3 }, { 3, 2, 3, 3 },
                  { 4, 8, 4, 4 }, { 4, 3, 2, 2 }, { 4, 2, 2, 2 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ckpt_xor *x = NULL;
        int smallest = 0, largest = 0;
        if (cases[i].ranks != world->ranks)
            continue;
        if (ckpt_xor_create(world->comm, cases[i].group, &x) == ERR_OK)
            ckpt_xor_groups(x, &smallest, &largest);
        ckpt_xor_destroy(x);
        tap_ok(smallest == cases[i].smallest && largest == cases[i].largest,
               "%d nodes in groups of up to %d: %d to %d", world->ranks,
               cases[i].group, smallest, largest);
    }
}

/* --- any node lost -------------------------------------------------------- */

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
    everywhere(world,
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
        everywhere(world, saves(world, group, cut, ++*step), "a save");
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
        everywhere(world, comes_back(world, *step), "the step comes back");
        everywhere(world, cut[lost] == 0 || same_shard(world, *step, kept),
                   "the lost shard is there again, bit for bit");
        ckpt_index_path(dir, world->local, *step);
        bytes_here(dir, ".rebuild", &left);
        everywhere(world, left == 0, "and nothing else is left of it");
    }
}

/* --- more lost ------------------------------------------------------------ */

/* Nodes `a` and `b` are lost: the step, or the run's own if `held` is not. */
static void two_lost(const struct world *world, int group, int a, int b,
                     bool held, int64_t *step)
{
    bool local = held;
    everywhere(world, saves(world, group, cuts[0], ++*step), "a save");
    lose(world, a);
    lose(world, b);
    int64_t got = loads(world, &local);
    everywhere(world, held ? got == *step && local : got == 0 && !local,
               held ? "two of different groups lost: the step comes back"
                    : "two of a group lost: the run's step comes back");
    lose(world, world->rank); /* each its own */
}

/* --- damage --------------------------------------------------------------- */

enum harm { FLIP_HEAD, FLIP_PARITY, CUT_PARITY, NO_PARITY, FLIP_SHARD, HARMS };

static const char *const harm_names[HARMS] = {
    "the head of a parity file is damaged", "parity is damaged",
    "a parity file is truncated",           "a parity file is gone",
    "a shard that is left is damaged",
};

static bool flip(const char *path, int64_t at)
{
    FILE *file = fopen(path, "r+");
    if (file == NULL)
        return false;
    bool good = fseek(file, at, SEEK_SET) == 0;
    int byte = getc(file);
    good = good && byte != EOF && fseek(file, at, SEEK_SET) == 0 &&
           putc(byte ^ 1, file) != EOF;
    return fclose(file) == 0 && good;
}

static bool do_harm(const struct world *world, int64_t step, enum harm harm)
{
    char dir[FSIO_PATH_MAX], path[FSIO_PATH_MAX] = "";
    struct stat status;
    const char *prefix = harm == FLIP_SHARD ? "shard-" : CKPT_PARITY_PREFIX;
    ckpt_index_path(dir, world->local, step);
    DIR *folder = opendir(dir);
    if (folder == NULL)
        return false;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
            fsio_path(path, "%s/%s", dir, entry->d_name);
    closedir(folder);
    if (stat(path, &status) != 0)
        return false;
    switch (harm) {
    case FLIP_HEAD:
        return flip(path, 70);
    case CUT_PARITY:
        return truncate(path, status.st_size - 1) == 0;
    case NO_PARITY:
        return unlink(path) == 0;
    default:
        return flip(path, status.st_size * 2 / 3);
    }
}

/* Node 0 is lost and node `at` has damage: nothing of the step is used. */
static void test_damage(const struct world *world, int group, int at,
                        int64_t *step)
{
    for (int harm = 0; harm < HARMS; harm++) {
        bool local = true;
        everywhere(world, saves(world, group, cuts[0], ++*step), "a save");
        lose(world, 0);
        everywhere(world,
                   world->rank != at || do_harm(world, *step, (enum harm)harm),
                   harm_names[harm]);
        int64_t got = loads(world, &local);
        everywhere(world, got == 0 && !local,
                   "it is seen, and the run's step comes back");
        lose(world, world->rank);
    }
}

/* --- damage while saving -------------------------------------------------- */

/* One round after the other, as a saver does it. */
static enum err exchange(struct ckpt_xor *x)
{
    enum err rc = ERR_OK;
    TRY(ckpt_xor_start(x));
    while (!ckpt_xor_ended(x)) {
        bool fold;
        while (!ckpt_xor_test(x))
            usleep(100);
        TRY(ckpt_xor_turn(x, &fold));
        if (fold)
            ckpt_xor_fold(x);
    }
out:
    return rc;
}

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
    int64_t lengths[RANKS_MAX] = { 1, 1, 1, 1 };
    char dir[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
    struct ckpt_manifest *manifest = NULL;
    struct ckpt_xor *x = NULL;
    bool good = saves(world, world->ranks, cuts[0], ++*step);
    ckpt_index_path(dir, world->local, *step);
    good = good && ckpt_manifest_read(dir, NULL, NULL, &manifest) == ERR_OK &&
           ckpt_xor_create(world->comm, world->ranks, &x) == ERR_OK;
    everywhere(world, good, "a step to exchange again");
    fsio_path(dir, "%s/again", world->local);
    for (int i = 0; i < 3 && good; i++) {
        bool harmed = world->rank == 1 && i > 0;
        good = own_shard(world, *step, dir, path);
        if (harmed && i == 1)
            good = good && flip(path, 300000);
        enum err rc = ckpt_xor_prepare(x, dir, manifest, 1, lengths);
        if (harmed && i == 2)
            good = good && flip(path, 300000);
        tap_note("damage: %s", cases[i]);
        everywhere(world,
                   good && rc == (harmed && i == 1 ? ERR_CHECKPOINT : ERR_OK),
                   "a damaged shard is not taken");
        if (i == 1) {
            ckpt_xor_release(x);
            continue;
        }
        everywhere(world, exchange(x) == ERR_OK, "the exchange ends");
        rc = ckpt_xor_seal(x, manifest);
        int64_t failed = rc == ERR_IO;
        comm_all_reduce_i64(world->comm, &failed, 1, COMM_SUM);
        everywhere(world, i == 0 ? rc == ERR_OK : failed == 1,
                   "who got damaged bytes says so");
    }
    ckpt_xor_destroy(x);
    ckpt_manifest_destroy(manifest);
}

/* A node that can't make its parity file: all hear of it, nothing is left, and
 * the next save works. */
static void test_failure(const struct world *world, int64_t *step)
{
    struct ckpt_progress progress;
    char tmp[FSIO_PATH_MAX], block[FSIO_PATH_MAX];
    everywhere(world, saves(world, world->ranks, cuts[0], ++*step), "a save");
    ckpt_index_tmp_path(tmp, world->local, ++*step, "3.1");
    fsio_path(block, "%s/" CKPT_PARITY_PREFIX "00000-01", tmp);
    enum err rc = save(world, world->ranks, cuts[0], *step,
                       world->rank == 1 ? block : NULL, &progress);
    everywhere(world,
               rc == ERR_OK && progress.phase == CKPT_FAILED &&
                   strstr(progress.text, "rank 1 (node1)") != NULL,
               "a node without its parity file: all hear of it");
    everywhere(world,
               fixture_count(world->local, "") == 3 &&
                   comes_back(world, *step - 1),
               "the step before is there, and nothing of this one");
    everywhere(world, saves(world, world->ranks, cuts[0], ++*step),
               "the next save works");
}

/* --- all ------------------------------------------------------------------ */

static void run_tests(struct world *world)
{
    int64_t step = 1;
    bool local;
    test_groups(world);
    if (world->ranks == 1) {
        everywhere(world, saves(world, 8, cuts[0], 2) && comes_back(world, 2),
                   "one node: saved without parity");
        lose(world, 0);
        everywhere(world, loads(world, &local) == -1, "and lost with it");
        return;
    }
    static const int groups[] = { 2, RANKS_MAX };
    for (size_t g = 0; g < 2; g++)
        for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++)
            if (g == 0 || world->ranks == RANKS_MAX)
                test_any_lost(world, groups[g], cuts[c], &step);
    test_exchange(world, &step);
    test_failure(world, &step);
    lose(world, world->rank);

    /* Something to fall back to. */
    struct ckpt_item items[ITEMS];
    struct ckpt_options options = { .attempt = "1.1" };
    json_t *state = fixture_state(0);
    make_items(world, cuts[0], items);
    fixture_fill(items, ITEMS, 0);
    everywhere(world,
               ckpt_save(world->comm, world->run, 0, state, items, ITEMS,
                         &options, NULL) == ERR_OK,
               "a step of the run");
    json_decref(state);
    fixture_free(items, ITEMS);
    two_lost(world, world->ranks, 0, 1, false, &step);
    if (world->ranks == 4) {
        two_lost(world, 2, 0, 2, false, &step);
        two_lost(world, 2, 0, 1, true, &step);
    }
    test_damage(world, world->ranks, world->ranks - 1, &step);
}

int main(int argc, char **argv)
{
    struct world world = { 0 };
    char folder[FSIO_PATH_MAX] = "";
    bool named = become_node();
    log_set_level(LOG_ERROR);
    if (comm_create("auto", &argc, &argv, TIMEOUT_S, &world.comm) != ERR_OK) {
        fprintf(stderr, "%s\n", err_text());
        return 1;
    }
    world.rank = comm_rank(world.comm);
    world.ranks = comm_size(world.comm);
    if (world.rank != 0)
        tap_silence();
    if (!named || world.ranks > RANKS_MAX) {
        tap_skip("needs up to 4 ranks and the right to give host names");
        comm_destroy(world.comm);
        return tap_done();
    }
    if (world.rank == 0)
        fixture_folder(folder);
    comm_broadcast(world.comm, folder, sizeof folder, 0);
    fsio_path(world.run, "%s/run", folder);
    fsio_path(world.local, "%s/node%d", folder, world.rank);
    run_tests(&world);
    comm_barrier(world.comm);
    if (world.rank == 0)
        fsio_remove_tree(folder);
    comm_destroy(world.comm);
    return tap_done();
}
