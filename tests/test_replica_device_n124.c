/* Replicas on a device that the host cannot reach and whose work comes late,
 * and with bf16 weights there and on a host: every strategy has the masters,
 * moments and norms of ddp on one rank in fp32, bit for bit, and on every rank
 * each bf16 weight is its master rounded. */
#include "tests/deferred_kernels.h"
#include "tests/node_fixture.h"
#include "tests/replica_fixture.h"

static const struct strategy strategies[] = {
    { "ddp", { .strategy = REPLICA_DDP } },
    { "zero1", { .strategy = REPLICA_ZERO1 } },
    { "zero2", { .strategy = REPLICA_ZERO2 } },
    { "zero3", { .strategy = REPLICA_ZERO3, .prefetch = 1 } },
    { "zero3, three ahead", { .strategy = REPLICA_ZERO3, .prefetch = 3 } },
    { "zero3 of 1", { .strategy = REPLICA_ZERO3, .shard_degree = 1 } },
    { "zero3 of 2",
      { .strategy = REPLICA_ZERO3, .shard_degree = 2, .prefetch = 1 } },
    { "zero3 of 2, once",
      { .strategy = REPLICA_ZERO3, .shard_degree = 2, .once = true } },
    { "zero3 of 2, once, chunks",
      { .strategy = REPLICA_ZERO3,
        .shard_degree = 2,
        .sequence_chunks = 4,
        .sequence_degree = 2,
        .once = true } },
    { "zero2, chunks",
      { .strategy = REPLICA_ZERO2,
        .sequence_chunks = 2,
        .sequence_degree = 2 } },
};
#define STRATEGIES (int)(sizeof strategies / sizeof *strategies)

static void test_strategies(struct world *world, enum dtype dtype,
                            const struct optimizer_ops *optimizer)
{
    for (int i = 0; i < STRATEGIES; i++) {
        struct strategy strategy = strategies[i];
        if (replica_check(&strategy.options, world->ranks) != ERR_OK)
            continue;
        strategy.options.dtype = dtype;
        strategy.options.optimizer = optimizer;
        strategy.options.exchange =
            world->kernels->memory->device ? EXCHANGE_STAGED : EXCHANGE_AUTO;
        tap_note("%s, %s, %s", world->kernels->backend, dtype_name(dtype),
                 optimizer->name);
        test_bits(world, &strategy, 5, 2, false);
        if (strategy.options.once)
            test_bits(world, &strategy, 8, 2, dtype == DTYPE_F32);
        if (dtype == DTYPE_F32)
            test_bits(world, &strategy, 4, 1, true);
    }
}

/* The items of one replica get the values of another's, which has them all and
 * lies in memory of the host. */
static enum err load(const struct world *world, struct replica *from,
                     struct replica *to)
{
    int count;
    const struct kernel_memory *memory = world->kernels->memory;
    const struct ckpt_item *all = replica_items(from, &count);
    const struct ckpt_item *own = replica_items(to, &count);
    for (int i = 0; i < count; i++) {
        int64_t n = own[i].part.end - own[i].part.begin;
        if (n > 0)
            TRY(memory->upload(world->ctx.stream, (size_t)n * sizeof(float),
                               (const float *)all[i].data + own[i].part.begin,
                               own[i].data));
    }
    return replica_loaded(to);
}

/* A state of fp32 weights goes on with bf16 ones, and the other way. */
static void test_load(struct world *world, const struct strategy *strategy,
                      enum dtype from, enum dtype to)
{
    enum err rc = ERR_OK;
    struct world alone = alone_in(world);
    struct replica_options one = {
        .strategy = REPLICA_DDP, .dtype = from, .slots = 4, .leaves = 1
    };
    struct replica_options options = strategy->options;
    struct replica *whole = NULL, *replica = NULL;
    int64_t elements = 0;
    double want[2] = { 0 }, got[2] = { 1 };
    one.exact = true;
    options.dtype = to;
    options.slots = one.slots;
    options.leaves = options.sequence_chunks > 1 ? options.sequence_chunks : 1;
    one.leaves = options.leaves;
    options.exact = true;
    options.exchange =
        world->kernels->memory->device ? EXCHANGE_STAGED : EXCHANGE_AUTO;
    *world->wrong = 0;
    if (replica_check(&options, world->ranks) != ERR_OK)
        return;
    TRY_OUT(make(&alone, world->self, &one, &whole));
    TRY_OUT(play_batch(&alone, whole, &one, NULL, 0, NEVER, NEVER, want));
    TRY_OUT(make(world, world->comm, &options, &replica));
    TRY_OUT(load(world, whole, replica));
    TRY_OUT(play_batch(world, replica, &options, NULL, 1, NEVER, NEVER, got));
    TRY_OUT(play_batch(&alone, whole, &one, NULL, 1, NEVER, NEVER, want));
out:
    tap_note("from %s to %s, %s", dtype_name(from), dtype_name(to),
             world->kernels->backend);
    everywhere(world,
               rc == ERR_OK && memcmp(want, got, sizeof want) == 0 &&
                   same_state(world, replica, whole, &elements),
               "goes on with other weights", strategy->name);
    replica_destroy(replica);
    replica_destroy(whole);
}

