/* Messages of tensors of any number of ranks, by every way: staged on a device
 * without hardware, nccl by a fake library. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/deferred_memory.h"
#include "tests/nccl_fake.h"
#include "tests/tensors_bench.h"

static void test_ring(struct bench *b, size_t bytes, const char *what)
{
    int rank = comm_rank(b->comm), size = comm_size(b->comm);
    int before = (rank + size - 1) % size;
    struct comm_tensors_request *request;
    begin(b);
    char *out = tensor(b, bytes), *in = tensor(b, bytes);
    put(b, in, bytes, 99);
    put(b, out, bytes, (unsigned)rank);
    note(b, comm_tensors_start_exchange(b->tensors, (rank + 1) % size, out,
                                        bytes, before, in, bytes, 7, &request));
    wait_for(b, request);
    put(b, out, bytes, 98);
    look(b, in, bytes, (unsigned)before);
    end(b, what);
}

/* From rank 0 to the last one, each with one byte more; twice, because the last
 * one does nothing but receive, as early as it can. */
static void test_chain(struct bench *b)
{
    int rank = comm_rank(b->comm), size = comm_size(b->comm);
    size_t out = rank + 1 < size ? 1000 + (size_t)rank : 0;
    size_t in = rank > 0 ? 1000 + (size_t)rank - 1 : 0;
    struct comm_tensors_request *request;
    char *to[2];
    begin(b);
    for (unsigned turn = 0; turn < 2; turn++) {
        char *from = tensor(b, out);
        to[turn] = tensor(b, in);
        put(b, from, out, (unsigned)rank + turn);
        put(b, to[turn], in, 99);
        note(b, comm_tensors_start_exchange(b->tensors, out > 0 ? rank + 1 : -1,
                                            from, out, in > 0 ? rank - 1 : -1,
                                            to[turn], in, 0, &request));
        wait_for(b, request);
    }
    for (unsigned turn = 0; turn < 2; turn++)
        look(b, to[turn], in, (unsigned)rank - 1 + turn);
    end(b, "a chain, whose ends only send or receive");
}

static void look_gathered(struct bench *b, int turn, const char *data)
{
    int size = comm_size(b->comm);
    for (int r = 0; r < size; r++)
        look(b, data + (size_t)(size - 1 - r) * 200 + 3, share(r, turn),
             (unsigned)(r + turn));
}

/* Bytes from one rank to another. */
static size_t mail(int from, int to, int turn)
{
    return (size_t)((from + 2 * to + turn) % 5) * 21;
}

static struct comm_tensors_request *all_to_all(struct bench *b, int turn,
                                               char **recv)
{
    struct comm *comm = comm_tensors_comm(b->tensors);
    size_t *sizes[4];
    struct comm_tensors_request *request;
    int size = comm_size(comm), rank = comm_rank(comm);
    char *send = tensor(b, (size_t)size * 100);
    *recv = tensor(b, (size_t)size * 100);
    for (int i = 0; i < 4; i++)
        sizes[i] = comm_sizes(comm, i);
    for (int r = 0; r < size; r++) {
        sizes[0][r] = mail(rank, r, turn);
        sizes[1][r] = (size_t)r * 100;
        sizes[2][r] = mail(r, rank, turn);
        sizes[3][r] = (size_t)(size - 1 - r) * 100 + 1;
        put(b, send + r * 100, sizes[0][r], (unsigned)(10 * rank + r + turn));
    }
    note(b, comm_tensors_start_all_to_all(b->tensors, send, sizes[0], sizes[1],
                                          *recv, sizes[2], sizes[3], &request));
    for (int i = 0; i < 4; i++)
        memset(sizes[i], 0xff, (size_t)size * sizeof *sizes[i]);
    return request;
}

static void look_mail(struct bench *b, int turn, const char *recv)
{
    int size = comm_size(b->comm), rank = comm_rank(b->comm);
    for (int r = 0; r < size; r++)
        look(b, recv + (size_t)(size - 1 - r) * 100 + 1, mail(r, rank, turn),
             (unsigned)(10 * r + rank + turn));
}

static void test_collectives(struct bench *b)
{
    char *data;
    for (int turn = 0; turn < 3; turn++) {
        begin(b);
        wait_for(b, gather(b, turn, &data));
        look_gathered(b, turn, data);
        end(b, "all-gather, uneven, some parts empty");
        begin(b);
        wait_for(b, all_to_all(b, turn, &data));
        look_mail(b, turn, data);
        end(b, "all-to-all, uneven, some parts empty");
    }
}

/* Operations of all kinds at once; each rank looks after them and waits for
 * them in an order of its own. */
