/* What a replica sends over NCCL, by the messages that a fake library gets: same bits as
 * ddp on one rank, the bytes that the sums of src/parallel/DESIGN.md ask for, within nodes
 * and between them, whole sixteens of bytes, in groups of few messages. */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>

#include "src/comm/comm_tensors_impl.h"
#include "tests/deferred_kernels.h"
#include "tests/nccl_fake.h"
#include "tests/node_fixture.h"
#include "tests/replica_fixture.h"

#define SLOTS 4
#define LEAVES 2 /* of a slot, so each of 2 or 4 ranks has 4 or 2 */

enum err __real_comm_tensors_create(struct comm *comm,
                                    const struct kernel_memory *memory,
                                    void *stream, enum comm_exchange way,
                                    struct comm_tensors **out);
enum err __wrap_comm_tensors_create(struct comm *comm,
                                    const struct kernel_memory *memory,
                                    void *stream, enum comm_exchange way,
                                    struct comm_tensors **out);

/* The program's way to NCCL, by the fake. */
enum err __wrap_comm_tensors_create(struct comm *comm,
                                    const struct kernel_memory *memory,
                                    void *stream, enum comm_exchange way,
                                    struct comm_tensors **out)
{
    return way == EXCHANGE_NCCL
               ? comm_tensors_create_lent(comm, memory, stream, way,
                                          &nccl_fake_library, out)
               : __real_comm_tensors_create(comm, memory, stream, way, out);
}

void __real_clock_sleep(double seconds);
void __wrap_clock_sleep(double seconds);

static pthread_t host_thread;

/* A rank that waits for others' host has a device that goes on. */
void __wrap_clock_sleep(double seconds)
{
    if (pthread_equal(pthread_self(), host_thread))
        deferred_progress();
    __real_clock_sleep(seconds);
}

static const struct strategy strategies[] = {
    { "ddp", { .strategy = REPLICA_DDP } },
    { "zero1", { .strategy = REPLICA_ZERO1 } },
    { "zero2", { .strategy = REPLICA_ZERO2 } },
    { "zero3", { .strategy = REPLICA_ZERO3, .prefetch = 1 } },
    { "zero3, three ahead", { .strategy = REPLICA_ZERO3, .prefetch = 3 } },
    { "zero3 of 2, once",
      { .strategy = REPLICA_ZERO3,
        .shard_degree = 2,
        .prefetch = 1,
        .once = true } },
};

/* How often a batch sums gradients and brings weights together (ddp gradients), within
 * nodes and beyond: zero3 keeps what it can from forward to backward. */
struct times {
    int64_t sums_near, sums_far, gathers_near, gathers_far;
    bool flat, all_flat; /* each rank to each: sums, both */
    bool least;
};

static struct times times_of(const struct replica_options *o, int ranks,
                             int64_t microsteps)
{
    bool groups = o->shard_degree > 0 && o->shard_degree < ranks;
    bool zero3 = o->strategy == REPLICA_ZERO3;
    if (o->strategy < REPLICA_ZERO2)
        return (struct times){ .sums_near = 1,
                               .sums_far = 1,
                               .gathers_near = 1,
                               .gathers_far = 1,
                               .flat = true,
                               .all_flat = o->strategy == REPLICA_DDP };
    return (struct times){ .sums_near = microsteps,
                           .sums_far = groups ? 1 : microsteps,
                           .gathers_near = zero3 ? 2 * microsteps : 1,
                           .gathers_far = zero3 && !groups ? 2 * microsteps : 1,
                           .least = zero3 };
}

struct counts {
    int64_t near, far, unaligned, most;
};