static void test_loads(struct world *world)
{
    for (int i = 0; i < STRATEGIES; i++) {
        test_load(world, &strategies[i], DTYPE_F32, DTYPE_BF16);
        test_load(world, &strategies[i], DTYPE_BF16, DTYPE_F32);
        test_load(world, &strategies[i], DTYPE_BF16, DTYPE_BF16);
    }
}

/* Gradients that are rounded on their way: the host's norm. */
static void test_rounded(struct world *host, struct world *device)
{
    struct world *worlds[] = { host, device };
    enum err rc = ERR_OK;
    struct replica *replica = NULL;
    double results[2][2] = { { 0 }, { 1 } };
    struct replica_options options = { .strategy = REPLICA_ZERO3,
                                       .prefetch = 1,
                                       .reduce_bf16 = true,
                                       .slots = 4,
                                       .leaves = 2 };
    for (int i = 0; i < 2; i++) {
        options.exchange = i == 1 ? EXCHANGE_STAGED : EXCHANGE_AUTO;
        TRY_OUT(make(worlds[i], host->comm, &options, &replica));
        TRY_OUT(play_batch(worlds[i], replica, &options, NULL, 0, NEVER, NEVER,
                           results[i]));
        replica_destroy(replica);
        replica = NULL;
    }
out:
    everywhere(host,
               rc == ERR_OK &&
                   memcmp(results[0], results[1], sizeof results[0]) == 0,
               "bf16 gradients: the norm of the host", "deferred");
    replica_destroy(replica);
}

/* What bf16 weights and Lion take. */
static void test_plan(const struct world *world)
{
    struct replica_options options = { .strategy = REPLICA_ZERO1,
                                       .slots = 4,
                                       .leaves = 1 };
    struct replica_bytes wide, half, lion;
    tap_ok(replica_plan(world->params, 2, &options, &wide) == ERR_OK, "a plan");
    options.dtype = DTYPE_BF16;
    tap_ok(replica_plan(world->params, 2, &options, &half) == ERR_OK, "bf16");
    options.optimizer = optimizer_at(1);
    tap_ok(replica_plan(world->params, 2, &options, &lion) == ERR_OK, "lion");
    tap_is_int((int64_t)wide.master, 0, "fp32 weights have no masters");
    tap_is_int(2 * (int64_t)half.weights, (int64_t)wide.weights,
               "bf16 weights are half as many bytes");
    tap_is_int(2 * (int64_t)half.master, (int64_t)half.moments,
               "masters as much as one moment");
    tap_is_int(2 * (int64_t)lion.moments, (int64_t)half.moments,
               "lion: one moment");
    tap_is_int((int64_t)(half.total - lion.total),
               (int64_t)(half.moments - lion.moments + half.items - lion.items),
               "and all else is the same");
    tap_ok(half.staging > lion.staging, "one moment less is saved");
}

/* What works in the host's memory is refused on a device. */
static void test_whole(struct world *device)
{
    struct replica *replica = NULL;
    struct replica_options options = { .strategy = REPLICA_ZERO1,
                                       .slots = 4,
                                       .leaves = 1,
                                       .exchange = EXCHANGE_STAGED };
    int last = 0;
    while (optimizer_at(last + 1) != NULL)
        last++;
    options.optimizer = optimizer_at(last);
    enum err rc = replica_create(device->comm, device->kernels, &device->ctx,
                                 device->params, &options, &replica);
    everywhere(device,
               rc == ERR_USAGE &&
                   strstr(err_text(), options.optimizer->name) != NULL,
               "is refused on a device", options.optimizer->name);
    replica_destroy(replica);
}

int main(int argc, char **argv)
{
    struct world host, device;
    node_pairs();
    if (!open_world(&host, &argc, &argv))
        return tap_done();
    make_model(&host, "mpt-tiny", 3, 300);
    test_plan(&host);
    tap_ok(open_device(&host, &device), "a device");
    test_strategies(&host, DTYPE_BF16, optimizer_at(0));
    for (int i = 1; optimizer_at(i) != NULL; i++)
        if (!optimizer_at(i)->whole_tensors)
            test_strategies(&host, DTYPE_F32, optimizer_at(i));
    test_loads(&host);
    test_strategies(&device, DTYPE_F32, optimizer_at(0));
    test_strategies(&device, DTYPE_BF16, optimizer_at(0));
    test_loads(&device);
    test_rounded(&host, &device);
    deferred.eager = true;
    for (int i = 1; optimizer_at(i) != NULL; i++)
        if (!optimizer_at(i)->whole_tensors)
            test_strategies(&device, DTYPE_BF16, optimizer_at(i));
    test_whole(&device);
    deferred_memory.stream_destroy(device.ctx.stream);
    params_destroy(host.params);
    return close_world(&host);
}
