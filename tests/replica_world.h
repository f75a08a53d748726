/* The ranks of a test of replicas, and the model that they are of. */
#pragma once

#include "kernels/kernels.h"
#include "src/comm/comm.h"
#include "src/model/params.h"
#include "src/parallel/replica.h"
#include "tests/tap.h"

struct world {
    struct comm *comm;
    struct comm *self;
    int rank, ranks;
    const struct kernels *kernels;
    const struct kernels *host; /* of what is compared with */
    struct kernel_ctx ctx;
    struct params *params;
    const struct replica_source *source; /* of what does not train */
    const float *frozen;                 /* what that is then */
    /* Of a device: run(argument) comes in the stream's order and finds a tensor
     * at reach(tensor). NULL: the host does. */
    void (*enqueue)(void *stream, bool (*run)(void *), void *argument);
    void *(*reach)(const void *tensor);
    int *wrong; /* blocks with other weights */
};

static inline void everywhere(const struct world *world, bool pass,
                              const char *what, const char *strategy)
{
    int64_t good = pass;
    enum err rc = comm_all_reduce_i64(world->comm, &good, 1, COMM_MIN);
    tap_ok(rc == ERR_OK && good == 1, "%s: %s", strategy, what);
    if (!pass)
        tap_note("rank %d: %s", world->rank, err_text());
}

/* One rank, in memory of the host. */
static inline struct world alone_in(const struct world *world)
{
    struct world alone = *world;
    alone.rank = 0;
    alone.ranks = 1;
    alone.kernels = world->host;
    alone.ctx.stream = NULL;
    alone.enqueue = NULL;
    alone.reach = NULL;
    return alone;
}

static inline void make_model(struct world *world, const char *preset,
                              int64_t layers, int64_t vocabulary)
{
    struct model_config config;
    bool pass = model_config_preset(preset, &config) == ERR_OK;
    config.d_model = 64;
    config.n_heads = 4;
    config.n_kv_heads = 4;
    config.ffn_width = 256;
    config.n_layers = layers;
    config.vocab_size = vocabulary;
    pass = pass && params_create(&config, &world->params) == ERR_OK;
    tap_ok(pass, "%s of %lld blocks, %lld tokens", preset, (long long)layers,
           (long long)vocabulary);
}

/* The world of all ranks; false: there is none. */
static inline bool open_world(struct world *world, int *argc, char ***argv)
{
    static int wrong;
    *world = (struct world){ .ctx = { .threads = 1 }, .wrong = &wrong };
    if (comm_create("auto", argc, argv, 60.0, &world->comm) != ERR_OK ||
        comm_create("self", NULL, NULL, 60.0, &world->self) != ERR_OK ||
        kernels_find("cpu", "generic", &world->kernels) != ERR_OK) {
        tap_ok(false, "create: %s", err_text());
        return false;
    }
    world->host = world->kernels;
    world->rank = comm_rank(world->comm);
    world->ranks = comm_size(world->comm);
    if (world->rank > 0)
        tap_silence();
    return true;
}

static inline int close_world(struct world *world)
{
    comm_destroy(world->self);
    comm_destroy(world->comm);
    return tap_done();
}