static void test_many(struct bench *b, unsigned seed)
{
    enum { COUNT = 18 };
    struct comm_tensors_request *requests[COUNT];
    char *data[COUNT];
    int rank = comm_rank(b->comm), size = comm_size(b->comm), left = COUNT;
    int before = (rank + size - 1) % size;
    unsigned chance = seed * 7919 + (unsigned)rank;
    begin(b);
    for (int i = 0; i < COUNT; i++) {
        if (i % 3 == 0) {
            requests[i] = gather(b, i, &data[i]);
        } else if (i % 3 == 1) {
            requests[i] = all_to_all(b, i, &data[i]);
        } else {
            char *out = tensor(b, (size_t)i * 1000);
            data[i] = tensor(b, (size_t)i * 1000);
            put(b, out, (size_t)i * 1000, (unsigned)(i + rank));
            note(b, comm_tensors_start_exchange(
                        b->tensors, (rank + 1) % size, out, (size_t)i * 1000,
                        before, data[i], (size_t)i * 1000, i, &requests[i]));
        }
    }
    while (left > 0 && b->rc == ERR_OK) {
        chance = chance * 1103515245 + 12345;
        int i = (int)((chance >> 8) % COUNT);
        if (requests[i] == NULL ||
            ((chance >> 20) % 4 != 0 && !comm_tensors_test(requests[i])))
            continue;
        wait_for(b, requests[i]);
        requests[i] = NULL;
        left--;
        if (i % 3 == 0)
            look_gathered(b, i, data[i]);
        else if (i % 3 == 1)
            look_mail(b, i, data[i]);
        else
            look(b, data[i], (size_t)i * 1000, (unsigned)(i + before));
    }
    end(b, "many at once, in any order");
}

/* One more than there is room for is refused, and the others come to an end. */
static void test_full(struct bench *b)
{
    struct comm_tensors_request *requests[COMM_TENSORS_REQUESTS], *more;
    begin(b);
    for (int i = 0; i < COMM_TENSORS_REQUESTS; i++)
        note(b, comm_tensors_start_exchange(b->tensors, -1, NULL, 0, -1, NULL,
                                            0, 0, &requests[i]));
    enum err rc = comm_tensors_start_exchange(b->tensors, -1, NULL, 0, -1, NULL,
                                              0, 0, &more);
    if (rc != ERR_INTERNAL || more != NULL)
        b->rc = ERR_INTERNAL;
    for (int i = 0; i < COMM_TENSORS_REQUESTS; i++)
        wait_for(b, requests[i]);
    end(b, "too many at once are refused");
}

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
                     const char *way, const char *want)
{
    struct bench b = { .comm = comm, .memory = memory };
    if (memory->stream_create(false, &b.stream) != ERR_OK ||
        memory->tensors_create(ROOM, &b.device) != ERR_OK ||
        memory->host_create(ROOM, &b.host) != ERR_OK) {
        tap_ok(false, "%s: %s", way, err_text());
        return;
    }
    enum err rc = comm_tensors_create_lent(comm, memory, b.stream, way,
                                           &nccl_fake_library, &b.tensors);
    everywhere(comm,
               rc == ERR_OK && strcmp(comm_tensors_way(b.tensors), want) == 0 &&
                   comm_size(comm_tensors_comm(b.tensors)) == comm_size(comm),
               way, want);
    if (rc != ERR_OK) {
        tap_note("%s", err_text());
        return;
    }
    test_ring(&b, 0, "ring of empty messages");
    test_ring(&b, 1, "ring of one byte");
    test_ring(&b, 100000, "ring of 100 kB");
    test_ring(&b, (size_t)5 << 20, "ring of 5 MiB");
    test_chain(&b);
    test_collectives(&b);
    for (unsigned seed = 0; seed < 3; seed++)
        test_many(&b, seed);
    test_full(&b);
    test_steps(&b);
    comm_tensors_destroy(b.tensors);
    everywhere(comm, deferred.lost == 0, want, "nothing is left undone");
    memory->host_destroy(&b.host);
    memory->tensors_destroy(&b.device);
    memory->stream_destroy(b.stream);
}

static void test_refused(struct comm *comm)
{
    static const struct {
        bool device;
        const char *way;
        enum err rc;
        const char *text;
    } cases[] = {
        { false, "pigeon", ERR_USAGE, "exchange 'pigeon' is unknown" },
        { true, "direct", ERR_UNSUPPORTED, "in the device's memory" },
        { false, "staged", ERR_UNSUPPORTED, "in the host's memory" },
        { false, "nccl", ERR_UNSUPPORTED, "in the host's memory" },
        { true, "nccl", ERR_UNSUPPORTED, "does not know this device" },
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
                   cases[i].way, "is refused");
    }
}

static void test_nccl(struct comm *comm)
{
    static const char *const names[] = { "01", "02", "03", "04" };
    struct kernel_memory unknown = deferred_memory;
    if (comm_duplicate(comm, &nccl_fake.comm) != ERR_OK) {
        tap_ok(false, "%s", err_text());
        return;
    }
    deferred.name = names[0];
    test_way(comm, &deferred_memory, "auto", "staged");
    deferred.name = names[comm_rank(comm) % 4];
    unknown.identify = NULL;
    test_way(comm, &unknown, "auto", "staged");
    for (int i = 0; i < 6; i++) {
        deferred.eager = (enum deferred_eager)(i % 3);
        nccl_fake.busy = i < 3 ? 0 : 3;
        test_way(comm, &deferred_memory,
                 i == 0 && comm_size(comm) > 1 ? "auto" : "nccl", "nccl");
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
    test_way(comm, &kernel_memory_cpu, "auto", "direct");
    for (int i = 0; i < 3; i++) {
        deferred.eager = (enum deferred_eager)i;
        test_way(comm, &deferred_memory, "staged", "staged");
    }
    test_nccl(comm);
    comm_destroy(comm);
    return tap_done();
}
