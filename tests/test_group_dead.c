/* A rank that stops or dies while groups of ranks compute together is named by
 * all survivors, and by its name alone: also by those that waited for somebody
 * who waited for it, and by those of other groups, who come to the roll call
 * from an exchange of their own, or on a device from a wait for what they have
 * enqueued. The program starts itself as ranks under mpirun. */
#include "src/comm/comm_tensors_impl.h"
#include "src/parallel/group.h"
#include "tests/dead_ranks.h"
#include "tests/deferred_memory.h"
#include "tests/nccl_fake.h"

#define ROOM ((size_t)4096)

static const struct {
    const char *what;
    enum comm_exchange way;
    int degree;
    int victim;
    int signal;
} cases[] = {
    { "a ring of 4, stopped", EXCHANGE_DIRECT, 4, 3, SIGSTOP },
    { "a ring of 4, killed", EXCHANGE_DIRECT, 4, 1, SIGKILL },
    { "rings of 2, stopped", EXCHANGE_DIRECT, 2, 0, SIGSTOP },
    { "rings of 2, killed", EXCHANGE_DIRECT, 2, 3, SIGKILL },
    { "staged rings of 2, stopped", EXCHANGE_STAGED, 2, 1, SIGSTOP },
    { "a ring of 4 by NCCL, killed", EXCHANGE_NCCL, 4, 1, SIGKILL },
    { "a ring of 4 by NCCL, stopped", EXCHANGE_NCCL, 4, 2, SIGSTOP },
    { "rings of 2 by NCCL, stopped", EXCHANGE_NCCL, 2, 0, SIGSTOP },
};
#define CASES (int)(sizeof cases / sizeof cases[0])

/* --- a rank --- */

/* What comes goes on to the next one: only the next one of the victim waits for
 * the victim itself. */
static enum err pass_on(const struct group_access *group, char *data, int laps)
{
    size_t bytes = sizeof(int);
    int next = (group->rank + 1) % group->size;
    int last = (group->rank + group->size - 1) % group->size;
    for (int lap = 0; lap < laps; lap++) {
        if (group->rank > 0 || lap > 0) {
            TRY(group->start(group->arg, 0, next, NULL, 0, last, data, bytes));
            TRY(group->wait(group->arg, 0));
        }
        TRY(group->start(group->arg, 0, next, data, bytes, last, NULL, 0));
        TRY(group->wait(group->arg, 0));
    }
    return ERR_OK;
}

static enum err compute(struct comm *comm, int number)
{
    enum err rc = ERR_OK;
    struct comm_tensors *tensors;
    struct group *group = NULL;
    struct arena arena;
    void *stream, *come;
    bool victim = comm_rank(comm) == cases[number].victim;
    enum comm_exchange way = cases[number].way;
    const struct kernel_memory *memory =
        way == EXCHANGE_DIRECT ? &kernel_memory_cpu : &deferred_memory;
    deferred.name = "0000:01:00.0";
    nccl_fake.busy = 1;
    TRY_OUT(comm_duplicate(comm, &nccl_fake.comm));
    TRY_OUT(memory->stream_create(false, &stream));
    TRY_OUT(memory->event_create(&come));
    TRY_OUT(memory->tensors_create(ROOM, &arena));
    TRY_OUT(comm_tensors_create_lent(comm, memory, stream, way,
                                     &nccl_fake_library, &tensors));
    TRY_OUT(group_create(comm, tensors, cases[number].degree, &group));
    TRY_OUT(comm_barrier(comm));
    rc = pass_on(group_access(group), arena.base, victim ? 1 : 3);
    if (rc == ERR_OK && victim)
        raise(cases[number].signal);
    /* what has come a device's host knows only then */
    if (rc == ERR_OK && memory->device)
        rc = memory->event_record(come, stream);
    if (rc == ERR_OK && memory->device)
        rc = comm_tensors_reach(tensors, come, 0.0);
    if (rc == ERR_OK) /* of a group that is whole; NCCL tells it all */
        rc = way == EXCHANGE_NCCL ? comm_tensors_settle(tensors, 0.0)
                                  : comm_barrier(comm);
    if (rc != ERR_OK)
        rc = group_roll_call(group, rc);
out:
    return rc;
}

int main(int argc, char **argv)
{
    if (!ranks_prepare(argc, argv, compute))
        return tap_done();
    for (int i = 0; i < CASES; i++)
        ranks_test(i, cases[i].what, cases[i].victim);
    return tap_done();
}
