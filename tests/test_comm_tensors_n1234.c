/* Messages of tensors of any number of ranks, by every way: staged on a device
 * without hardware, nccl by a fake library. */

#include "tests/deferred_memory.h"
#include "tests/nccl_fake.h"
#include "tests/tensors_cases.h"

/* Staging memory grows in the first steps only. */
static void test_steps(struct bench *b)
{
    int creates = 0;
    for (int step = 0; step < 6; step++) {
        if (step == 3)
            creates = deferred.host_creates;
        test_many(b, 7);
    }
    everywhere(b->comm, deferred.host_creates == creates,
               comm_tensors_way(b->tensors), "later steps allocate nothing");
}

static void test_way(struct comm *comm, const struct kernel_memory *memory,
                     enum comm_exchange way, const char *want)
{
    struct bench b = { .comm = comm, .memory = memory };
    enum err rc = bench_open(&b, way, &nccl_fake_library);
    everywhere(comm,
               rc == ERR_OK && strcmp(comm_tensors_way(b.tensors), want) == 0 &&
                   comm_size(comm_tensors_comm(b.tensors)) == comm_size(comm),
               way_name(way), want);
    if (rc != ERR_OK) {
        tap_note("%s", err_text());
        return;
    }
    test_cases(&b);
    test_steps(&b);
    bench_close(&b);
    everywhere(comm, deferred.lost == 0, want, "nothing is left undone");
}

static void test_refused(struct comm *comm)
{
    static const struct {
        bool device;
        enum comm_exchange way;
        enum err rc;
        const char *text;
    } cases[] = {
        { true, EXCHANGE_DIRECT, ERR_UNSUPPORTED, "in the device's memory" },
        { false, EXCHANGE_STAGED, ERR_UNSUPPORTED, "in the host's memory" },
        { false, EXCHANGE_NCCL, ERR_UNSUPPORTED, "in the host's memory" },
        { true, EXCHANGE_NCCL, ERR_UNSUPPORTED, "does not know this device" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kernel_memory memory = kernel_memory_cpu; /* no identify */
        struct comm_tensors *tensors;
        memory.device = cases[i].device;
        enum err rc =
            comm_tensors_create(comm, &memory, NULL, cases[i].way, &tensors);
        everywhere(comm,
                   rc == cases[i].rc && tensors == NULL &&
                       strstr(err_text(), cases[i].text) != NULL,
                   way_name(cases[i].way), "is refused");
    }
}

/* One rank lacks NCCL: all know which, and where, and why; nobody goes another
 * way unless that was allowed. */
static void test_without(struct comm *comm, const struct kernel_memory *memory,
                         int lacks, const char *why)
{
    struct bench b = { .comm = comm, .memory = memory };
    char who[128];
    snprintf(who, sizeof who, "rank %d (%s): ", lacks, comm_host(comm, lacks));
    enum err rc = bench_open(&b, EXCHANGE_AUTO, &nccl_fake_library);
    bool told = rc == ERR_UNSUPPORTED && b.tensors == NULL &&
                strstr(err_text(), who) != NULL &&
                strstr(err_text(), why) != NULL &&
                strstr(err_text(), "parallel.exchange") != NULL;
    if (!told)
        tap_note("%s: %s", err_name(rc), err_text());
    everywhere(comm, told, "auto", why);
    bench_close(&b);
    test_way(comm, memory, EXCHANGE_ANY, "staged");
}

static void test_label(struct comm *comm, enum comm_exchange way,
                       const char *want)
{
    struct bench b = { .comm = comm, .memory = &deferred_memory };
    char label[32] = "";
    if (bench_open(&b, way, &nccl_fake_library) == ERR_OK)
        comm_tensors_label(b.tensors, label, sizeof label);
    everywhere(comm, strcmp(label, comm_size(comm) > 1 ? want : "none") == 0,
               way_name(way), label);
    bench_close(&b);
}

static void test_nccl(struct comm *comm)
{
    static const char *const names[] = { "01", "02", "03", "04" };
    struct kernel_memory unknown = deferred_memory;
    if (comm_duplicate(comm, &nccl_fake.comm) != ERR_OK) {
        tap_ok(false, "%s", err_text());
        return;
    }
    int last = comm_size(comm) - 1;
    if (last > 0) {
        int rank = comm_rank(comm);
        deferred.name = names[rank == last ? 0 : rank % 4];
        test_without(comm, &deferred_memory, last,
                     "GPU 01 is shared with rank 0");
        deferred.name = names[rank % 4];
        unknown.identify = rank == 0 ? NULL : deferred_memory.identify;
        test_without(comm, &unknown, 0, "does not know this device");
    }
    deferred.name = names[comm_rank(comm) % 4];
    test_label(comm, EXCHANGE_NCCL, "nccl 2.28.9");
    test_label(comm, EXCHANGE_STAGED, "staged");
    for (int i = 0; i < 6; i++) {
        deferred.eager = (enum deferred_eager)(i % 3);
        nccl_fake.busy = i < 3 ? 0 : 3;
        test_way(comm, &deferred_memory,
                 i == 0 && comm_size(comm) > 1 ? EXCHANGE_AUTO : EXCHANGE_NCCL,
                 "nccl");
    }
    everywhere(comm,
               nccl_fake.alive == 0 && nccl_fake.aborts == 0 &&
                   !nccl_fake.misused,
               "nccl", "was used well");
    comm_destroy(nccl_fake.comm);
}

int main(int argc, char **argv)
{
    struct comm *comm;
    if (comm_create("auto", &argc, &argv, 60.0, &comm) != ERR_OK) {
        tap_ok(false, "create: %s", err_text());
        return tap_done();
    }
    if (comm_rank(comm) > 0)
        tap_silence();
    test_refused(comm);
    test_way(comm, &kernel_memory_cpu, EXCHANGE_AUTO, "direct");
    for (int i = 0; i < 3; i++) {
        deferred.eager = (enum deferred_eager)i;
        test_way(comm, &deferred_memory, EXCHANGE_STAGED, "staged");
    }
    test_nccl(comm);
    comm_destroy(comm);
    return tap_done();
}
