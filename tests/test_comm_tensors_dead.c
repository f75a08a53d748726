/* A rank that stops or dies among operations on tensors is named by all others,
 * by every way. */

#include "tests/dead_ranks.h"
#include "tests/deferred_memory.h"
#include "tests/nccl_fake.h"
#include "tests/tensors_bench.h"

#define VICTIM 2

static const struct {
    const char *what;
    enum comm_exchange way;
    int signal;
    bool computes; /* and the host would not wait for anything */
} cases[] = {
    { "direct, killed", EXCHANGE_DIRECT, SIGKILL, false },
    { "staged, killed", EXCHANGE_STAGED, SIGKILL, false },
    { "staged, stopped", EXCHANGE_STAGED, SIGSTOP, false },
    { "nccl, killed", EXCHANGE_NCCL, SIGKILL, false },
    { "nccl, stopped", EXCHANGE_NCCL, SIGSTOP, false },
    { "nccl, stopped, much to compute", EXCHANGE_NCCL, SIGSTOP, true },
};
enum { CASES = sizeof cases / sizeof *cases };

static enum err step(struct bench *b)
{
    enum err rc = ERR_OK;
    for (int turn = 0; turn < 3; turn++) {
        char *data;
        struct comm_tensors_request *request = gather(b, turn, &data);
        TRY_OUT(b->rc);
        TRY_OUT(comm_tensors_wait(request, 0.0));
    }
    TRY_OUT(comm_tensors_settle(b->tensors, 0.0));
out:
    return rc;
}

/* The stream waits for what was gathered, and much more is enqueued. */
static enum err compute(struct bench *b)
{
    enum err rc = ERR_OK;
    char *data;
    struct comm_tensors_request *request = gather(b, 0, &data);
    TRY_OUT(b->rc);
    TRY_OUT(comm_tensors_wait(request, 0.0));
    for (int i = 0; i < 100; i++) {
        TRY_OUT(comm_tensors_pace(b->tensors, COMM_TENSORS_AHEAD));
        TRY_OUT(b->memory->copy(b->stream, 1, data, tensor(b, 1)));
    }
    for (;;) /* a queue that is full */
        clock_sleep(1.0);
out:
    return rc;
}

static enum err act(struct comm *comm, int number)
{
    struct bench b = { .comm = comm, .memory = &deferred_memory };
    enum comm_exchange way = cases[number].way;
    if (way == EXCHANGE_DIRECT)
        b.memory = &kernel_memory_cpu;
    deferred.name = "0000:01:00.0";
    nccl_fake.busy = 2;
    TRY(comm_duplicate(comm, &nccl_fake.comm));
    TRY(bench_open(&b, way, &nccl_fake_library));
    for (int turn = 0; turn < 20; turn++) {
        begin(&b);
        if (turn == 3 && comm_rank(comm) == VICTIM) {
            char *data;
            (void)gather(&b, 0, &data);
            kill(getpid(), cases[number].signal);
        }
        if (turn == 3 && cases[number].computes)
            TRY(compute(&b));
        TRY(step(&b));
    }
    return ERR_OK;
}

int main(int argc, char **argv)
{
    if (!ranks_prepare(argc, argv, act))
        return tap_done();
    for (int i = 0; i < CASES; i++)
        ranks_test(i, cases[i].what, VICTIM);
    return tap_done();
}
