/* comm.h for one rank of many, of which the others are not there. The functions
 * take the place of src/comm/comm.c; comm_ranks.c tells of a stub, too. */
#include "tests/growth/stub_comm.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/comm/comm_impl.h"

struct stub {
    struct comm comm; /* first: a struct comm is cast to this */
    struct comm_request done;
    struct stub_counts *counts; /* of a communicator and its duplicates */
    bool counts_owned;
    stub_others_fn others;
    void *arg;
    int calls;
};

static struct stub *stub_of(struct comm *comm)
{
    return (struct stub *)(void *)comm;
}

static void *room(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (memory == NULL) {
        perror("stub_comm");
        exit(1);
    }
    return memory;
}

struct comm *stub_comm_create(int rank, int size, int per_node)
{
    struct stub *stub = room(sizeof *stub);
    struct comm *comm = &stub->comm;
    comm->next = comm;
    comm->rank = rank;
    comm->size = size;
    comm->local_rank = rank % per_node;
    comm->local_size = per_node < size ? per_node : size;
    comm->timeout_s = 1.0;
    comm->hosts = room((size_t)size * sizeof *comm->hosts);
    comm->sizes = room((size_t)size * COMM_SIZES * sizeof *comm->sizes);
    comm->nodes = room((size_t)size * sizeof *comm->nodes);
    for (int r = 0; r < size; r++) {
        comm->nodes[r] = r / per_node * per_node;
        snprintf(comm->hosts[r], sizeof comm->hosts[r], "node%05d",
                 r / per_node);
    }
    stub->done.comm = comm;
    stub->counts = room(sizeof *stub->counts);
    stub->counts_owned = true;
    return comm;
}

void comm_destroy(struct comm *comm)
{
    if (comm == NULL)
        return;
    free(comm->hosts);
    free(comm->nodes);
    free(comm->sizes);
    if (stub_of(comm)->counts_owned)
        free(stub_of(comm)->counts);
    free(stub_of(comm));
}

void stub_comm_others(struct comm *comm, stub_others_fn others, void *arg)
{
    stub_of(comm)->others = others;
    stub_of(comm)->arg = arg;
    stub_of(comm)->calls = 0;
}

struct stub_counts stub_comm_counts(struct comm *comm)
{
    struct stub_counts counts = *stub_of(comm)->counts;
    *stub_of(comm)->counts = (struct stub_counts){ 0 };
    return counts;
}

static enum err round_of(struct comm *comm, int64_t rounds, size_t bytes,
                         struct comm_request **out)
{
    struct stub *stub = stub_of(comm);
    stub->counts->rounds += rounds;
    stub->counts->bytes += (int64_t)bytes;
    if (out != NULL)
        *out = &stub->done;
    return ERR_OK;
}

enum err comm_start_all_gather(struct comm *comm, void *data,
                               const size_t *bytes, const size_t *offsets,
                               struct comm_request **out)
{
    struct stub *stub = stub_of(comm);
    size_t total = 0;
    for (int r = 0; r < comm->size; r++)
        total += r != comm->rank ? bytes[r] : 0;
    if (stub->others != NULL)
        stub->others(stub->arg, stub->calls++, data, bytes, offsets);
    return round_of(comm, 1, total, out);
}

enum err comm_all_gather(struct comm *comm, void *data, const size_t *bytes,
                         const size_t *offsets)
{
    return comm_start_all_gather(comm, data, bytes, offsets, NULL);
}

enum err comm_gather_rows(struct comm *comm, void *rows, size_t bytes)
{
    size_t *sizes = comm_sizes(comm, 0), *offsets = comm_sizes(comm, 1);
    for (int r = 0; r < comm->size; r++) {
        sizes[r] = bytes;
        offsets[r] = (size_t)r * bytes;
    }
    return comm_all_gather(comm, rows, sizes, offsets);
}

enum err comm_start_broadcast(struct comm *comm, void *data, size_t bytes,
                              int root, struct comm_request **out)
{
    (void)data;
    return round_of(comm, 1, root != comm->rank ? bytes : 0, out);
}

