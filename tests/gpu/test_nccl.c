/* test_nccl: tensors between GPUs by the real NCCL, a GPU for each rank (start
 * it with tests/mpirun), and the rates of what a step does, to be read beside
 * those of nccl-tests (bus bandwidth) and a step's time. */

#include "kernels/kernels.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "tests/tensors_cases.h"

#define TURNS 20
#define LARGEST ((size_t)256 << 20)

struct rates {
    struct comm *comm;
    const struct kernel_memory *memory;
    struct comm_tensors *tensors;
    char *send, *recv;
};

enum operation { EXCHANGE, ALL_GATHER, ALL_TO_ALL, OPERATIONS };

static const char *const names[] = { "exchange", "all-gather", "all-to-all" };

/* Of `bytes` in all, equal parts. */
static enum err start(const struct rates *r, enum operation operation,
                      size_t bytes, struct comm_tensors_request **request)
{
    struct comm *comm = comm_tensors_comm(r->tensors);
    int size = comm_size(comm), rank = comm_rank(comm);
    size_t *sizes = comm_sizes(comm, 0), *offsets = comm_sizes(comm, 1);
    size_t *others = comm_sizes(comm, 2), *places = comm_sizes(comm, 3);
    size_t part = bytes / (size_t)size;
    for (int i = 0; i < size; i++) {
        sizes[i] = others[i] = part;
        offsets[i] = places[i] = (size_t)i * part;
    }
    switch (operation) {
    case EXCHANGE:
        return comm_tensors_start_exchange(
            r->tensors, (rank + 1) % size, r->send, bytes,
            (rank + size - 1) % size, r->recv, bytes, 0, request);
    case ALL_GATHER:
        return comm_tensors_start_all_gather(r->tensors, r->recv, sizes,
                                             offsets, request);
    default:
        return comm_tensors_start_all_to_all(r->tensors, r->send, sizes,
                                             offsets, r->recv, others, places,
                                             request);
    }
}

static enum err turns(const struct rates *r, enum operation operation,
                      size_t bytes, int count)
{
    for (int i = 0; i < count; i++) {
        struct comm_tensors_request *request;
        TRY(start(r, operation, bytes, &request));
        TRY(comm_tensors_wait(request, 0.0));
    }
    return comm_tensors_settle(r->tensors, 0.0);
}

/* What a link carries: all-gather and all-to-all keep a part at home. */
static enum err rate(const struct rates *r, enum operation operation,
                     size_t bytes, double *gbs)
{
    double size = (double)comm_size(r->comm);
    TRY(turns(r, operation, bytes, 3));
    TRY(comm_barrier(r->comm));
    double begin = clock_now();
    TRY(turns(r, operation, bytes, TURNS));
    double sent = (double)bytes * TURNS;
    *gbs = (operation == EXCHANGE ? sent : sent * (size - 1) / size) /
           (clock_now() - begin) * 1e-9;
    return ERR_OK;
}

static void rates(struct rates *r)
{
    struct arena arena = { 0 };
    enum err rc = r->memory->tensors_create(2 * LARGEST, &arena);
    if (rc == ERR_OK) {
        r->send = arena_take(&arena, LARGEST);
        r->recv = arena_take(&arena, LARGEST);
    }
    for (int o = 0; o < OPERATIONS && rc == ERR_OK; o++)
        for (size_t bytes = 1 << 20; bytes <= LARGEST && rc == ERR_OK;
             bytes *= 16) {
            double gbs = 0;
            rc = rate(r, (enum operation)o, bytes, &gbs);
            tap_note("rate %s of %zu MiB by %d ranks: %.1f GB/s", names[o],
                     bytes >> 20, comm_size(r->comm), gbs);
        }
    everywhere(r->comm, rc == ERR_OK, "nccl", "rates");
    r->memory->tensors_destroy(&arena);
}

static enum err open_bench(struct bench *b, const struct kernels *table)
{
    b->memory = table->memory;
    TRY(b->memory->use(comm_local_rank(b->comm)));
    TRY(b->memory->stream_create(false, &b->stream));
    TRY(b->memory->tensors_create(ROOM, &b->device));
    TRY(b->memory->host_create(ROOM, &b->host));
    return comm_tensors_create(b->comm, b->memory, b->stream, EXCHANGE_AUTO,
                               &b->tensors);
}

static void run(struct comm *comm, const struct kernels *table)
{
    struct bench b = { .comm = comm };
    char label[32] = "";
    enum err rc = comm_agree(comm, open_bench(&b, table));
    if (rc == ERR_OK)
        comm_tensors_label(b.tensors, label, sizeof label);
    everywhere(comm, rc == ERR_OK && strncmp(label, "nccl ", 5) == 0, "auto",
               rc == ERR_OK ? label : err_text());
    if (rc != ERR_OK)
        return;
    test_cases(&b);
    struct rates r = { comm, b.memory, b.tensors, NULL, NULL };
    rates(&r);
    comm_tensors_destroy(b.tensors);
    b.memory->host_destroy(&b.host);
    b.memory->tensors_destroy(&b.device);
    b.memory->stream_destroy(b.stream);
}

int main(int argc, char **argv)
{
    struct comm *comm;
    const struct kernels *table;
    if (kernels_find("cuda", "auto", &table) != ERR_OK) {
        tap_skip("no GPU: %s", err_text());
        return tap_done();
    }
    if (comm_create("auto", &argc, &argv, 60.0, &comm) != ERR_OK) {
        tap_ok(false, "create: %s", err_text());
        return tap_done();
    }
    log_init("test", comm_rank(comm), LOG_WARN);
    if (comm_rank(comm) > 0)
        tap_silence();
    if (comm_size(comm) > 1)
        run(comm, table);
    else
        tap_skip("one rank: start several, each with a GPU");
    comm_destroy(comm);
    return tap_done();
}
