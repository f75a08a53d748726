/* Ranks of a node that write a file together: whatever the sharding, the tensors
 * are those of a file for each, in as many files as there are groups. Of four
 * ranks two share a node. */
#include <limits.h>

#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/files/ckpt_manifest.h"
#include "checkpoint/files/ckpt_read.h"
#include "checkpoint/files/ckpt_view.h"
#include "tests/ckpt_sharding.h"

static bool named;

/* Files that up to `together` ranks of a node make, if all have something. */
static int files_of(const struct comm *comm, int together)
{
    int ranks = comm_size(comm), files = 0;
    for (int r = 0; r < ranks; r++) {
        int place = 0;
        for (int o = 0; o < r; o++)
            place += comm_same_host(comm, o, r);
        files += place % together == 0;
    }
    return files;
}

/* Rank 0: every byte of it is good, in so many files. */
static bool is_whole(const char *dir, int files, int *extents)
{
    struct ckpt_manifest *manifest = NULL;
    struct ckpt_read *reader = NULL;
    bool good = ckpt_manifest_read(dir, NULL, NULL, &manifest) == ERR_OK &&
                ckpt_read_create(dir, manifest, &reader) == ERR_OK &&
                ckpt_manifest_check_sizes(manifest, dir) == ERR_OK &&
                ckpt_view_check(dir, manifest) == ERR_OK;
    *extents = 0;
    for (int s = 0; good && s < manifest->shard_count; s++) {
        good = ckpt_read_all(reader, s, NULL, NULL) == ERR_OK;
        *extents += manifest->shards[s].extent_count;
    }
    good = good && (files == 0 || manifest->shard_count == files);
    ckpt_read_destroy(reader);
    ckpt_manifest_destroy(manifest);
    return good;
}

static void test_sharding(struct comm *comm, const char *run, int64_t step,
                          enum sharding kind, int together)
{
    char dir[FSIO_PATH_MAX], hex[2][65] = { "", "?" }, what[64];
    int own = 0, extents = 0;
    bool good = true;
    int files = kind == LAST_ONLY ? 1
                : kind == UNEVEN  ? 0 /* some have nothing */
                                  : files_of(comm, together);
    snprintf(what, sizeof what, "%s, %d together", names[kind], together);
    ckpt_index_path(dir, run, step);
    everywhere(comm, save(comm, run, step, kind) == ERR_OK, "%s: alone", what);
    if (comm_rank(comm) == 0)
        good = is_whole(dir, 0, &own) && ckpt_digest(dir, hex[0]) == ERR_OK;
    everywhere(comm, good, "%s: each its own file", what);
    everywhere(comm, save_files(comm, run, step, kind, together) == ERR_OK,
               "%s: saved", what);
    if (comm_rank(comm) == 0)
        good = is_whole(dir, files, &extents) &&
               ckpt_digest(dir, hex[1]) == ERR_OK &&
               strcmp(hex[0], hex[1]) == 0;
    everywhere(comm, good, "%s: the same tensors in fewer files", what);
    if (kind == FLAT && comm_rank(comm) == 0 && files == 1)
        tap_is_int(extents, TENSORS - 1, "a tensor is one piece again");
    tap_ok(extents <= own, "%s: no more pieces", what);
    everywhere(comm, loads(comm, run, step, REPLICATED, NULL), "%s: loaded",
               what);
    everywhere(comm, loads(comm, run, step, RANDOM, NULL), "%s: parts", what);
}

int main(int argc, char **argv)
{
    static const int sizes[] = { 2, INT_MAX };
    char folder[FSIO_PATH_MAX] = "", run[FSIO_PATH_MAX];
    int64_t step = 0;
    if (getenv("OMPI_COMM_WORLD_SIZE") != NULL &&
        strcmp(getenv("OMPI_COMM_WORLD_SIZE"), "4") == 0)
        named = become_node(false);
    struct comm *comm = ranks_begin(&argc, &argv);
    ranks_folder(comm, folder);
    fsio_path(run, "%s/run", folder);
    if (named && comm_rank(comm) == 0)
        tap_note("three nodes");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int kind = 0; kind < SAVEABLE; kind++)
            test_sharding(comm, run, ++step, (enum sharding)kind, sizes[i]);
    return ranks_end(comm);
}