enum err comm_broadcast(struct comm *comm, void *data, size_t bytes, int root)
{
    return comm_start_broadcast(comm, data, bytes, root, NULL);
}

enum err comm_start_all_reduce_i64(struct comm *comm, int64_t *values,
                                   size_t count, enum comm_op op,
                                   struct comm_request **out)
{
    (void)values;
    (void)op;
    return round_of(comm,
                    (int64_t)(count + COMM_FOLD_COUNT - 1) / COMM_FOLD_COUNT,
                    count * sizeof *values, out);
}

enum err comm_all_reduce_i64(struct comm *comm, int64_t *values, size_t count,
                             enum comm_op op)
{
    return comm_start_all_reduce_i64(comm, values, count, op, NULL);
}

enum err comm_start_barrier(struct comm *comm, struct comm_request **out)
{
    return round_of(comm, 1, 0, out);
}

enum err comm_barrier(struct comm *comm)
{
    return round_of(comm, 1, 0, NULL);
}

enum err comm_agree(struct comm *comm, enum err rc)
{
    (void)round_of(comm, 1, sizeof(int64_t), NULL);
    return rc;
}

static enum err message(struct comm *comm, size_t received,
                        struct comm_request **out)
{
    stub_of(comm)->counts->messages++;
    return round_of(comm, 0, received, out);
}

enum err comm_start_send(struct comm *comm, const void *data, size_t bytes,
                         int to, int tag, struct comm_request **out)
{
    (void)data;
    (void)bytes;
    (void)to;
    (void)tag;
    return message(comm, 0, out);
}

enum err comm_start_recv(struct comm *comm, void *data, size_t bytes, int from,
                         int tag, struct comm_request **out)
{
    (void)data;
    (void)from;
    (void)tag;
    return message(comm, bytes, out);
}

enum err comm_start_all_to_all(struct comm *comm, const void *send,
                               const size_t *send_bytes,
                               const size_t *send_offsets, void *recv,
                               const size_t *recv_bytes,
                               const size_t *recv_offsets,
                               struct comm_request **out)
{
    struct stub *stub = stub_of(comm);
    (void)send;
    (void)send_offsets;
    if (stub->others != NULL)
        stub->others(stub->arg, stub->calls++, recv, recv_bytes, recv_offsets);
    for (int r = 0; r < comm->size; r++) {
        if (r != comm->rank && send_bytes[r] > 0)
            (void)message(comm, 0, NULL);
        if (r != comm->rank && recv_bytes[r] > 0)
            (void)message(comm, recv_bytes[r], NULL);
    }
    return round_of(comm, 0, 0, out);
}

enum err comm_start_messages(struct comm *comm,
                             const struct comm_message *messages, int count,
                             struct comm_request **out)
{
    for (int i = 0; i < count; i++)
        (void)message(comm, messages[i].receive ? messages[i].bytes : 0, NULL);
    return round_of(comm, 0, 0, out);
}

enum err comm_wait(struct comm_request *request, double timeout_s)
{
    (void)timeout_s;
    assert(request->comm != NULL);
    return ERR_OK;
}

bool comm_test(struct comm_request *request)
{
    return request->comm != NULL;
}

enum err comm_duplicate(struct comm *comm, struct comm **out)
{
    struct comm *copy =
        stub_comm_create(comm->rank, comm->size, comm->local_size);
    free(stub_of(copy)->counts);
    stub_of(copy)->counts = stub_of(comm)->counts;
    stub_of(copy)->counts_owned = false;
    *out = copy;
    return ERR_OK;
}

void comm_detach(struct comm *duplicate)
{
    (void)duplicate;
}

_Noreturn void comm_abort(struct comm *comm, int exit_code)
{
    (void)comm;
    _Exit(exit_code);
}

void comm_set_timeline(struct comm *comm, struct timeline *timeline, int kind)
{
    comm->timeline = timeline;
    comm->timeline_kind = kind;
}
