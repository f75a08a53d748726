/* Loading by any sharding what was saved with any other: boxes, replicas,
 * other numbers of ranks, some tensors only, other dtypes, shards that only
 * some ranks can open; and damage that one rank meets. Any number of ranks. */
#include "checkpoint/ckpt_load_private.h"
#include "checkpoint/files/ckpt_index.h"
#include "tests/ckpt_sharding.h"

/* --- tests --- */

/* Every block is read once, whoever wants it, and by all in turn. */
static void check_stats(struct comm *comm, enum sharding stored,
                        enum sharding kind, const struct ckpt_load_stats *stats,
                        const char *what)
{
    int64_t ranks = comm_size(comm);
    int64_t read = over_all(comm, stats->read_bytes, COMM_SUM);
    int64_t most = over_all(comm, stats->read_bytes, COMM_MAX);
    bool good = kind == NOTHING  ? read == 0
                : kind == RANDOM ? read <= payload()
                                 : read == payload();
    if (kind == REPLICATED)
        good = good && most <= payload() / ranks + CKPT_BLOCK_BYTES &&
               stats->received_bytes == payload() - stats->read_bytes;
    /* All but the blocks at either end is private. */
    if (kind == FLAT && stored != COLUMNS)
        good = good && stats->received_bytes <= 2 * (int64_t)CKPT_BLOCK_BYTES;
    good = good && stats->buffer_bytes ==
                       2 * CKPT_EXCHANGE_BYTES + (int64_t)CKPT_BLOCK_BYTES;
    everywhere(comm, good, "each block is read once: %s", what);
}

static void test_shardings(struct comm *comm, const char *run)
{
    for (int a = 0; a < SAVEABLE; a++) {
        int64_t step = a + 1;
        everywhere(comm, save(comm, run, step, (enum sharding)a) == ERR_OK,
                   "saved %s", names[a]);
        for (int b = 0; b < SHARDINGS; b++) {
            struct ckpt_load_stats stats;
            char what[64];
            snprintf(what, sizeof what, "%s -> %s", names[a], names[b]);
            everywhere(comm, loads(comm, run, step, (enum sharding)b, &stats),
                       "loaded %s", what);
            check_stats(comm, (enum sharding)a, (enum sharding)b, &stats, what);
        }
    }
}

/* One rank, all ranks, one rank; the values stay. */
static void test_rank_counts(struct comm *comm, const char *run)
{
    struct comm *self = NULL;
    bool good = comm_create("self", NULL, NULL, TIMEOUT_S, &self) == ERR_OK;
    bool first = comm_rank(comm) == 0;
    if (good && first)
        good = save(self, run, 1, UNEVEN) == ERR_OK;
    everywhere(comm, good, "one rank saves");
    everywhere(comm, loads(comm, run, 1, COLUMNS, NULL), "all ranks load");
    everywhere(comm, save(comm, run, 2, FLAT) == ERR_OK, "all ranks save");
    good = !first || loads(self, run, 2, RANDOM, NULL);
    everywhere(comm, good, "one rank loads");
    comm_destroy(self);
}

static void test_ignore(struct comm *comm, const char *run)
{
    static const char *const globs[] = { "no such*", "optimizer/*" };
    struct ckpt_load_options options = { .ignore = globs, .ignore_count = 2 };
    struct ckpt_load_stats stats;
    struct ckpt_item items[TENSORS];
    json_t *state = NULL;
    int64_t step = -1;
    catalogue(items);
    shard(items, REPLICATED, 0, 1);
    items[1].shape[0] = 7; /* the shape of what is ignored does not matter */
    items[1].part.end = 7;
    allocate(items);
    enum err rc =
        ckpt_load(comm, run, &options, items, TENSORS, &step, &state, &stats);
    int64_t left_out = 2100 * 1024 * 4;
    everywhere(comm, rc == ERR_OK && poisoned(&items[1]),
               "an ignored item keeps its data");
    everywhere(comm,
               over_all(comm, stats.read_bytes, COMM_SUM) ==
                   payload() - left_out,
               "an ignored tensor is not read");
    json_decref(state);
    state = NULL;
    release(items);
    catalogue(items);
    shard(items, FLAT, comm_rank(comm), comm_size(comm));
    allocate(items);
    snprintf(items[1].name, sizeof items[1].name, "optimizer/new");
    rc = ckpt_load(comm, run, &options, items, TENSORS, &step, &state, NULL);
    everywhere(comm, rc == ERR_OK && poisoned(&items[1]),
               "ignored names need not be on both sides");
    json_decref(state);
    release(items);
}

