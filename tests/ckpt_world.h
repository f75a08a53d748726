/* Ranks that are nodes of their own (this machine under several names, which
 * only root can give), each with a folder, for tests of node-local checkpoints
 * with parity. */
#pragma once

#include "checkpoint/files/ckpt_index.h"
#include "tests/ckpt_ranks.h"

#define RANKS_MAX 4

struct world {
    struct comm *comm;
    int rank, ranks;
    char run[FSIO_PATH_MAX], local[FSIO_PATH_MAX];
    char *doomed; /* rank 0's folder that goes just before nodes commit */
};

/* How the tensors are cut: rank r saves so many of the parts. Unequal, and one
 * with nothing to save. */
static const int cuts[][RANKS_MAX] = { { 1, 2, 3, 4 }, { 5, 0, 1, 1 } };

static inline void make_items(const struct world *world, const int *cut,
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

static inline enum err remove_doomed(void *folder)
{
    return folder != NULL ? fsio_remove_tree(folder) : ERR_OK;
}

/* `block`: a folder that is made when nothing but the save may make it; NULL:
 * none. */
static inline enum err save(const struct world *world, int group,
                            const int *cut, int64_t step, const char *block,
                            struct ckpt_progress *progress)
{
    enum err rc = ERR_OK;
    struct ckpt_item items[ITEMS];
    struct ckpt_saver *saver = NULL;
    struct ckpt_options options = { .attempt = "3.1",
                                    .stage = true,
                                    .timeout_s = TIMEOUT_S,
                                    .local_dir = world->local,
                                    .xor_group = group,
                                    .may_commit = remove_doomed,
                                    .record_arg = world->doomed };
    make_items(world, cut, items);
    TRY_OUT(ckpt_saver_create(world->comm, world->run, &options, items, ITEMS,
                              &saver));
    if (block != NULL)
        TRY_OUT(fsio_mkdirs(block));
    TRY_OUT(ranks_save(world->comm, saver, items, ITEMS, step, progress));
out:
    ckpt_saver_destroy(saver);
    fixture_free(items, ITEMS);
    return rc;
}

static inline bool saves(const struct world *world, int group, const int *cut,
                         int64_t step)
{
    struct ckpt_progress progress;
    return save(world, group, cut, step, NULL, &progress) == ERR_OK &&
           progress.phase == CKPT_COMMITTED;
}

/* The step that is loaded, from the nodes if *local; -2: an error or other
 * values. */
static inline int64_t loads(const struct world *world, bool *local)
{
    return ranks_load(world->comm, world->run, world->local, ITEMS,
                      world->ranks - 1 - world->rank, world->ranks, local);
}

static inline bool comes_back(const struct world *world, int64_t step)
{
    bool local;
    return loads(world, &local) == step && local;
}

/* Node `lost` loses its folder. */
static inline void lose(const struct world *world, int lost)
{
    comm_barrier(world->comm);
    if (world->rank == lost)
        fsio_remove_tree(world->local);
    comm_barrier(world->comm);
}

/* A step 0 of the run, to fall back to. */
static inline bool saves_run(const struct world *world)
{
    struct ckpt_item items[ITEMS];
    struct ckpt_options options = { .attempt = "1.1" };
    json_t *state = fixture_state(0);
    make_items(world, cuts[0], items);
    fixture_fill(items, ITEMS, 0);
    enum err rc = ckpt_save(world->comm, world->run, 0, state, items, ITEMS,
                            &options, NULL);
    json_decref(state);
    fixture_free(items, ITEMS);
    return rc == ERR_OK;
}

/* Run the tests of the program in a folder of their own. */
static inline int world_main(int argc, char **argv,
                             void (*run_tests)(struct world *world))
{
    bool named = become_node(true);
    struct world world = { .comm = ranks_begin(&argc, &argv) };
    char folder[FSIO_PATH_MAX] = "";
    world.rank = comm_rank(world.comm);
    world.ranks = comm_size(world.comm);
    need_nodes(world.comm, named && world.ranks <= RANKS_MAX);
    ranks_folder(world.comm, folder);
    fsio_path(world.run, "%s/run", folder);
    fsio_path(world.local, "%s/node%d", folder, world.rank);
    if (world.rank == 0)
        ckpt_index_uuid_write(world.run, "u-1");
    comm_barrier(world.comm);
    run_tests(&world);
    return ranks_end(world.comm);
}
