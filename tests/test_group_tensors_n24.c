/* A group's exchanges among the collectives of the whole run, on one
 * comm_tensors: the order in which a step of zero3 with a sequence or experts
 * in parts issues them. By NCCL all of them follow each other on one stream, so
 * that a rank with another order would stop all. */
#include "src/parallel/group.h"

#include "tests/deferred_memory.h"
#include "tests/nccl_fake.h"
#include "tests/tensors_bench.h"

#define BYTES ((size_t)300)

/* What a rank sends in a lap of a microstep. */
static unsigned seed_of(int rank, int lap, int microstep)
{
    return (unsigned)((rank * 7 + lap) * 11 + microstep);
}

/* The ring of a block's attention: in lap t what place p has goes to p + t. */
static void ring(struct bench *b, const struct group_access *group,
                 int microstep)
{
    int me = group->rank, size = group->size;
    int first = comm_rank(b->comm) - me;
    for (int t = 1; t < size; t++) {
        char *out = tensor(b, BYTES), *in = tensor(b, BYTES);
        int to = me + t < size ? me + t : -1, from = me - t;
        put(b, out, BYTES, seed_of(first + me, t, microstep));
        note(b, group->start(group->arg, t % 2, to, to >= 0 ? out : NULL,
                             to >= 0 ? BYTES : 0, from, from >= 0 ? in : NULL,
                             from >= 0 ? BYTES : 0));
        note(b, group->wait(group->arg, t % 2));
        if (from >= 0)
            look(b, in, BYTES, seed_of(first + from, t, microstep));
    }
}

/* A microstep: the next block is gathered while a group computes, and a
 * gradient of the last one is on its way all the time. Groups without a leaf
 * leave the ring out. */
static void take_microstep(struct bench *b, const struct group_access *group,
                           int microstep, bool serves)
{
    char *ahead = NULL, *last = NULL;
    struct comm_tensors_request *gathered = gather(b, microstep, &ahead);
    if (serves)
        ring(b, group, microstep);
    struct comm_tensors_request *scattered = gather(b, microstep + 1, &last);
    if (serves)
        ring(b, group, microstep + 100);
    wait_for(b, gathered);
    wait_for(b, scattered);
    for (int r = 0; r < comm_size(b->comm); r++) {
        size_t at = (size_t)(comm_size(b->comm) - 1 - r) * 200 + 3;
        look(b, ahead + at, share(r, microstep), (unsigned)(r + microstep));
        look(b, last + at, share(r, microstep + 1),
             (unsigned)(r + microstep + 1));
    }
}

static void test_order(struct comm *comm, enum comm_exchange way, int degree)
{
    struct bench b = { .comm = comm, .memory = &deferred_memory };
    struct group *group = NULL;
    enum err rc = bench_open(&b, way, &nccl_fake_library);
    if (rc == ERR_OK)
        rc = group_create(comm, b.tensors, degree, &group);
    everywhere(comm, rc == ERR_OK, way_name(way), "begins");
    everywhere(comm, nccl_fake.alive == (way == EXCHANGE_NCCL), way_name(way),
               "one communicator of NCCL at most");
    for (int microstep = 0; rc == ERR_OK && microstep < 4; microstep++) {
        bool last_group =
            comm_rank(comm) / degree == (comm_size(comm) - 1) / degree;
        begin(&b);
        take_microstep(&b, group_access(group), microstep,
                       microstep < 3 || !last_group);
        end(&b, "exchanges of groups among those of all");
    }
    group_destroy(group);
    bench_close(&b);
}

int main(int argc, char **argv)
{
    static const enum deferred_eager eager[] = { EAGER_NONE, EAGER_URGENT,
                                                 EAGER_OTHERS };
    struct comm *comm;
    deferred.name = "0000:01:00.0";
    if (comm_create("auto", &argc, &argv, 60.0, &comm) != ERR_OK ||
        comm_duplicate(comm, &nccl_fake.comm) != ERR_OK) {
        tap_ok(false, "create: %s", err_text());
        return tap_done();
    }
    if (comm_rank(comm) > 0)
        tap_silence();
    for (size_t i = 0; i < sizeof eager / sizeof *eager; i++)
        for (int degree = 2; degree <= comm_size(comm); degree *= 2) {
            deferred.eager = eager[i];
            test_order(comm, EXCHANGE_NCCL, degree);
            test_order(comm, EXCHANGE_STAGED, degree);
        }
    everywhere(comm,
               nccl_fake.alive == 0 && nccl_fake.aborts == 0 &&
                   !nccl_fake.misused,
               "nccl", "was used well");
    comm_destroy(nccl_fake.comm);
    comm_destroy(comm);
    return tap_done();
}