/* Other dtypes, by columns: refused, converted, impossible. */
static void test_convert(struct comm *comm, const char *run, int64_t want)
{
    static const struct {
        int item;
        enum dtype dtype;
    } changes[] = { { 0, DTYPE_BF16 },
                    { 1, DTYPE_F64 },
                    { 2, DTYPE_F32 },
                    { 4, DTYPE_F32 },
                    { 5, DTYPE_F32 } };
    struct ckpt_load_options options = { .convert = true };
    struct ckpt_item items[TENSORS];
    json_t *state = NULL;
    int64_t step = -1;
    catalogue(items);
    shard(items, COLUMNS, comm_rank(comm), comm_size(comm));
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++)
        items[changes[i].item].dtype = changes[i].dtype;
    allocate(items);
    enum err rc =
        ckpt_load(comm, run, NULL, items, TENSORS, &step, &state, NULL);
    everywhere(comm,
               rc == ERR_CHECKPOINT &&
                   strstr(err_text(), "5 mismatches") != NULL &&
                   strstr(err_text(), "sums is f64[3,4,5,6] in the "
                                      "checkpoint, f32[3,4,5,6]") != NULL,
               "other dtypes are mismatches");
    rc = ckpt_load(comm, run, &options, items, TENSORS, &step, &state, NULL);
    everywhere(comm, rc == ERR_OK && values(items, want, true),
               "other dtypes are converted");
    json_decref(state);
    items[3].dtype = DTYPE_F32;
    rc = ckpt_load(comm, run, &options, items, TENSORS, &step, &state, NULL);
    everywhere(comm, rc == ERR_CHECKPOINT, "integers are not");
    release(items);
}

static void test_mismatch(struct comm *comm, const char *run)
{
    struct ckpt_item items[TENSORS];
    json_t *state = NULL;
    int64_t step = -1;
    catalogue(items);
    shard(items, NOTHING, 0, 1);
    if (comm_rank(comm) == comm_size(comm) - 1) {
        items[0].shape[1] = 1000;
        snprintf(items[3].name, sizeof items[3].name, "other");
        items[4].part = (struct ckpt_part){ .begin = 0, .end = 361 };
    }
    enum err rc =
        ckpt_load(comm, run, NULL, items, TENSORS, &step, &state, NULL);
    const char *text = err_text();
    everywhere(comm,
               rc == ERR_CHECKPOINT && strstr(text, "4 mismatches") != NULL &&
                   strstr(text, "counts is not in the model") != NULL &&
                   strstr(text, "other is not in the checkpoint") != NULL &&
                   strstr(text, "sums is wanted beyond") != NULL &&
                   strstr(text, "f32[2100,1000] in the model") != NULL,
               "one rank's differences are listed on all");
    everywhere(comm, fixture_count(run, ".bad") == 0 && state == NULL,
               "and nothing is set aside");
}

/* --- shards that only some can open --- */

enum placement { ROUND_ROBIN, ALL_AT_LAST, TWO_COPIES, MISSING, LOST };
static const char *const placements[] = { "each shard at one rank",
                                          "all at the last rank",
                                          "two copies of each" };