static struct counts counted(const struct world *world)
{
    int node = node_number("TESSERA_TEST_NODE_RANKS", world->ranks);
    struct counts all = { 0 }, own = { .unaligned = nccl_fake.unaligned };
    int64_t most = nccl_fake.most;
    for (int r = 0; r < world->ranks; r++)
        *(r / node == world->rank / node ? &own.near : &own.far) +=
            nccl_fake.sent[r];
    MPI_Allreduce(&own, &all, 3, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&most, &all.most, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    return all;
}

/* What is sent, between what must be and, where `least`, gathers of all blocks. */
static bool fits(int64_t got, int64_t sums, int64_t gathers, int64_t times,
                 bool least)
{
    return got <= sums + times * gathers &&
           got >= sums + (least ? 1 : times) * gathers;
}

static void test_counts(struct world *device, const struct strategy *strategy,
                        enum dtype dtype)
{
    struct replica_options options = strategy->options;
    struct replica *replica = NULL;
    enum err rc = ERR_OK;
    double results[2];
    int64_t ranks = device->ranks;
    int64_t node = node_number("TESSERA_TEST_NODE_RANKS", device->ranks);
    int64_t sum = 4 * device->params->elements;
    int64_t gather =
        options.strategy == REPLICA_DDP
            ? sum
            : device->params->elements * (int64_t)dtype_bytes(dtype);
    options.exchange = EXCHANGE_NCCL;
    options.dtype = dtype;
    options.slots = SLOTS;
    options.leaves = LEAVES;
    options.exact = true;
    TRY_OUT(make(device, device->comm, &options, &replica));
    memset(nccl_fake.sent, 0, sizeof nccl_fake.sent);
    nccl_fake.unaligned = nccl_fake.most = 0;
    TRY_OUT(
        play_batch(device, replica, &options, NULL, 0, NEVER, NEVER, results));
out:;
    struct counts got = counted(device);
    struct times t =
        times_of(&options, device->ranks, replica_microsteps(replica));
    int64_t nodes = ranks / node, levels = (node - 1) * nodes;
    int64_t near = t.sums_near * sum * (t.flat ? node - 1 : levels);
    int64_t far = t.sums_far * sum * (t.flat ? ranks - node : nodes - 1);
    int64_t out = t.all_flat ? node - 1 : levels;
    int64_t beyond = t.all_flat ? ranks - node : nodes - 1;
    tap_note("%s, %s: %lld and %lld bytes, %lld unaligned, %lld a group",
             strategy->name, dtype_name(dtype), (long long)got.near,
             (long long)got.far, (long long)got.unaligned, (long long)got.most);
    everywhere(
        device,
        rc == ERR_OK &&
            fits(got.near, near, gather * out, t.gathers_near, t.least) &&
            fits(got.far, far, gather * beyond, t.gathers_far, t.least),
        "sends what must travel", strategy->name);
    int ahead = options.prefetch > 1 ? (int)options.prefetch : 1;
    everywhere(device,
               got.unaligned == 0 && got.most <= 2 * (ranks - 1) * ahead,
               "in sixteens of bytes, few messages a group", strategy->name);
    replica_destroy(replica);
}

static void test_all(struct world *device, enum dtype dtype)
{
    for (int i = 0; i < (int)(sizeof strategies / sizeof *strategies); i++) {
        struct strategy strategy = strategies[i];
        strategy.options.dtype = dtype;
        strategy.options.optimizer = optimizer_at(0);
        strategy.options.exchange = EXCHANGE_NCCL;
        if (replica_check(&strategy.options, device->ranks) != ERR_OK)
            continue;
        test_bits(device, &strategy, SLOTS, LEAVES, false);
        test_counts(device, &strategy, dtype);
    }
}

int main(int argc, char **argv)
{
    struct world host, device;
    host_thread = pthread_self();
    node_pairs();
    if (!open_world(&host, &argc, &argv))
        return tap_done();
    make_model(&host, "mpt-tiny", 3, 300);
    tap_ok(open_device(&host, &device), "a device");
    tap_ok(comm_duplicate(host.comm, &nccl_fake.comm) == ERR_OK, "messages");
    test_all(&device, DTYPE_F32);
    test_all(&device, DTYPE_BF16);
    everywhere(&host, nccl_fake.alive == 0 && !nccl_fake.misused, "nccl",
               "was used well");
    comm_destroy(nccl_fake.comm);
    deferred_memory.stream_destroy(device.ctx.stream);
    params_destroy(host.params);
    return close_world(&host);
}
