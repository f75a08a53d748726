/* What the tests of trainers on several ranks share: their world, a data set in
 * a folder of their own, and points that hold on every rank. */
#pragma once

#include "src/base/log.h"
#include "src/comm/comm.h"
#include "tests/data_fixture.h"
#include "tests/run_settings.h"

#define WORLD_SAMPLES_MAX 64

struct world {
    struct comm *comm;
    int rank, ranks;
    char folder[FSIO_PATH_MAX]; /* its data set is called "data" */
};

/* A point counts when it holds on every rank. */
static inline void everywhere(struct world *world, bool pass, const char *what)
{
    int64_t good = pass;
    if (!pass)
        fprintf(stderr, "# rank %d: %s: %s\n", world->rank, what, err_text());
    enum err rc = comm_all_reduce_i64(world->comm, &good, 1, COMM_MIN);
    tap_ok(rc == ERR_OK && good == 1, "%s", what);
}

static inline void world_make_data(struct world *world, int samples,
                                   int64_t seq_len)
{
    int64_t lengths[WORLD_SAMPLES_MAX];
    for (int i = 0; i < samples; i++)
        lengths[i] = seq_len;
    snprintf(world->folder, sizeof world->folder, "%s", tap_folder());
    fixture_dataset(world->folder, "data", lengths, samples, 1 << 20, false);
}

/* The whole of a main: `tests` on all ranks, over so many samples. */
static inline int world_main(int argc, char **argv, int samples,
                             int64_t seq_len, void (*tests)(struct world *))
{
    struct world world = { 0 };
    if (comm_create("auto", &argc, &argv, 60.0, &world.comm) != ERR_OK) {
        fprintf(stderr, "%s\n", err_text());
        return 1;
    }
    world.rank = comm_rank(world.comm);
    world.ranks = comm_size(world.comm);
    log_init("test", world.rank, LOG_ERROR);
    if (world.rank == 0)
        world_make_data(&world, samples, seq_len);
    else
        tap_silence();
    if (comm_broadcast(world.comm, world.folder, sizeof world.folder, 0) !=
        ERR_OK)
        return 1;
    tests(&world);
    comm_barrier(world.comm);
    comm_destroy(world.comm);
    return tap_done();
}