/* Rank's own folder with links to the shards it holds. */
static bool make_node(const char *dir, const char *node,
                      const struct ckpt_manifest *manifest, int rank, int ranks,
                      enum placement kind, bool *holds)
{
    char from[FSIO_PATH_MAX], to[FSIO_PATH_MAX];
    fsio_remove_tree(node);
    bool good = fsio_mkdirs(node) == ERR_OK;
    for (int s = 0; s < manifest->shard_count && good; s++) {
        bool one = (s + 1) % ranks == rank;
        holds[s] = kind == ALL_AT_LAST  ? rank == ranks - 1
                   : kind == TWO_COPIES ? one || (s + 2) % ranks == rank
                   : kind == MISSING    ? one && s > 0
                                        : one;
        if (!holds[s] || (kind == LOST && s == 0))
            continue;
        good =
            fsio_path(from, "%s/%s", dir, manifest->shards[s].file) == ERR_OK &&
            fsio_path(to, "%s/%s", node, manifest->shards[s].file) == ERR_OK &&
            link(from, to) == 0;
    }
    return good;
}

static enum err exchange(struct comm *comm, const char *dir, const char *node,
                         enum placement place, enum sharding kind, int64_t step,
                         bool *same)
{
    enum err rc = ERR_OK;
    struct ckpt_item items[TENSORS];
    struct ckpt_manifest *manifest = NULL;
    struct ckpt_load_stats stats = { 0 };
    int *item_of_tensor = NULL;
    bool holds[16] = { false };
    struct ckpt_source source = { .dir = node, .holds = holds };
    catalogue(items);
    shard(items, kind, comm_rank(comm), comm_size(comm));
    allocate(items);
    TRY_OUT(ckpt_manifest_read(dir, NULL, NULL, &manifest));
    TRY_OUT(ckpt_match(manifest, dir, NULL, items, TENSORS, false,
                       &item_of_tensor));
    if (!make_node(dir, node, manifest, comm_rank(comm), comm_size(comm), place,
                   holds))
        rc = err_errno("%s", node);
    TRY_OUT(comm_agree(comm, rc));
    rc = ckpt_exchange(comm, &source, manifest, items, item_of_tensor, NULL,
                       &stats);
    *same = rc == ERR_OK && values(items, step, true);
out:
    fsio_remove_tree(node);
    ckpt_manifest_destroy(manifest);
    free(item_of_tensor);
    release(items);
    return rc;
}

static void test_nodes(struct comm *comm, const char *run, int64_t step)
{
    char dir[FSIO_PATH_MAX], node[FSIO_PATH_MAX];
    bool same = false;
    ckpt_index_path(dir, run, step);
    fsio_path(node, "%s/node-%d", run, comm_rank(comm));
    for (int p = ROUND_ROBIN; p <= TWO_COPIES; p++)
        for (int kind = 0; kind < SHARDINGS; kind++) {
            enum err rc = exchange(comm, dir, node, (enum placement)p,
                                   (enum sharding)kind, step, &same);
            everywhere(comm, rc == ERR_OK && same, "%s %s", placements[p],
                       names[kind]);
        }
    everywhere(comm,
               exchange(comm, dir, node, MISSING, REPLICATED, step, &same) ==
                       ERR_CHECKPOINT &&
                   strstr(err_text(), "missing on every node") != NULL,
               "a shard that nobody holds is named");
    everywhere(comm,
               exchange(comm, dir, node, LOST, REPLICATED, step, &same) ==
                       ERR_CHECKPOINT &&
                   strstr(err_text(), "shard is missing") != NULL,
               "a shard lost by its only holder ends it on all ranks");
}

/* --- damage --- */

/* Rank 0 changes a byte of the payload: of the last extent of the shard. */
static void damage(struct comm *comm, const char *dir, int which)
{
    struct ckpt_manifest *manifest = NULL;
    char path[FSIO_PATH_MAX];
    bool good = comm_rank(comm) != 0;
    if (!good && ckpt_manifest_read(dir, NULL, NULL, &manifest) == ERR_OK) {
        struct ckpt_shard *shard =
            &manifest->shards[which % manifest->shard_count];
        struct ckpt_extent *extent = &shard->extents[shard->extent_count - 1];
        fsio_path(path, "%s/%s", dir, shard->file);
        good = fixture_flip(path, extent->offset + extent->bytes / 2);
        ckpt_manifest_destroy(manifest);
    }
    everywhere(comm, good, "a byte is changed");
}

