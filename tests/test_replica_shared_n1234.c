/* Ranks that compute together, where a rank has several chunks of sequences or
 * some of the experts only, have the bits of one rank: gradients, norm,
 * weights, moments. */

#include "tests/replica_fixture.h"

/* Pages of arenas, communicators of groups and what the library keeps. */
#define MEMORY_SLACK ((int64_t)6 << 20)

static const struct strategy chunked[] = {
    { "zero2, 2 chunks", { .strategy = REPLICA_ZERO2, .sequence_chunks = 2 } },
    { "zero3, 3 chunks",
      { .strategy = REPLICA_ZERO3, .prefetch = 1, .sequence_chunks = 3 } },
    { "zero2, 12 chunks",
      { .strategy = REPLICA_ZERO2, .sequence_chunks = 12 } },
    { "zero2, 2 chunks on 2",
      { .strategy = REPLICA_ZERO2,
        .sequence_chunks = 2,
        .sequence_degree = 2 } },
    { "zero3, 4 chunks on 2",
      { .strategy = REPLICA_ZERO3,
        .prefetch = 1,
        .sequence_chunks = 4,
        .sequence_degree = 2 } },
    { "zero3 of 2, 8 chunks on 4",
      { .strategy = REPLICA_ZERO3,
        .shard_degree = 2,
        .sequence_chunks = 8,
        .sequence_degree = 4 } },
};

static const struct strategy apart[] = {
    { "zero2, experts of 2",
      { .strategy = REPLICA_ZERO2, .expert_degree = 2 } },
    { "zero2, experts of 4",
      { .strategy = REPLICA_ZERO2, .expert_degree = 4 } },
    { "zero3, experts of 2",
      { .strategy = REPLICA_ZERO3, .prefetch = 1, .expert_degree = 2 } },
    { "zero3 of 1, experts of 2",
      { .strategy = REPLICA_ZERO3, .shard_degree = 1, .expert_degree = 2 } },
    { "zero3 of 2, experts of 4",
      { .strategy = REPLICA_ZERO3,
        .shard_degree = 2,
        .prefetch = 2,
        .expert_degree = 4 } },
};

/* Sums of several leaves per rank and of experts apart. */
static void test_shared(struct world *world, const char *preset,
                        const struct strategy *list, int count)
{
    make_model(world, preset, 2, 1000);
    for (int s = 0; s < count; s++) {
        if (replica_check(&list[s].options, world->ranks) != ERR_OK)
            continue;
        test_bits(world, &list[s], 5, 1, false); /* a ragged last microstep */
        test_bits(world, &list[s], 3, 3, false);
        test_bits(world, &list[s], 4, 2, true);
    }
    params_destroy(world->params);
    world->params = NULL;
}

/* Foreign experts take no memory, and chunks no more for what is received than
 * their rounding. */
static void test_shared_plan(struct world *world)
{
    struct replica_options options = {
        .strategy = REPLICA_ZERO2, .slots = 8, .leaves = 4, .exact = true
    };
    struct replica_bytes whole, bytes;
    int64_t experts = 0;
    make_model(world, "moe-tiny", 2, 1000);
    for (int b = 0; b < world->params->block_count; b++)
        if (world->params->blocks[b].kind == PARAM_BLOCK_EXPERTS)
            experts += world->params->blocks[b].elements;
    bool pass = replica_plan(world->params, 4, &options, &whole) == ERR_OK;
    options.expert_degree = 4;
    pass = pass && replica_plan(world->params, 4, &options, &bytes) == ERR_OK;
    tap_is_int((int64_t)(whole.weights - bytes.weights), experts / 4 * 3 * 4,
               "of 4 ranks each has a quarter of the experts");
    tap_ok(pass && whole.total - bytes.total == whole.weights - bytes.weights,
           "and nothing else of it is larger or smaller");
    options.expert_degree = 1;
    options.sequence_chunks = 4;
    pass = replica_plan(world->params, 4, &options, &bytes) == ERR_OK;
    tap_is_int((int64_t)bytes.gradients, (int64_t)whole.gradients * 4,
               "4 chunks: 4 gradients of the blocks at work");
    tap_ok(pass && bytes.exchange < whole.exchange + 4096,
           "received is as much as without");
    options.sequence_chunks = 0;
    options.expert_degree = 3;
    tap_ok(replica_plan(world->params, 3, &options, &bytes) == ERR_USAGE &&
               strstr(err_text(), "8 experts") != NULL,
           "8 experts on 3: %s", err_text());
    params_destroy(world->params);
    struct model_config config;
    bool made = model_config_preset("moe-tiny", &config) == ERR_OK;
    config.ffn_width = 96;
    tap_ok(made && params_create(&config, &world->params) == ERR_OK,
           "smaller experts");
    options.expert_degree = 8;
    tap_ok(replica_plan(world->params, 8, &options, &bytes) == ERR_USAGE &&
               strstr(err_text(), "no multiple of 16384") != NULL,
           "an expert that is no whole number of chunks: %s", err_text());
    params_destroy(world->params);
    world->params = NULL;
}

/* Bytes of this process that are in memory. */
static int64_t resident(void)
{
    long long size = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL || fscanf(file, "%lld %lld", &size, &pages) != 2)
        pages = 0;
    if (file != NULL)
        fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

/* What a replica takes is what was planned, on the rank that needs most. */
static void test_memory(struct world *world, const struct strategy *strategy)
{
    struct replica_options options = strategy->options;
    struct replica_bytes bytes = { 0 };
    struct replica *replica = NULL;
    options.slots = 4;
    options.leaves = 24;
    options.exact = true;
    if (replica_check(&options, world->ranks) != ERR_OK)
        return;
    make_model(world, "moe-tiny", 24, 1000);
    enum err rc = replica_plan(world->params, world->ranks, &options, &bytes);
    int64_t before = resident();
    if (rc == ERR_OK)
        rc = make(world, world->comm, &options, &replica);
    int64_t taken = resident() - before;
    int64_t more = taken - (int64_t)bytes.total;
    tap_note("planned %zu KiB, taken %lld KiB", bytes.total >> 10,
             (long long)taken >> 10);
    everywhere(world,
               rc == ERR_OK && more < MEMORY_SLACK &&
                   (more > -MEMORY_SLACK || world->rank + 1 < world->ranks),
               "memory as planned", strategy->name);
    replica_destroy(replica);
    params_destroy(world->params);
    world->params = NULL;
}

int main(int argc, char **argv)
{
    struct world world;
    if (!open_world(&world, &argc, &argv))
        return tap_done();
    test_shared(&world, "mpt-tiny", chunked, sizeof chunked / sizeof *chunked);
    test_shared(&world, "moe-tiny", apart, sizeof apart / sizeof *apart);
    test_shared_plan(&world);
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
        test_memory(&world, &apart[i]);
    test_memory(&world, &chunked[0]);
    test_memory(&world, &chunked[4]);
    return close_world(&world);
}