static void test_damage(struct comm *comm, const char *run)
{
    static const enum sharding kinds[] = { REPLICATED, FLAT, COLUMNS };
    for (int i = 0; i < 3; i++) {
        int64_t step = 100 + i;
        char dir[FSIO_PATH_MAX], bad[FSIO_PATH_MAX];
        struct ckpt_item items[TENSORS];
        json_t *state = NULL;
        int64_t got = -1;
        everywhere(comm, save(comm, run, step, FLAT) == ERR_OK, "saved %s",
                   names[kinds[i]]);
        ckpt_index_path(dir, run, step);
        damage(comm, dir, i);
        catalogue(items);
        shard(items, kinds[i], comm_rank(comm), comm_size(comm));
        allocate(items);
        enum err rc =
            ckpt_load_from(comm, dir, NULL, items, TENSORS, &got, &state, NULL);
        everywhere(comm,
                   rc == ERR_CHECKPOINT && state == NULL && got == -1 &&
                       strstr(err_text(), "damaged") != NULL,
                   "damage is found on all ranks: %s", names[kinds[i]]);
        release(items);
        everywhere(comm, fsio_exists(dir), "one folder alone is not set aside");
        everywhere(comm, loads(comm, run, 1, kinds[i], NULL),
                   "the older step is loaded: %s", names[kinds[i]]);
        fsio_path(bad, ".bad-step-%09d.", (int)step);
        everywhere(comm, fixture_count(run, bad) == 1,
                   "and the damaged one set aside");
    }
}

static void test_from(struct comm *comm, const char *run)
{
    struct ckpt_item items[TENSORS];
    char dir[FSIO_PATH_MAX];
    json_t *state = NULL;
    int64_t step = -1;
    catalogue(items);
    shard(items, ROWS, comm_rank(comm), comm_size(comm));
    allocate(items);
    ckpt_index_path(dir, run, 1);
    enum err rc =
        ckpt_load_from(comm, dir, NULL, items, TENSORS, &step, &state, NULL);
    json_t *want = fixture_state(1);
    everywhere(comm,
               rc == ERR_OK && step == 1 && json_equal(state, want) &&
                   values(items, 1, true),
               "one folder is loaded");
    json_decref(want);
    json_decref(state);
    fsio_path(dir, "%s/none", run);
    rc = ckpt_load_from(comm, dir, NULL, items, TENSORS, &step, &state, NULL);
    everywhere(comm, rc != ERR_OK && step == -1, "no folder is an error");
    release(items);
}

int main(int argc, char **argv)
{
    char folder[FSIO_PATH_MAX] = "", run[FSIO_PATH_MAX], other[FSIO_PATH_MAX];
    char newer[FSIO_PATH_MAX];
    struct comm *comm = ranks_begin(&argc, &argv);
    ranks_folder(comm, folder);
    fsio_path(run, "%s/run", folder);
    fsio_path(other, "%s/other", folder);
    test_shardings(comm, run);
    test_nodes(comm, run, SAVEABLE);
    test_ignore(comm, run);
    test_convert(comm, run, SAVEABLE);
    test_mismatch(comm, run);
    test_rank_counts(comm, other);
    test_from(comm, other);
    everywhere(comm, comm_rank(comm) != 0 || ckpt_index_sweep(other) == ERR_OK,
               "swept");
    ckpt_index_path(newer, other, 2);
    if (comm_rank(comm) == 0)
        fsio_remove_tree(newer);
    comm_barrier(comm);
    test_damage(comm, other);
    return ranks_end(comm);
}
